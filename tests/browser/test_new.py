"""The form of a new job as people fill it in: the plan follows what they type, which is not lost, and several values make an experiment."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from gangline.core.parsing import to_json
from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.service.datasets.conftest import Sets, picture

__all__ = ["cluster", "tab"]  # fixtures
PHOTOS = 40
"""More photos than fit into the window: the page loads a caption when its photo becomes visible."""


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> str:
    """One on a base whose family is known, so that the time and the price of others like it can be computed."""
    base = cluster.service.upload_base()
    ours = {"name": "ours", "base": to_json(base), "family": "sdxl"}
    assert cluster.service.ask("POST", "/v1/bases", json=ours).status_code == 201
    cluster.service.execute("UPDATE node SET state = 'gone' WHERE gpu = ''")
    cluster.service.join("a GPU", gpu="NVIDIA GeForce RTX 4090", gpu_memory_gb=24)
    return cluster.submit("a known one", prompt="sks dog", base=base)


def form(tab: Tab, job: str) -> Page:
    page = tab.open(f"/new?from={job}").page
    expect(page.locator("#plan .figures")).to_be_visible()
    return page


def dollars(page: Page) -> str:
    return page.locator("#plan .figures dd b").first.inner_text()


def test_the_price_is_there_and_follows_what_one_types(tab: Tab, job: str) -> None:
    page = form(tab, job)
    before = dollars(page)
    assert re.fullmatch(r"\$[\d.]+", before)
    page.get_by_label("Steps", exact=True).fill("10000")
    expect(page.locator("#plan .figures dd b").first).not_to_have_text(before)
    assert float(dollars(page)[1:]) > float(before[1:])


def test_values_times_values_make_an_experiment(tab: Tab, cluster: Cluster, job: str) -> None:
    page = form(tab, job)
    page.get_by_label("Steps", exact=True).fill("60, 120")
    page.get_by_label("Rank", exact=True).fill("4, 8, 16")
    expect(page.locator("#plan .big")).to_contain_text("6 jobs")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/experiments/*")
    expect(page.locator(".compared tbody tr")).to_have_count(6)
    made = page.url.rsplit("/", 1)[-1]
    runs = cluster.service.ask("GET", f"/v1/experiments/{made}/runs").json()
    assert {(each["settings"]["steps"], each["settings"]["rank"]) for each in runs} == {
        (steps, rank) for steps in (60, 120) for rank in (4, 8, 16)
    }


@pytest.mark.nightly
def test_a_draft_survives_a_reload_until_it_is_started(tab: Tab, job: str) -> None:
    page = form(tab, job)
    prompt, steps = page.get_by_label("Prompt", exact=True), page.get_by_label("Steps", exact=True)
    prompt.fill("sks dog at night")
    steps.fill("70")
    page.reload()
    expect(prompt).to_have_value("sks dog at night")
    expect(steps).to_have_value("70")
    expect(page.locator("#plan .figures")).to_be_visible()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    page = form(tab, job)
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("sks dog")


def test_captions_survive_a_reload_though_they_were_not_on_the_screen_yet(tab: Tab, cluster: Cluster) -> None:
    sets = Sets(cluster.service)
    photos = {f"{number:02}.png": picture(number) for number in range(PHOTOS)}
    texts = {f"{number:02}.txt": f"sks dog, number {number}".encode() for number in range(PHOTOS)}
    assert sets.ready("captioned", photos | texts)["state"] == "ready"
    page = tab.open("/new?dataset=captioned@1").page
    captions, says = page.locator(".photo textarea"), page.locator("#photos [data-summary]")
    expect(captions).to_have_count(PHOTOS)
    page.get_by_label("Prompt", exact=True).fill("sks dog")
    page.reload()
    expect(says).to_have_text(f"{PHOTOS} photos, {PHOTOS} with a caption · captioned@1 · ready")
    captions.last.scroll_into_view_if_needed()
    expect(captions.last).to_have_value(f"sks dog, number {PHOTOS - 1}")
    expect(says).to_contain_text("captioned@1 · ready")


def test_what_is_wrong_is_said_at_its_field_and_has_the_focus(tab: Tab, job: str) -> None:
    tab.asked.append("422")
    page = form(tab, job)
    rank = page.get_by_label("Rank", exact=True)
    rank.fill("minus one")
    page.get_by_role("button", name="Start").click()
    expect(rank).to_be_focused()
    expect(rank).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#s-rank-problem")).to_be_visible()
    expect(rank).to_have_value("minus one")


@pytest.mark.nightly
def test_a_plan_that_cannot_be_made_anew_says_that_it_is_of_the_values_before(tab: Tab, job: str) -> None:
    tab.asked.append("422")
    page = form(tab, job)
    plan, says = page.locator("#plan"), page.get_by_text("This plan is of the values before.")
    for name, wrong, right in (
        ("Rank", "1..100000", "4"),
        ("Steps", "0", "60"),
        ("Steps", "abc", ""),
        ("Steps", "-5", "70"),
    ):
        expect(says).to_be_hidden()
        page.get_by_label(name, exact=True).fill(wrong)
        expect(says).to_be_visible()
        expect(plan).to_have_class(re.compile("stale"))
        page.get_by_label(name, exact=True).fill(right)
        expect(says).to_be_hidden()
        expect(plan).not_to_have_class(re.compile("stale"))


@pytest.mark.nightly
def test_a_pasted_recipe_has_its_base_and_its_photos_also_after_a_reload(tab: Tab, cluster: Cluster, job: str) -> None:
    spec = cluster.service.ask("GET", f"/v1/jobs/{job}").json()["spec"]
    page = tab.open("/new").page
    base, says = page.locator("#s-base"), page.locator("#photos [data-summary]")
    expect(base).to_have_value("ours")
    page.get_by_text("Several jobs, name, recipe").click()
    page.locator("#recipe").fill(json.dumps(spec))
    page.get_by_role("button", name="Fill in the form").click()
    expect(base.locator("option:checked")).to_have_text("as in the recipe")
    expect(says).to_have_text(f"the {len(spec['photos'])} photos of the recipe")
    expect(page.locator("#plan .figures")).to_be_visible()
    page.reload()
    expect(base.locator("option:checked")).to_have_text("as in the recipe")
    expect(says).to_have_text(f"the {len(spec['photos'])} photos of the recipe")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    made = cluster.service.ask("GET", f"/v1/jobs/{page.url.rsplit('/', 1)[-1]}").json()["spec"]
    assert (made["base"], made["photos"]) == (spec["base"], spec["photos"])
