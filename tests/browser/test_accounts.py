"""Money, keys and notices as people look after them."""

import csv
import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab, reply
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab

__all__ = ["cluster", "tab"]  # fixtures


@pytest.mark.nightly
@pytest.mark.parametrize("by", ["pool", "day", "node"])
def test_costs_are_summed_by_what_is_chosen_and_exported_as_the_api_has_them(
    tab: Tab, cluster: Cluster, by: str
) -> None:
    page = tab.open("/cost?days=all").page
    page.get_by_label("Summed by").select_option(by)
    page.wait_for_url(f"**by={by}*")
    of_api = cluster.service.ask("GET", "/v1/costs", params={"by": by, "zone": zone(tab)}).json()
    rows = page.locator(".cost-rows tbody tr")
    expect(rows).to_have_count(len(of_api["rows"]))
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    lines = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    exported = {line["key"]: float(line["usd"]) for line in lines}
    assert exported == {row["key"]: pytest.approx(row["usd"], abs=1e-6) for row in of_api["rows"]}
    with page.expect_download() as download:
        page.get_by_role("link", name="JSON").click()
    assert json.loads(Path(download.value.path()).read_text())["rows"] == of_api["rows"]


def zone(tab: Tab) -> str:
    return tab.page.locator("#costs").get_attribute("data-zone") or ""


def test_a_key_is_shown_once_copied_and_revoked_after_a_question(tab: Tab, cluster: Cluster) -> None:
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = tab.open("/keys").page
    keys = page.locator("#keys")
    keys.get_by_label("Name").fill("a colleague")
    keys.get_by_label("Role").select_option("viewer")
    keys.get_by_role("button", name="Add key").click()
    secret = page.locator("#new-key")
    expect(secret).to_be_visible()
    made = secret.inner_text()
    keys.get_by_role("button", name="Copy").click()
    expect(page.locator("#toasts")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == made
    assert cluster.service.ask("GET", "/v1/jobs", made).is_success
    page.reload()
    expect(secret).to_have_count(0)
    assert made not in page.content()
    row = keys.locator("tr", has_text="a colleague")
    row.get_by_role("button", name="Revoke").click()
    reply(page, "no")
    assert cluster.service.ask("GET", "/v1/jobs", made).is_success
    row.get_by_role("button", name="Revoke").click()
    reply(page, "yes")
    expect(row).to_contain_text("revoked")
    assert cluster.service.ask("GET", "/v1/jobs", made).status_code == 401


def test_an_endpoint_is_added_tested_disabled_and_removed_after_a_question(tab: Tab) -> None:
    page = tab.open("/notices").page
    page.get_by_label("Channel", exact=True).select_option("webhook")
    page.get_by_role("textbox", name="Address").fill("https://hooks.invalid/x")
    page.get_by_role("textbox", name="Name").fill("the team's")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#new-secret")).to_be_visible()
    endpoint = page.locator(".endpoint", has_text="the team's")
    endpoint.get_by_role("button", name="Send a test").click()
    expect(page.locator("#toasts")).to_contain_text("The test message did not arrive")
    endpoint.get_by_role("button", name="Disable").click()
    expect(endpoint.get_by_role("button", name="Enable")).to_be_visible()
    endpoint.get_by_role("button", name="Remove").click()
    reply(page, "no")
    expect(endpoint).to_be_visible()
    endpoint.get_by_role("button", name="Remove").click()
    reply(page, "yes")
    expect(endpoint).to_have_count(0)
    expect(page.get_by_text("Nobody is notified yet")).to_be_visible()


def test_a_wrong_address_is_said_beside_it_and_what_was_typed_stays(tab: Tab) -> None:
    tab.asked.append("422")
    page = tab.open("/notices").page
    page.get_by_label("Channel", exact=True).select_option("webhook")
    page.get_by_role("textbox", name="Address").fill("no address")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("section[aria-labelledby=add-title] .error")).to_be_visible()
    expect(page.get_by_role("textbox", name="Address")).to_have_value("no address")


@pytest.mark.nightly
def test_an_endpoint_without_any_kind_is_refused_beside_its_kinds(tab: Tab, cluster: Cluster) -> None:
    tab.asked.append("422")
    body = {"channel": "webhook", "address": "https://hooks.invalid/y", "name": "kinds", "kinds": ["failed"]}
    made = cluster.service.ask("POST", "/v1/notices/endpoints", json=body).json()["endpoint"]["id"]
    page = tab.open("/notices").page
    endpoint = page.locator(f"#{made}")
    endpoint.locator("summary").click()
    endpoint.get_by_role("checkbox", name="failed", exact=False).first.uncheck()
    endpoint.get_by_role("button", name="Save").click()
    expect(endpoint.get_by_role("alert")).to_contain_text("one kind of news at least")
    assert cluster.service.ask("GET", f"/v1/notices/endpoints/{made}").json()["kinds"] == ["failed"]
