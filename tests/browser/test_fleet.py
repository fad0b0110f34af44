"""The fleet and the queue as operators work with them."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab, reply
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.browser.test_session import load_again

__all__ = ["cluster", "tab"]  # fixtures


def said(page: Page, cluster: Cluster, what: str) -> None:
    """Wait until the page says what was done, and let the stream see it."""
    expect(page.locator("#toasts")).to_contain_text(what)
    page.locator("#toasts").evaluate("each => each.replaceChildren()")
    cluster.look_again()


def test_a_node_is_drained_and_released_on_its_own_screen(tab: Tab, cluster: Cluster) -> None:
    node = cluster.service.join("to be drained")
    page = tab.open(f"/fleet/{node}").live().page
    state = page.locator("#node-state .node-verdict")
    page.get_by_role("button", name="Drain", exact=True).click()
    said(page, cluster, "1 node will get no more work")
    expect(state).to_contain_text("draining")
    page.get_by_role("button", name="Release").click()
    said(page, cluster, "1 node released")
    expect(state).not_to_contain_text("draining")
    expect(page.get_by_role("button", name="Drain", exact=True)).to_be_visible()


@pytest.mark.nightly
def test_to_take_the_work_of_a_node_away_is_asked_first(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("taken away")
    cluster.begin(job, "works")
    page = tab.open("/fleet?search=works").live().page
    page.locator("#nodes").get_by_role("link", name="works").click()
    page.wait_for_url("**/fleet/node-*")
    tab.live()
    page.get_by_role("button", name="Drain now").click()
    reply(page, "no")
    expect(page.locator("dialog#confirm")).to_be_hidden()
    page.get_by_role("button", name="Drain now").click()
    reply(page, "yes")
    said(page, cluster, "The jobs of 1 node are saved and handed back")
    expect(page.locator("#node-state .node-verdict")).to_contain_text("draining")


@pytest.mark.nightly
def test_what_a_node_works_on_is_not_cut_and_its_name_stays_whole(tab: Tab, cluster: Cluster) -> None:
    held = cluster.begin(cluster.submit("long"), "a-node-1")
    cluster.step(held, 9000)
    page = tab.open("/fleet?search=a-node-1").live().page
    assert page.viewport_size and page.viewport_size["width"] == 1280
    expect(page.locator("#nodes")).to_contain_text("step 9000")
    assert page.locator("#nodes .work a").first.evaluate("each => each.scrollWidth <= each.clientWidth")
    page.goto(f"{cluster.url}/jobs/{held.job}")
    names = page.locator("#job-attempts td[data-label=Node]")
    assert names.first.evaluate("each => each.querySelector('a').getClientRects().length") == 1


@pytest.mark.nightly
def test_a_node_that_joins_an_empty_list_is_seen_and_what_the_list_said_goes(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/fleet?search=joins-late").live().page
    expect(page.locator("#found .empty")).to_be_visible()
    node = cluster.service.join("joins-late")
    cluster.look_again()
    expect(page.locator(f"#{node}")).to_be_visible()
    expect(page.locator("#found .empty")).to_be_hidden()


@pytest.mark.nightly
def test_nodes_are_quarantined_and_released_together(tab: Tab, cluster: Cluster) -> None:
    nodes = [cluster.service.join(f"suspect {number}") for number in range(2)]
    page = tab.open("/fleet?search=suspect").live().page
    rows = [page.locator(f"#{node}") for node in nodes]
    for button, says, state in (
        ("Quarantine", "2 nodes put in quarantine", "quarantined"),
        ("Release", "2 nodes released", "ready"),
    ):
        for row in rows:
            row.get_by_role("checkbox").check()
        expect(page.locator("#bulk-nodes [data-count]")).to_have_text("2")
        page.get_by_role("button", name=button).click()
        if button == "Quarantine":
            reply(page, "yes")
        said(page, cluster, says)
        for row in rows:
            expect(row).to_have_attribute("data-state", state)
        expect(page.locator("#bulk-nodes")).to_be_hidden()


@pytest.mark.nightly
def test_the_work_of_several_nodes_is_taken_away_after_a_question(tab: Tab, cluster: Cluster) -> None:
    node = cluster.service.join("one of several")
    page = tab.open("/fleet?search=several").live().page
    page.locator(f"#{node}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Drain now").click()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#confirm")).to_be_hidden()
    page.get_by_role("button", name="Drain now").click()
    reply(page, "yes")
    said(page, cluster, "The jobs of 1 node are saved and handed back")
    expect(page.locator(f"#{node}")).to_have_attribute("data-state", "draining")


@pytest.mark.nightly
def test_a_pool_is_paused_and_its_limits_are_changed(tab: Tab, cluster: Cluster) -> None:
    service = cluster.service
    answer = service.ask("POST", "/v1/pools", json={"name": "changed", "driver": "shop"})
    assert answer.status_code == 201, answer.text
    page = tab.open("/fleet").live().page
    pool = page.get_by_label("Pool changed")
    for button, state in (("Pause", "paused"), ("Resume", "active")):
        pool.get_by_role("button", name=button).click()
        said(page, cluster, "changed")
        expect(pool.locator(".state").first).to_contain_text(state)
    pool.get_by_text("Change limits").click()
    pool.get_by_label("Most nodes").fill("7")
    pool.get_by_role("button", name="Change", exact=True).click()
    said(page, cluster, "changed")
    expect(pool).to_contain_text("of 0 to 7")


@pytest.mark.nightly
def test_a_form_that_is_filled_in_stays_open_when_the_screen_is_loaded_again(tab: Tab, cluster: Cluster) -> None:
    answer = cluster.service.ask("POST", "/v1/pools", json={"name": "loaded-again", "driver": "shop"})
    assert answer.status_code == 201, answer.text
    page = tab.open("/fleet").live().page
    pool = page.get_by_label("Pool loaded-again")
    pool.get_by_text("Change limits").click()
    most = pool.get_by_label("Most nodes")
    most.fill("7")
    load_again(tab, cluster)
    expect(most).to_be_visible()
    expect(most).to_be_focused()
    expect(most).to_have_value("7")


@pytest.fixture
def waiting(cluster: Cluster) -> str:
    return cluster.submit("waits in vain", needs={"gpu": "RTX 1"})


def test_who_waits_and_why_is_said_and_a_job_that_starts_leaves_the_queue(
    tab: Tab, cluster: Cluster, waiting: str
) -> None:
    page = tab.open("/queue").live().page
    row = page.locator(f"#waiting-{waiting}")
    expect(row).to_contain_text("RTX 1")
    group = page.locator("#queue-groups > li", has_text="RTX 1")
    group.get_by_role("button", name="Cancel").click()
    reply(page, "no")
    group.get_by_role("button", name="Pause").click()
    said(page, cluster, "paused")
    expect(row).to_have_count(0)
    expect(page.locator("#queue-paused")).to_contain_text("RTX 1")
    page.locator("#queue-paused li", has_text="RTX 1").get_by_role("button", name="Resume").click()
    said(page, cluster, "waiting again")
    expect(row).to_be_visible()
    another = cluster.submit("starts soon")
    cluster.look_again()
    expect(page.locator(f"#waiting-{another}")).to_be_visible()
    cluster.begin(another, "comes now")
    cluster.look_again()
    expect(page.locator(f"#waiting-{another}")).to_have_count(0)
