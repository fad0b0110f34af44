"""The screen of a job as people use it: its charts, its log, what they do with it, and how it differs from another."""

import json
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from gangline.core.parsing import to_json
from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab, reply
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.browser.test_list import SHIFTS

__all__ = ["cluster", "tab"]  # fixtures
CHARTS = "#chart-list .chart"


def at_the_left(chart: Locator) -> int:
    """Return the step at the left end of a chart, as it says when one points there."""
    over = chart.locator(".u-over")
    over.scroll_into_view_if_needed()
    over.hover(position={"x": 1, "y": 20})
    return int(chart.locator(".where").inner_text().removeprefix("step ").replace(",", ""))


@pytest.mark.nightly
def test_charts_have_one_zoom(tab: Tab, cluster: Cluster) -> None:
    held = cluster.begin(cluster.submit("with charts"))
    cluster.step(held, 100)
    cluster.measure(
        held, {step: {"loss": 1 / step, "learning_rate": 1e-4, "seconds_per_step": 0.5} for step in range(1, 101)}
    )
    page = tab.open(f"/jobs/{held.job}").live().page
    charts = page.locator(CHARTS)
    expect(charts.locator("canvas")).not_to_have_count(0)
    several = charts.all()[:3]
    assert [at_the_left(each) for each in several] == [1, 1, 1]
    zoom = page.get_by_role("group", name="Zoom of the charts")
    zoom.get_by_role("button", name="Zoom in").click()
    assert (begins := {at_the_left(each) for each in several}).isdisjoint({1}) and len(begins) == 1
    zoom.get_by_role("button", name="All", exact=True).click()
    assert {at_the_left(each) for each in several} == {1}
    drag(page, several[1].locator(".u-over"), 0.5, 0.75)
    assert {abs(at_the_left(each) - 51) <= 2 for each in several} == {True}
    several[0].locator(".plot").focus()
    page.keyboard.press("Escape")
    assert {at_the_left(each) for each in several} == {1}


@pytest.mark.nightly
def test_the_names_of_a_timelines_lanes_and_its_legend_stay_in_sight_on_a_telephone(tab: Tab, cluster: Cluster) -> None:
    held = cluster.begin(cluster.submit("with a timeline"), "telephone-node")
    cluster.service.wait(2)
    cluster.step(held, 10)
    cluster.service.wait(2)
    page = tab.open(f"/jobs/{held.job}").live().page
    place, size = page.locator("#job-timeline"), page.viewport_size
    page.set_viewport_size({"width": 390, "height": 800})
    try:
        for scrolled in (0, -200, -10_000):  # from the newest end to the first
            place.evaluate("(each, left) => { each.scrollLeft = left; }", scrolled)
            for part in (".job-lanes", ".legend"):
                found, whole = place.locator(part).first.bounding_box(), place.bounding_box()
                assert found and whole
                assert (
                    whole["x"] - 1 <= found["x"] and found["x"] + found["width"] <= whole["x"] + whole["width"] + 1
                ), part
    finally:
        page.set_viewport_size(size or {"width": 1280, "height": 720})


@pytest.mark.nightly
def test_a_job_whose_node_has_no_price_has_no_chart_of_dollars(tab: Tab, cluster: Cluster) -> None:
    held = cluster.begin(cluster.submit("priced"), "priced-node")
    cluster.step(held, 20)
    cluster.measure(held, {step: {"loss": 1 / step} for step in range(1, 21)})
    cluster.service.wait(2)
    page, dollars = tab.page, tab.page.locator(CHARTS).filter(has_text="Dollars")
    tab.open(f"/jobs/{held.job}").live()
    expect(dollars).to_have_count(1)
    cluster.service.execute(
        f"UPDATE attempt SET price_known = 0, price_micro_usd_per_hour = 0 WHERE job = '{held.job}'"
    )
    tab.open(f"/jobs/{held.job}").live()
    expect(page.locator(CHARTS).filter(has_text="Loss").locator("canvas")).to_have_count(1)
    expect(dollars).to_have_count(0)


def drag(page: Page, over: Locator, begin: float, end: float) -> None:
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    page.mouse.move(box["x"] + begin * box["width"], box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 30, steps=4)
    page.mouse.up()


def test_the_log_is_searched_from_its_end_to_its_first_part(tab: Tab, cluster: Cluster) -> None:
    held = cluster.begin(cluster.submit("with a log"))
    lines = [f"step {number}" for number in range(60_000)]
    lines[10] = lines[-10] = "a Needle"
    cluster.log(held, "\n".join(lines) + "\n")
    page = tab.open(f"/jobs/{held.job}").live().page
    search, found = page.get_by_label("Search the log"), page.locator("#log-found")
    expect(page.locator("#log-text")).to_contain_text("step 59999")
    search.fill("needle")
    expect(found).to_contain_text("1 of 1")
    page.get_by_role("button", name="Previous match").click()
    expect(found).to_have_text("1 of 2")
    search.fill("no such word")
    expect(found).to_have_text("not found")


def test_a_job_is_paused_resumed_and_canceled_after_a_question(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("steered")
    page = tab.open(f"/jobs/{job}").live().page
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#job-head")).to_have_attribute("data-state", "paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#job-head")).to_have_attribute("data-state", "queued")
    cancel = page.get_by_role("button", name="Cancel", exact=True)
    cancel.click()
    reply(page, "no")
    expect(page.locator("dialog#confirm")).to_be_hidden()
    assert cluster.service.state(job) == "queued"
    cancel.click()
    reply(page, "yes")
    expect(page.locator("#job-head")).to_have_attribute("data-state", "canceled")
    expect(page.get_by_role("button", name="Retry…")).to_be_visible()


@pytest.mark.nightly
def test_the_id_of_a_job_is_copied(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("copied")
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = tab.open(f"/jobs/{job}").live().page
    page.get_by_role("button", name=job).click()
    expect(page.locator("#toasts .toast")).to_have_text(["Copied.×"])
    assert page.evaluate("navigator.clipboard.readText()") == job


def test_another_job_is_compared_by_its_name_and_only_what_differs_is_shown(tab: Tab, cluster: Cluster) -> None:
    job, _ = cluster.submit("the first", rank=4), cluster.submit("the second", rank=8)
    page = tab.open(f"/jobs/{job}").page
    page.get_by_role("link", name="Compare…").click()
    page.get_by_label("with").fill("the second")
    page.keyboard.press("Enter")
    rows = page.get_by_role("region", name="Differences").locator("tbody tr")
    expect(rows).to_have_text(["rank48", "output_namethe firstthe second"])


def test_nothing_on_the_screen_moves_while_its_job_trains(tab: Tab, cluster: Cluster) -> None:
    """What comes for the first time, such as charts, has its place from then on."""
    job = cluster.submit("watched steadily")
    held = cluster.begin(job, "steady-node")
    cluster.step(held, 2, loss=0.5, seconds_per_step=1.0)
    cluster.measure(held, {step: {"loss": 0.5} for step in (1, 2)})
    cluster.save(held, 2)
    page = tab.open(f"/jobs/{job}").live().page
    expect(page.locator(CHARTS).locator("canvas")).not_to_have_count(0)
    page.evaluate(SHIFTS)
    for step in (9, 10, 99):
        cluster.measure(held, {step: {"loss": 0.1234 / step}})
        cluster.step(held, step, loss=0.1234 * step, seconds_per_step=10.0 / step)
        cluster.save(held, step)
        expect(page.locator("#job-head")).to_contain_text(f"step {step} of 100")
        expect(page.locator("#checkpoints")).to_contain_text(str(step))
    assert page.evaluate("window.shifts") == []


def test_held_out_photos_stand_first_in_the_chart_of_the_loss_when_the_job_has_ended(
    tab: Tab, cluster: Cluster
) -> None:
    held = cluster.begin(cluster.submit("holds out", held_out=[to_json(cluster.service.upload(b"other", "other.jpg"))]))
    cluster.measure(held, {step: {"loss": 1 / step} for step in range(1, 101)})
    page = tab.open(f"/jobs/{held.job}").live().page
    loss = page.locator(CHARTS).first
    expect(loss).to_contain_text("each step")
    cluster.report(held, json.dumps({"held_out": [{"photo": "x", "loss_before": 0.5848, "loss_after": 0.1738}]}))
    expect(page.locator("#job-head")).to_contain_text("held-out loss 0.5848 → 0.1738 (-70%)")
    expect(loss.locator(".entry").first).to_have_text("held out 0.1738")
    assert at_the_left(loss) == 0
    expect(loss.locator(".entry").first).to_have_text("held out 0.5848")


@pytest.mark.nightly
def test_the_plan_of_a_clone_is_that_of_what_was_typed_last(tab: Tab, cluster: Cluster) -> None:
    page = tab.open(f"/jobs/{cluster.submit('cloned in haste')}").live().page
    page.get_by_role("button", name="Clone").click()
    page.get_by_label("Settings to change").evaluate(
        """each => ["rank=5", "rank=6", "rank=7"].forEach((text) => {
          each.value = text;
          each.closest("[data-preview]").dispatchEvent(new Event("preview"));
        })"""
    )
    expect(page.locator("#clone-shown tbody tr").first).to_have_text(re.compile("rank.*7$"))


@pytest.mark.nightly
@pytest.mark.parametrize("status", [503, 0])
def test_what_could_not_be_read_of_a_job_that_has_ended_is_read_later(tab: Tab, cluster: Cluster, status: int) -> None:
    tab.asked += ["503", "ERR_FAILED"]
    held = cluster.begin(cluster.submit("read later"))
    cluster.step(held, 100)
    cluster.measure(held, {step: {"loss": 1 / step} for step in range(1, 101)})
    cluster.log(held, "the last words\n")
    cluster.succeed(held)
    page = tab.page
    parts = re.compile(r"/v1/jobs/[^/]+/(metrics|logs)")
    page.route(parts, lambda route: route.fulfill(status=status, body="{}") if status else route.abort())
    tab.open(f"/jobs/{held.job}").live()
    log = page.locator("#log-text")
    expect(log).to_contain_text("it is tried again")
    page.unroute(parts)
    expect(log).to_have_text("the last words")
    expect(page.locator(CHARTS).locator("canvas")).not_to_have_count(0)


@pytest.mark.nightly
def test_a_search_ends_where_older_parts_of_the_log_cannot_be_read(tab: Tab, cluster: Cluster) -> None:
    tab.asked.append("503")
    held = cluster.begin(cluster.submit("with a long log"))
    cluster.log(held, "the first words\n" + "\n".join(f"step {number}" for number in range(180_000)) + "\n")
    page = tab.open(f"/jobs/{held.job}").live().page
    expect(page.locator("#log-text")).to_contain_text("step 179999")
    page.route("**/logs?*", lambda route: route.fulfill(status=503, body="{}"))
    page.get_by_label("Search the log").fill("first words")
    expect(page.locator("#log-found")).to_have_text("– older parts cannot be read now")
    page.unroute("**/logs?*")
    page.get_by_role("button", name="Previous match").click()
    expect(page.locator("#log-found")).to_have_text("1 of 1")
