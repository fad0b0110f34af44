"""An open list of jobs ends as one that is loaded again, whatever has happened to the jobs and whenever it was opened and scrolled."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gangline.core.jobs.lists.filters import JobFilters, ListPosition
from gangline.core.views import JobPage, JobSummary
from gangline.service.jobs.lists import page as lists_page
from gangline.web.frame.rendering import digest_of_html, filled_template
from gangline.web.jobs.listed import FollowedList, JobsScreen, ListedJobs
from gangline.web.live.feed import Changes, ProjectFeed
from tests.service.conftest import PROJECT, Service
from tests.service.test_rules import beat
from tests.service.web.conftest import Browser
from tests.service.web.live.pages import ListPage, elements, row_text

FIRST, MORE, JOBS = 2, 3, 9


def job(number: int, step: int = 0) -> JobSummary:
    return JobSummary(
        id=f"job-{number}",
        name="a <b>job</b>",
        kind="lora",
        state="running",
        because="",
        steps=100,
        step=step,
        committed_step=0,
        phase=None,
        node_name=None,
        loss=None,
        seconds_per_step=None,
        eta_s=None,
        attempts=1,
        interruptions=0,
        cost_usd=0.0,
        submitted_ms=number,
        ended_ms=None,
    )


@dataclass
class Server:
    """A list whose jobs are `now`, the newest first; pages follow what it was at the last round, its first `followed` jobs."""

    followed: int
    now: Mapping[str, JobSummary] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.list = FollowedList(lambda below: f"/more?below={below.id}" if below else "", may=True, first=FIRST)
        self.round()

    def change(self, steps: Mapping[int, int]) -> None:
        self.now = {f"job-{each}": job(each, steps[each]) for each in sorted(steps, reverse=True)}

    def round(self) -> str:
        known, ids = self.list.jobs, tuple(self.now)[: self.followed]
        found = {each: self.now[each] for each in ids if self.now[each] != known.get(each)}
        return self.list.update(ListedJobs(ids, len(ids) == len(self.now)), found)

    def loaded(self, count: int, below: str = "") -> str:
        """The rows below one, and what stands below them, as the page's routes render them."""
        jobs = [each for each in self.now.values() if not below or each.submitted_ms < number(below)]
        page = JobPage(jobs=tuple(jobs[:count]), next=None)
        return filled_template("jobs/rows.html", page=page, may=True, next="/more" if len(jobs) > count else "")


def number(job: str) -> int:
    return int(job.removeprefix("job-"))


STEPS = st.dictionaries(st.integers(1, JOBS), st.integers(0, 2))
ACTS = st.lists(st.one_of(STEPS, st.sampled_from(["round", "open", "scroll"])), max_size=25)


def played(acts: list[object], followed: int) -> tuple[Server, list[ListPage]]:
    """Play what happens to jobs and to pages. What has changed back within a round, after a page was scrolled, no server sees."""
    server, pages, scrolled = Server(followed), list[ListPage](), False

    def send() -> None:
        message = server.round()
        for page in pages:
            page.receive(message)

    for act in [*acts, "round"]:
        if isinstance(act, dict):
            if scrolled:
                send()
            server.change(act)
            scrolled = False
        elif act == "open":
            pages.append(ListPage())
            pages[-1].show(server.loaded(FIRST))
            pages[-1].receive(server.list.whole())
        elif act == "scroll":
            scrolled = True
            for page in pages:
                if page.end == "more":
                    page.show(server.loaded(MORE, next(reversed(page.rows), "")))
        else:
            send()
    return server, pages


@settings(max_examples=200)
@given(ACTS)
def test_an_open_list_ends_as_one_that_is_loaded_anew(acts: list[object]) -> None:
    server, pages = played(acts, JOBS)
    for page in pages:
        assert page.rows == fresh(server, len(page.rows)) and list(page.rows) == list(server.now)[: len(page.rows)]
        assert page.end == "more" or len(page.rows) == len(server.now)


@settings(max_examples=200)
@example(
    [{3: 0, 5: 0}, "open", "round", dict.fromkeys(range(3, 10), 0), "round", {2: 0, 8: 0}, "round", {2: 0, 3: 1}], 6
)
@example(["open", dict.fromkeys(range(1, 8), 0)], 6)
@given(ACTS, st.integers(3, 6))
def test_what_is_followed_of_a_longer_list_is_up_to_date(acts: list[object], followed: int) -> None:
    server, pages = played(acts, followed)
    first = list(server.now)[:followed]
    for page in pages:
        shown = {each: row for each, row in page.rows.items() if each in first}
        assert shown == fresh(server, len(server.now), shown)
        assert list(shown)[:1] == first[:1] or (not page.rows and page.end == "more")


def fresh(server: Server, count: int, of: Mapping[str, str] | None = None) -> dict[str, str]:
    rows = [each for each in elements(server.loaded(count)) if each.attributes.get("class") == "job"]
    return {row.id: row_text(row) for row in rows if of is None or row.id in of}


def test_a_row_that_did_not_change_is_not_sent_again() -> None:
    server = Server(JOBS)
    server.change({1: 0, 2: 0})
    server.round()
    assert server.round() == ""
    server.change({1: 0, 2: 1})
    assert [each.id for each in elements(server.round())] == ["job-2"]
    server.list.update(ListedJobs(("job-2", "job-1"), complete=True), {"job-1": replace(job(1), attempts=7)})
    assert server.round().count("<li") <= 1  # what differs and is not shown is not sent


def test_a_list_is_read_from_the_store_as_jobs_come_move_and_leave(page: Service) -> None:
    screen, feed, seen = (
        JobsScreen(PROJECT, JobFilters(), may=True, more=lambda _: ""),
        ProjectFeed(PROJECT),
        ListPage(),
    )

    def read() -> str:
        return screen.refresh(page.deployment, feed.look(page.deployment))

    feed.look(page.deployment)
    screen.refresh(page.deployment, None)
    seen.show(elements(screen.whole())[0].inner)
    assert seen.rows == {}
    first = page.submit()
    page.tick()
    seen.receive(read())
    page.wait(1)
    second = page.submit()
    node = page.join()
    held = page.claim(node)
    page.tick()
    seen.receive(read())
    assert list(seen.rows) == [second, first]
    beat(page, node, held.hold, 42)
    message = read()
    assert [each.id for each in elements(message)] == [held.job]
    seen.receive(message)
    assert "42/100" in seen.rows[held.job]
    assert read() == ""
    page.ask("POST", f"/v1/jobs/{second}/cancel")
    page.tick()
    seen.receive(read())
    assert 'data-state="canceled"' in seen.rows[second]
    assert page.ask("DELETE", f"/v1/jobs/{second}").is_success
    seen.receive(read())
    assert list(seen.rows) == [first]
    assert not feed.look(page.deployment).jobs  # a deletion is reported once


def test_a_search_goes_on_below_what_was_compared_as_the_page_does(
    page: Service, signed_in: Callable[[str], Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists_page, "SEARCHED_MAX", 3)
    wanted = page.submit(prompt="wanted")
    for _ in range(4):
        page.wait(1)
        page.submit(prompt="another")
    screen = JobsScreen(
        PROJECT, JobFilters(search="wanted"), may=True, more=lambda at: f"/more?below={at.at_ms}.{at.id}" if at else ""
    )
    browser, seen = signed_in("viewer"), ListPage()

    def more_of_page(at: ListPosition | None) -> str:
        return f"/jobs/more?search=wanted&below={at.at_ms}.{at.id}" if at else ""

    screen.refresh(page.deployment, None)
    seen.show(elements(screen.whole())[0].inner)
    assert seen.end == "more" and not seen.rows
    below = re.compile(r"below=([0-9.a-z-]+)")
    assert below.findall(screen.whole()) == below.findall(browser.get("/?search=wanted").text)
    assert wanted in browser.part(f"/jobs/more?search=wanted&below={below.findall(screen.whole())[0]}").text
    page.wait(1)
    came = page.submit(prompt="wanted, too")
    seen.receive(screen.refresh(page.deployment, Changes(listed=True)))
    assert list(seen.rows) == [came] and seen.end == "more"
    assert below.findall(screen.whole()) == below.findall(browser.get("/?search=wanted").text)
    # A page was loaded with what the stream of another begins with: it is not sent again.
    fresh_screen = JobsScreen(PROJECT, JobFilters(search="wanted"), may=False, more=more_of_page)
    fresh_screen.refresh(page.deployment, None)
    assert f'data-shown="{digest_of_html(fresh_screen.whole())}"' in browser.get("/?search=wanted").text
