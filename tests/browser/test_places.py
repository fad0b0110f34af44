"""Things stand where they belong, and stay there: values under their headings, the list under the bar, the log at its end."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import NewPerson, Tab
from tests.browser.test_list import SHIFTS
from tests.service.experiments.at_work import submit

PHONE = {"viewport": {"width": 390, "height": 844}}


def an_experiment(cluster: Cluster) -> tuple[str, list[str]]:
    """An experiment of two ranks, and its jobs."""
    made = submit(cluster.service, settings={"steps": 100})["id"]
    runs = cluster.service.ask("GET", f"/v1/experiments/{made}/runs").json()
    return made, [run["job"] for run in runs]


def columns(page: Page, table: str) -> list[tuple[float, float]]:
    """Return where each heading of a table and the value of its first row begin and end."""
    return page.locator(table).first.evaluate(
        """(table) => {
          const ends = (cell) => { const box = cell.getBoundingClientRect(); return [Math.round(box.left), Math.round(box.right)]; };
          const [head, first] = [table.tHead.rows[0], table.tBodies[0].rows[0]];
          return [...head.cells].map((cell, at) => [ends(cell), ends(first.cells[at])]);
        }"""
    )


@pytest.mark.nightly
@pytest.mark.parametrize("width", [390, 768, 1280, 2560])
def test_values_stand_under_their_headings(person: NewPerson, cluster: Cluster, width: int) -> None:
    made, (job, _) = an_experiment(cluster)
    page = person(viewport={"width": width, "height": 900}).tab().open(f"/experiments/{made}").live().page
    for heading, value in columns(page, "table.compared"):
        assert heading == value
    page.goto(f"{cluster.url}/jobs/{job}#spec")
    if width > 720:
        for heading, value in columns(page, "#spec table"):
            assert heading == value
    page.goto(f"{cluster.url}/")
    if width > 720:
        heads = page.locator(".heads > span:visible").evaluate_all(LEFTS)
        assert heads and set(heads) <= set(page.locator("#jobs > .job").first.locator("> *").evaluate_all(LEFTS))


LEFTS = "(all) => all.map((each) => Math.round(each.getBoundingClientRect().left))"


@pytest.mark.nightly
def test_rows_and_curves_of_an_open_experiment_follow_its_jobs(tab: Tab, cluster: Cluster) -> None:
    made, jobs = an_experiment(cluster)
    page = tab.open(f"/experiments/{made}").live().page
    page.evaluate("window.untouched = true")
    row = page.locator("#run-1")
    expect(row.locator(".state-of")).to_contain_text("queued")
    held = cluster.begin(jobs[0])
    expect(row.locator(".state-of")).to_contain_text("running")
    for step in (20, 40, 60):
        cluster.step(held, step)
        cluster.measure(held, {step: {"loss": 1 / step}})
    expect(row).to_contain_text("60/100")
    expect(page.locator("table.compared tbody tr")).to_have_count(2)
    expect(page.locator("#curves-plot canvas")).to_be_visible()
    assert page.evaluate("window.untouched")
    for heading, value in columns(page, "table.compared"):
        assert heading == value


@pytest.mark.nightly
def test_no_row_moves_when_the_first_one_is_ticked(person: NewPerson, cluster: Cluster) -> None:
    job = cluster.submit("ticked")
    for options in ({}, PHONE):
        page = person(**options).tab().open().live().page
        page.evaluate(SHIFTS)
        row = page.locator(f"#{job}")
        before = row.bounding_box()
        page.get_by_label(f"Select ticked, {job}").check()
        expect(page.locator("#bulk")).to_be_visible()
        assert row.bounding_box() == before
        expect(page.locator("#bulk")).to_be_in_viewport(ratio=1)


def test_counts_by_state_are_live_and_filter(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("counted")
    page = tab.open().live().page
    queued, paused = page.locator("#counts a", has_text="queued"), page.locator("#counts a", has_text="paused")
    before = int(queued.locator("b").inner_text())
    cluster.act(job, "pause")
    expect(paused.locator("b")).to_have_text("1")
    expect(queued.locator("b")).to_have_text(str(before - 1))
    paused.click()
    expect(page.locator("#jobs > .job")).to_have_count(1)
    expect(page.locator("#counts a[aria-current]")).to_contain_text("paused")


def test_all_screens_can_be_reached_on_a_phone(person: NewPerson, cluster: Cluster) -> None:
    page = person(**PHONE).tab().open("/keys").page
    tabs = page.locator(".tabs a")
    expect(tabs.last).to_be_in_viewport(ratio=1)
    expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=1)
    if not page.locator(".tabs").evaluate("(tabs) => tabs.scrollWidth > tabs.clientWidth"):
        expect(tabs.first).to_be_in_viewport(ratio=1)


@pytest.mark.nightly
def test_the_log_is_shown_at_its_end_and_stays_there(person: NewPerson, cluster: Cluster) -> None:
    job = cluster.submit("with a log")
    held = cluster.begin(job)
    text = "".join(f"line {number} {'long ' * 40}\n" for number in range(450))
    cluster.log(held, text)
    page = person(**PHONE).tab().open(f"/jobs/{job}#log").live().page
    log = page.locator("#log-text")
    expect(log).to_contain_text("line 449")
    page.wait_for_function(AT_END)
    cluster.log(held, "the very last line\n", after=len(text))
    cluster.step(held, 10)
    expect(log).to_contain_text("the very last line")
    page.wait_for_function(AT_END)


@pytest.mark.nightly
def test_the_log_that_one_reads_stays_where_it_is_when_results_come_above_it(
    person: NewPerson, cluster: Cluster
) -> None:
    job = cluster.submit("with results")
    held = cluster.begin(job)
    cluster.log(held, "a line\n" * 40)
    cluster.step(held, 10)
    page = person(**PHONE).tab().open(f"/jobs/{job}").live().page
    expect(page.locator("#log-text")).to_contain_text("a line")
    heading = page.locator("#h-log")
    page.evaluate("scrollTo(0, scrollY + document.getElementById('h-log').getBoundingClientRect().top - 160)")
    page.wait_for_function("Math.abs(document.getElementById('h-log').getBoundingClientRect().top - 160) < 2")
    before = heading.bounding_box()
    cluster.succeed(held)
    expect(page.locator("#job-files a")).to_be_visible()
    expect(page.locator("#job-head .state")).to_have_text("succeeded")
    page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    after = heading.bounding_box()
    assert before and after and abs(before["y"] - after["y"]) < 2


AT_END = """() => {
  const log = document.getElementById("log-text");
  return log.scrollTop > 0 && log.scrollHeight - log.scrollTop - log.clientHeight < 2;
}"""
