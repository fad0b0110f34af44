"""The list of jobs as people use it: it changes while they look, and nothing that they do is lost."""

import pytest
from playwright.sync_api import Page, expect

from gangline.service.jobs.lists import page as lists_page
from gangline.web.jobs import routes
from tests.browser.cluster import Cluster
from tests.browser.conftest import NewPerson, Tab
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.browser.test_session import HIDING
from tests.service.conftest import OPERATOR
from tests.service.pictures.many import write_pictures
from tests.waiting import until

__all__ = ["cluster", "tab"]  # fixtures
CHOOSE = """(each, values) => values.forEach((value) => {
  each.value = value;
  each.dispatchEvent(new Event("change", { bubbles: true }));
})"""
"""Choose one after another, faster than the server answers."""


def rows(page: Page) -> list[str]:
    return page.locator("#jobs > .job").evaluate_all("each => each.map(row => row.id)")


def test_a_job_moves_on_in_the_open_list_and_focus_and_selection_stay(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("watched")
    page = tab.open().live().page
    page.evaluate("window.untouched = true")
    box = page.locator(f"#{job} input[name=job]")
    box.focus()
    page.keyboard.press("Space")
    held = cluster.begin(job)
    expect(page.locator(f"#{job} .where")).to_have_text("browser-node")
    cluster.step(held, 40)
    expect(page.locator(f"#{job} .figures")).to_have_text("40/100")
    expect(box).to_be_focused()
    expect(box).to_be_checked()
    expect(page.locator("#bulk [data-count]")).to_have_text("1")
    new = cluster.submit("came later")
    expect(page.locator("#jobs > .job").first).to_have_attribute("id", new)
    expect(box).to_be_focused()
    assert page.evaluate("window.untouched")


@pytest.mark.nightly
def test_nothing_jumps_while_jobs_move_on(tab: Tab, cluster: Cluster) -> None:
    jobs = [cluster.submit(f"watched {number}") for number in range(3)]
    held = [cluster.begin(job, f"browser-node-{job}") for job in jobs]
    page = tab.open().live().page
    page.evaluate(SHIFTS)
    for step in (9, 10, 99, 100):
        for each in held:
            cluster.step(each, step, loss=0.1234 * step, seconds_per_step=10.0 / step)
        expect(page.locator(f"#{jobs[-1]} .figures")).to_have_text(f"{step}/100")
    cluster.fail(held[0], "a long reason " * 20)
    expect(page.locator(f"#{jobs[0]} .why")).to_contain_text("a long reason")
    assert page.evaluate("window.shifts") == []


SHIFTS = """
window.shifts = [];
new PerformanceObserver((found) => {
  for (const each of found.getEntries().filter((each) => !each.hadRecentInput)) {
    const moved = each.sources.map((of) => of.node).filter((node) => node?.outerHTML); // text that is aligned to the right grows leftwards
    if (moved.length) window.shifts.push([each.value, ...moved.map((node) => node.outerHTML)]);
  }
}).observe({ type: "layout-shift" });
"""


def test_filters_are_in_the_address_and_the_way_back_leads_to_them(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("there again")
    page = tab.open().live().page
    every = len(rows(page))
    page.get_by_label("State").select_option("succeeded")
    page.wait_for_url("**/?state=succeeded")
    expect(page.locator(f"#{job}")).to_have_count(0)
    assert set(page.locator("#jobs > .job").evaluate_all("each => each.map(row => row.dataset.state)")) == {"succeeded"}
    tab.live()
    page.go_back()
    expect(page.locator(f"#{job}")).to_be_visible()
    expect(page.get_by_label("State")).to_have_value("")
    assert len(rows(page)) == every
    tab.live()
    page.go_forward()
    expect(page.locator(f"#{job}")).to_have_count(0)
    expect(page.get_by_label("State")).to_have_value("succeeded")
    page.reload()
    expect(page.get_by_label("State")).to_have_value("succeeded")


@pytest.mark.nightly
def test_the_page_still_works_after_the_way_back(tab: Tab, cluster: Cluster) -> None:
    page = tab.open().live().page
    page.get_by_label("State").select_option("succeeded")
    page.wait_for_url("**/?state=succeeded")
    page.go_back()
    tab.live()
    job = cluster.submit("after the way back")
    expect(page.locator(f"#{job}")).to_be_visible()
    page.check(f"#{job} input[name=job]")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts")).to_contain_text("1 job paused")
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_typing_searches_names_and_labels_and_is_not_disturbed(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("a needle", labels={"hay": "stack"})
    page = tab.open().live().page
    page.get_by_label("Search jobs").focus()
    page.keyboard.type("needle")
    page.wait_for_url("**/?search=needle")
    expect(page.locator("#jobs > .job")).to_have_count(1)
    page.keyboard.type(" nothing")
    expect(page.get_by_text("No job is like this")).to_be_visible()
    expect(page.get_by_label("Search jobs")).to_be_focused()
    expect(page.get_by_label("Search jobs")).to_have_value("needle nothing")
    page.get_by_role("link", name="Show all").click()
    expect(page.get_by_label("Search jobs")).to_have_value("")  # the other page is here
    page.get_by_label("Label").fill("hay=stack")
    page.keyboard.press("Enter")
    expect(page.locator("#jobs > .job")).to_have_count(1)
    expect(page.locator(f"#{job}")).to_be_visible()
    tab.live()
    another = cluster.submit("another", labels={"hay": "stack"})
    expect(page.locator(f"#{another}")).to_be_visible()


@pytest.mark.nightly
def test_a_search_finds_what_is_further_down_than_one_look_compares(
    tab: Tab, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists_page, "SEARCHED_MAX", 3)
    job = cluster.submit("far below", labels={"about": "round two"})
    for number in range(4):
        cluster.submit(f"on top {number}")
    page = tab.open("/?search=far+below").live().page
    expect(page.locator(f"#{job}")).to_be_visible()
    cluster.submit("yet another")
    another = cluster.submit("far below, too")
    expect(page.locator(f"#{another}")).to_be_visible()
    expect(page.locator(f"#{job}")).to_be_visible()
    page.goto(f"{cluster.url}/jobs/{job}")
    page.locator("#job-head a.label").click()
    expect(page.get_by_label("Label")).to_have_value("'about=round two'")
    expect(page.locator("#jobs > .job")).to_have_count(1)
    page.get_by_label("Label").fill("about='round two'")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?labels=*")
    expect(page.locator(f"#{job}")).to_be_visible()


def test_several_jobs_are_selected_with_shift_and_canceled_after_a_question(tab: Tab, cluster: Cluster) -> None:
    jobs = [cluster.submit(f"of several {number}") for number in range(4)]
    page = tab.open().live().page
    page.check(f"#{jobs[3]} input[name=job]")
    page.locator(f"#{jobs[1]} input[name=job]").click(modifiers=["Shift"])
    expect(page.locator("#bulk [data-count]")).to_have_text("3")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Keep them")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#confirm")).to_be_hidden()
    assert cluster.service.state(jobs[2]) == "queued"
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.locator("#toasts")).to_contain_text("3 jobs canceled")
    for job in jobs[1:]:
        expect(page.locator(f"#{job}")).to_have_attribute("data-state", "canceled")
    expect(page.locator(f"#{jobs[0]}")).to_have_attribute("data-state", "queued")
    expect(page.locator("#bulk")).to_be_hidden()


def offered(page: Page) -> list[str]:
    return page.locator("#bulk [name=action]:not([hidden])").all_inner_texts()


@pytest.mark.nightly
def test_what_is_offered_fits_what_is_selected(tab: Tab, cluster: Cluster) -> None:
    waits, paused, ended = (cluster.submit(f"offered {name}") for name in ("waits", "paused", "ended"))
    cluster.act(paused, "pause")
    cluster.act(ended, "cancel")
    page = tab.open("/?search=offered").live().page
    page.check(f"#{ended} input")
    assert offered(page) == ["Delete"]
    page.check(f"#{waits} input")
    assert offered(page) == ["Pause", "Cancel"]
    page.check(f"#{paused} input")
    assert offered(page) == ["Pause", "Resume", "Cancel"]
    page.get_by_role("button", name="Resume").click()  # of the one that is paused
    expect(page.locator("#toasts")).to_contain_text("1 job resumed")
    page.check(f"#{waits} input")
    cluster.begin(waits)
    expect(page.locator("#bulk [value=finish]")).to_be_visible()
    cluster.act(waits, "cancel")
    expect(page.locator("#bulk [value=delete]")).to_be_visible()
    assert offered(page) == ["Delete"]


@pytest.mark.nightly
def test_several_jobs_are_deleted_after_a_question_that_names_them_in_parts_if_they_are_many(
    tab: Tab, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "DELETE_S", -1)  # each answer has one
    jobs = [cluster.submit(f"not needed {number}") for number in range(3)]
    for job in jobs:
        cluster.act(job, "cancel")
    page = tab.open("/?search=not+needed").live().page
    page.check(f"#{jobs[2]} input")
    page.locator(f"#{jobs[0]} input").click(modifiers=["Shift"])
    page.get_by_role("button", name="Delete").click()
    expect(page.locator("#confirm-text")).to_contain_text("Delete 3 jobs: not needed 2, not needed 1, not needed 0?")
    page.get_by_role("button", name="Delete 3 jobs").click()
    expect(page.locator("#toasts")).to_contain_text("3 jobs deleted")
    expect(page.locator("#jobs > .job")).to_have_count(0)
    expect(page.locator("#bulk")).to_be_hidden()


def test_what_a_job_refuses_is_said(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("ends unheard of")
    page = tab.open("/?search=unheard").live().page
    later = cluster.submit("unheard of, too")
    expect(page.locator(f"#{later}")).to_be_visible()  # all that is to be heard of has been
    page.check(f"#{job} input")
    cluster.service.execute(f"UPDATE job SET state = 'canceled' WHERE id = '{job}'")
    tab.asked.append("422")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts .bad")).to_contain_text("cannot be paused")


def test_a_job_that_is_deleted_leaves_the_open_list(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("to be deleted")
    page = tab.open().live().page
    cluster.act(job, "cancel")
    expect(page.locator(f"#{job}")).to_have_attribute("data-state", "canceled")
    assert cluster.service.ask("DELETE", f"/v1/jobs/{job}").is_success
    expect(page.locator(f"#{job}")).to_have_count(0)


@pytest.mark.nightly
def test_jobs_of_a_state_come_and_go_at_their_places(tab: Tab, cluster: Cluster) -> None:
    jobs = [cluster.submit(f"in order {number}", labels={"in": "order"}) for number in range(3)]
    page = tab.open("/?state=paused&label=in%3Dorder").live().page
    expect(page.get_by_text("No job is like this")).to_be_visible()
    for job in (jobs[0], jobs[2], jobs[1]):
        cluster.act(job, "pause")
        expect(page.locator(f"#{job}")).to_be_visible()
    assert rows(page) == [jobs[2], jobs[1], jobs[0]]
    expect(page.get_by_text("No job is like this")).to_be_hidden()
    cluster.act(jobs[1], "resume")
    expect(page.locator(f"#{jobs[1]}")).to_have_count(0)
    assert rows(page) == [jobs[2], jobs[0]]


def test_a_list_is_loaded_as_it_is_scrolled_and_has_each_job_once(tab: Tab, cluster: Cluster) -> None:
    jobs = [cluster.service.submit(seed=number) for number in range(170)]
    page = tab.open().live().page
    assert len(rows(page)) < 100
    while not page.locator("#end").count():
        page.locator("#jobs > .job").last.scroll_into_view_if_needed()
        page.evaluate("new Promise(requestAnimationFrame)")
    found = rows(page)
    assert len(found) == len(set(found)) and set(jobs) < set(found)


@pytest.mark.nightly
def test_who_comes_back_to_the_list_finds_it_scrolled_and_selected_as_it_was_left(tab: Tab, cluster: Cluster) -> None:
    for number in range(100):
        cluster.service.submit(seed=number)
    page = tab.page
    page.add_init_script(HIDING)
    tab.open().live()
    page.locator("#more").scroll_into_view_if_needed()
    expect(page.locator("#jobs > .job").nth(80)).to_be_attached()
    far = rows(page)[80]
    page.check(f"#{far} input")
    scrolled, shown = page.evaluate("scrollY"), len(rows(page))
    page.evaluate("hide(true)")
    until(lambda: cluster.hub.followers == 0)
    job = cluster.submit("came while nobody looked")
    cluster.act(far, "pause")
    page.evaluate("hide(false)")
    expect(page.locator(f"#{job}")).to_be_attached()
    expect(page.locator(f"#{far}")).to_have_attribute("data-state", "paused")
    expect(page.locator(f"#{far} input")).to_be_checked()
    assert len(rows(page)) > shown and page.evaluate("scrollY") >= scrolled > 0


@pytest.mark.nightly
def test_what_could_not_be_loaded_is_loaded_when_one_scrolls_there_again(tab: Tab, cluster: Cluster) -> None:
    for number in range(120):
        cluster.service.submit(seed=number)
    tab.asked += ["ERR_FAILED", "htmx:error: Failed to fetch"]
    page, asked = tab.open().live().page, list[str]()
    page.on("request", lambda request: asked.append(request.url) if "/jobs/more" in request.url else None)
    page.route("**/jobs/more*", lambda route: route.abort())
    page.locator("#more").scroll_into_view_if_needed()
    expect(page.locator("#toasts .bad")).to_contain_text("does not answer")
    page.unroute("**/jobs/more*")
    before = len(rows(page))
    page.evaluate("scrollTo(0, 0); new Promise((then) => requestAnimationFrame(() => requestAnimationFrame(then)))")
    assert (len(asked), len(rows(page))) == (1, before)  # while it was in view and failed, it was not asked for again
    page.locator("#jobs > .job").last.scroll_into_view_if_needed()
    expect(page.locator("#jobs > .job").nth(before)).to_be_attached()


@pytest.mark.nightly
def test_what_could_not_be_loaded_is_loaded_when_the_server_is_back(tab: Tab, cluster: Cluster) -> None:
    for number in range(120):
        cluster.service.submit(seed=number)
    tab.asked += ["ERR_CONNECTION", "htmx:sse:error", "htmx:error: Failed to fetch"]
    page = tab.open().live().page
    before = len(rows(page))
    cluster.stop()
    page.locator("#more").scroll_into_view_if_needed()
    expect(page.locator("#toasts .bad")).to_contain_text("does not answer")
    cluster.start()
    expect(page.locator("#jobs > .job").nth(before)).to_be_attached()


@pytest.mark.nightly
def test_curves_and_pictures_are_drawn_again_in_rows_that_come_again(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("drawn again")
    held = cluster.begin(job, "node that draws")
    cluster.measure(held, {10: {"loss": 1.0}, 20: {"loss": 0.5}})
    write_pictures(cluster.service, job, prompts=1, steps=[0, 50])
    cluster.succeed(held)
    page = tab.open().live().page
    drawn = page.locator(f"#curve-{job} svg"), page.locator(f"#picture-{job} img")
    for each in drawn:
        expect(each).to_be_visible()
    page.get_by_label("State").select_option("failed")
    expect(page.locator(f"#{job}")).to_have_count(0)
    page.get_by_label("State").select_option("every state")
    for each in drawn:
        expect(each).to_be_visible()
    page.go_back()
    expect(page.locator(f"#{job}")).to_have_count(0)
    page.go_back()
    for each in drawn:
        expect(each).to_be_visible()


@pytest.mark.nightly
def test_a_job_that_ends_in_the_open_list_gets_the_end_of_its_curve_and_its_last_picture(
    tab: Tab, cluster: Cluster
) -> None:
    job = cluster.submit("ends while watched")
    held = cluster.begin(job, "node that ends")
    cluster.measure(held, {10: {"loss": 1.0}, 20: {"loss": 0.5}})
    page = tab.open().live().page
    curve = page.locator(f"#curve-{job} svg")
    expect(curve).to_have_attribute("aria-label", "Loss from 1.00 to 0.725")
    cluster.measure(held, {90: {"loss": 0.25}})
    write_pictures(cluster.service, job, prompts=1, steps=[0, 50])
    cluster.succeed(held)
    expect(curve).not_to_have_attribute("aria-label", "Loss from 1.00 to 0.725")
    expect(page.locator(f"#picture-{job} img")).to_be_visible()


def test_a_viewer_sees_no_actions(person: NewPerson, cluster: Cluster) -> None:
    page = person(key=cluster.service.key("viewer")).tab().open().live().page
    expect(page.locator("#jobs > .job").first).to_be_visible()
    expect(page.locator("input[name=job], #bulk")).to_have_count(0)


@pytest.mark.nightly
def test_an_operator_changes_the_project(person: NewPerson, cluster: Cluster) -> None:
    cluster.service.add_project("other")
    tab = person(key=OPERATOR).tab()
    theirs = cluster.submit("theirs", project="other")
    page = tab.open().live().page
    expect(page.locator(f"#{theirs}")).to_have_count(0)
    page.get_by_label("Project").select_option("other")
    expect(page.locator(f"#{theirs}")).to_be_visible()


@pytest.mark.nightly
def test_a_thousand_jobs_that_come_at_once_are_shown(tab: Tab, cluster: Cluster) -> None:
    page = tab.open().live().page
    jobs = [cluster.service.submit(seed=number) for number in range(1_000)]
    expect(page.locator(f"#{jobs[-1]}")).to_be_visible()
    expect(page.locator("#more, #end")).to_have_count(1)
    assert [each for each in rows(page) if each in jobs] == jobs[::-1][: page.locator("#jobs > .job").count()]


@pytest.mark.nightly
@pytest.mark.parametrize(("path", "label"), [("/", "State"), ("/fleet", "State"), ("/cost", "Summed by")])
def test_what_is_shown_is_what_was_chosen_last(tab: Tab, path: str, label: str) -> None:
    page = tab.open(path).live().page
    select = page.get_by_label(label, exact=True)
    values = select.locator("option").evaluate_all("all => all.map(({ value }) => value)")[-3:]
    select.evaluate(CHOOSE, values)
    page.wait_for_url(f"**={values[-1]}*")
    expect(select).to_have_value(values[-1])
