"""The timeline and the charts of a job have one zoom: a span of time, which either of them moves."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from gangline.service.jobs.lists.labels import change_labels
from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab
from tests.waiting import until

pytestmark = pytest.mark.nightly


@pytest.fixture
def job(cluster: Cluster) -> str:
    """One that was interrupted and has many points."""
    (row,) = cluster.service.look(
        "SELECT job.id FROM job JOIN attempt ON attempt.job = job.id JOIN metric ON metric.attempt = attempt.id "
        "WHERE job.state = 'succeeded' GROUP BY job.id "
        "ORDER BY COUNT(*) DESC, job.id LIMIT 1"
    )
    return row["id"]


@pytest.fixture
def page(tab: Tab, job: str) -> Page:
    page = tab.open(f"/jobs/{job}").live().page
    expect(page.locator("#chart-list .plot canvas").first).to_be_visible()
    return page


def sides(page: Page) -> tuple[int, int]:
    """The span of time that the timeline shows, in ms."""
    svg = page.locator("#job-timeline .job-timeline")
    return int(svg.get_attribute("data-from") or 0), int(svg.get_attribute("data-to") or 0)


def moved(page: Page, act: Callable[[], object]) -> tuple[int, int]:
    before = sides(page)
    act()
    until(lambda: sides(page) != before)
    return sides(page)


def cursor(page: Page) -> str:
    """The step that the charts say."""
    return page.locator("#chart-list .where").first.inner_text()


def test_the_zoom_of_a_chart_is_that_of_the_timeline_and_back(page: Page) -> None:
    whole = sides(page)
    plot = page.locator("#chart-list .plot").first
    plot.focus()
    page.keyboard.press("Home")
    first = cursor(page)
    near = moved(page, lambda: page.keyboard.press("+"))
    assert near[1] - near[0] < whole[1] - whole[0]
    expect(page.locator("#job-timeline .legend").first).to_be_visible()
    later = moved(page, lambda: page.keyboard.press("Shift+ArrowRight"))
    assert later[1] - later[0] == pytest.approx(near[1] - near[0], abs=2) and later[0] > near[0]
    page.keyboard.press("Home")  # the cursor is never outside what is shown
    until(lambda: sides(page)[0] < later[0])
    expect(page.locator("#chart-list .where").first).to_have_text(first)
    assert moved(page, lambda: page.keyboard.press("0")) == whole


def test_the_keys_and_buttons_of_the_timeline_zoom_pan_and_reset(page: Page) -> None:
    whole = sides(page)
    place = page.locator("#job-timeline")
    place.focus()
    near = moved(page, lambda: page.keyboard.press("+"))
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2, abs=2)
    later = moved(page, lambda: page.keyboard.press("ArrowRight"))
    assert later[0] > near[0]
    expect(place).to_be_focused()
    assert moved(page, lambda: page.keyboard.press("Escape")) == whole
    zoom = page.get_by_role("group", name="Zoom of the timeline")
    assert moved(page, zoom.get_by_role("button", name="Zoom in").click) == near
    assert moved(page, zoom.get_by_role("button", name="All").click) == whole


def test_dragging_over_the_timeline_zooms_both_and_the_stream_leaves_it(page: Page, cluster: Cluster, job: str) -> None:
    whole = sides(page)
    page.locator("#chart-x").select_option("time")
    svg = page.locator("#job-timeline .job-timeline")
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 20)
    expect(page.locator("#job-timeline .span")).to_be_visible()
    near = moved(page, page.mouse.up)
    share = [(each - whole[0]) / (whole[1] - whole[0]) for each in near]
    assert share == pytest.approx([(400 - 50) / 940, (600 - 50) / 940], abs=0.02)
    cluster.service.execute(f"UPDATE job SET name = 'renamed' WHERE id = '{job}'")
    change_labels(cluster.service.deployment, job, {"came": "later"})
    cluster.service.wait(31)  # the stream brings all parts that differ, the timeline with its name among them
    expect(page.locator("#job-head .label")).to_have_text("came=later")
    expect(page.locator("#job-timeline")).to_have_attribute("hx-morph-skip", "")
    assert sides(page) == near
    plot = page.locator("#chart-list .plot").first
    plot.focus()
    page.keyboard.press("Shift+ArrowLeft")
    until(lambda: sides(page)[0] < near[0])
    assert moved(page, lambda: page.locator("#job-timeline").dblclick(position={"x": 5, "y": 5})) == whole
    expect(page.locator("#job-timeline")).not_to_have_attribute("hx-morph-skip", "")


def test_all_of_the_timeline_is_shown_once_the_server_answers_again(tab: Tab, page: Page) -> None:
    tab.asked.append("503")
    whole = sides(page)
    zoom = page.get_by_role("group", name="Zoom of the timeline")
    moved(page, zoom.get_by_role("button", name="Zoom in").click)
    drawn = re.compile(r"(?<!/v1)/jobs/[^/]+/timeline$")
    page.route(drawn, lambda route: route.fulfill(status=503, body=""))
    with page.expect_response(drawn):
        zoom.get_by_role("button", name="All").click()
    assert moved(page, lambda: page.unroute(drawn)) == whole
    expect(page.locator("#job-timeline")).not_to_have_attribute("hx-morph-skip", "")
