"""Signing in, and what an open page does when its session, its server or its stream ends."""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import NewPerson, Tab
from tests.service.conftest import OPERATOR
from tests.waiting import until

FOLLOWING = 4
"""The windows of one browser that follow the server at once, of the six connections that it opens."""


def test_one_signs_in_with_the_keyboard_alone(person: NewPerson) -> None:
    tab = person(key=None).tab().open("/?state=running")
    tab.asked.append("401")
    page = tab.page
    page.keyboard.type("gl_operator_wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not know the key")
    page.keyboard.press("Control+A")
    page.keyboard.type(OPERATOR)
    page.keyboard.press("Enter")
    page.wait_for_url("**/?state=running")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_a_form_that_was_filled_is_still_there_when_its_session_has_ended(person: NewPerson, cluster: Cluster) -> None:
    made = cluster.service.make_key("member")
    tab = person(key=made["secret"]).tab()
    page = tab.open().live().page
    job, _ = (
        see_one_come(page, cluster) for _ in range(2)
    )  # with the second, the keys of open pages were checked after the first
    page.check(f"#{job} input[name=job]")
    cluster.service.ask("DELETE", f"/v1/keys/{made['key']['id']}")
    tab.asked.append("401")
    page.get_by_role("button", name="Pause").click()
    dialog = page.locator("dialog#sign-in")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_visible()
    page.keyboard.type("gl_member_wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("Key").fill(cluster.service.key("member"))
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    tab.live()
    assert page.is_checked(f"#{job} input[name=job]")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#toasts")).to_contain_text("1 job paused")
    expect(page.locator(f"#{job} .state")).to_contain_text("paused")


def see_one_come(page: Page, cluster: Cluster) -> str:
    job = cluster.submit("one that came")
    expect(page.locator(f"#{job}")).to_be_visible()
    return job


def test_the_stream_of_a_revoked_key_ends_and_the_page_asks_for_another(person: NewPerson, cluster: Cluster) -> None:
    made = cluster.service.make_key("viewer")
    tab = person(key=made["secret"]).tab()
    page = tab.open().live().page
    tab.asked.append("401")
    cluster.service.ask("DELETE", f"/v1/keys/{made['key']['id']}")
    cluster.service.wait(16)
    expect(page.locator("dialog#sign-in")).to_be_visible()
    expect(page.locator("#live")).to_have_attribute("data-state", "off")


@pytest.mark.nightly
def test_nothing_but_a_key_closes_the_question_for_one(person: NewPerson, cluster: Cluster) -> None:
    made = cluster.service.make_key("viewer")
    tab = person(key=made["secret"]).tab()
    page = tab.open().live().page
    tab.asked += ["401", "ERR_FAILED"]
    cluster.service.ask("DELETE", f"/v1/keys/{made['key']['id']}")
    cluster.service.wait(16)
    dialog = page.locator("dialog#sign-in")
    expect(dialog).to_be_visible()
    page.evaluate("document.getElementById('sign-in').addEventListener('close', () => (window.left = true))")
    until(
        lambda: page.keyboard.press("Escape") or page.evaluate("window.left")
    )  # by a browser, whatever the page wants
    expect(dialog).to_be_visible()
    page.route("**/sign-in", lambda route: route.abort())
    dialog.get_by_label("Key").fill(OPERATOR)
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text("The server does not answer. Try again when it is back.")
    page.unroute("**/sign-in")
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    tab.live()


@pytest.mark.nightly
def test_signing_out_in_one_tab_ends_the_others_of_that_browser_alone(person: NewPerson, cluster: Cluster) -> None:
    somebody, other = person(), person().tab().open().live()
    left, stays = somebody.tab().open().live(), somebody.tab().open("/queue").live()
    left.page.get_by_role("button", name="Sign out").click()
    left.page.wait_for_url("**/sign-in")
    cluster.service.wait(16)
    expect(stays.page.locator("dialog#sign-in")).to_be_visible()
    expect(stays.page.locator("#live")).to_have_attribute("data-state", "off")
    stays.page.get_by_label("Key").fill(OPERATOR)
    stays.page.keyboard.press("Enter")
    stays.live()
    expect(other.page.locator("#live")).to_have_attribute("data-state", "on")
    expect(other.page.locator("dialog#sign-in")).to_be_hidden()


def test_a_page_says_that_its_server_is_gone_and_recovers_when_it_is_back(tab: Tab, cluster: Cluster) -> None:
    page = tab.open().live().page
    tab.asked += ["ERR_CONNECTION", "htmx:sse:error"]
    page.evaluate("window.untouched = true")
    page.get_by_role("link", name="Jobs", exact=True).focus()
    cluster.stop()
    expect(page.locator("#live")).to_have_attribute("data-state", "wait")
    job = cluster.submit("came meanwhile")
    cluster.start()
    expect(page.locator(f"#{job}")).to_contain_text("came meanwhile")
    tab.live()
    assert page.evaluate("window.untouched")
    expect(page.get_by_role("link", name="Jobs", exact=True)).to_be_focused()


@pytest.mark.nightly
def test_a_page_stays_with_the_project_that_it_names_when_another_one_looks_elsewhere(
    person: NewPerson, cluster: Cluster
) -> None:
    for project in ("ours", "theirs"):
        cluster.service.add_project(project)
    ours, theirs = (cluster.submit(f"a job of {project}", project=project) for project in ("ours", "theirs"))
    somebody = person()
    keys, jobs, form, other = (somebody.tab() for _ in range(4))
    other.open().page.get_by_label("Project", exact=True).select_option("ours")
    expect(other.page.locator(f"#{ours}")).to_be_visible()
    for each in somebody.tabs:
        each.asked += ["ERR_CONNECTION", "htmx:sse:error"]
    keys.open("/keys")
    jobs.open().live()
    form.open(f"/new?from={ours}")
    other.open(f"/jobs/{theirs}").live()
    expect(other.page.get_by_label("Project", exact=True)).to_have_value("theirs")

    keys.page.locator("#keys").get_by_label("Name").fill("a colleague")
    keys.page.get_by_role("button", name="Add key of ours").click()
    expect(keys.page.locator("#new-key")).to_be_visible()
    assert cluster.service.look("SELECT project FROM credential WHERE name = 'a colleague'") == [{"project": "ours"}]

    with jobs.page.expect_request("**/live/jobs*") as asked:
        cluster.stop()
        cluster.start()
    assert asked.value.headers["gangline-project"] == "ours"
    came = cluster.submit("one more of ours", project="ours")
    expect(jobs.page.locator(f"#{came}")).to_be_visible()
    expect(jobs.page.locator(f"#{theirs}")).to_have_count(0)

    form.page.get_by_role("button", name="Start", exact=True).click()
    form.page.wait_for_url("**/jobs/job-*")
    made = form.page.url.rsplit("/", 1)[-1]
    assert cluster.service.look(f"SELECT project FROM job WHERE id = '{made}'") == [{"project": "ours"}]
    expect(form.page.get_by_label("Project", exact=True)).to_have_value("ours")


@pytest.mark.nightly
def test_a_page_recovers_from_a_stream_that_was_cut_for_ten_minutes(tab: Tab, cluster: Cluster) -> None:
    tab.page.clock.install()
    page = tab.open().live().page
    tab.asked += ["ERR_CONNECTION", "htmx:sse:error"]
    cluster.stop()
    page.clock.run_for(1_000)
    expect(page.locator("#live")).to_have_attribute("data-state", "wait")
    for _ in range(60):
        page.clock.run_for(10_000)
    job = cluster.submit("came meanwhile")
    cluster.start()
    page.clock.run_for(12_000)
    expect(page.locator(f"#{job}")).to_contain_text("came meanwhile")
    tab.live()


@pytest.mark.nightly
def test_a_stream_that_is_silent_is_opened_again(tab: Tab, cluster: Cluster) -> None:
    tab.page.clock.install()
    page = tab.open().live().page
    with page.expect_request("**/live/jobs*"):
        page.clock.run_for(60_000)
        page.clock.run_for(3_000)
    tab.live()


@pytest.mark.nightly
def test_a_page_that_cannot_open_its_stream_tries_again(tab: Tab, cluster: Cluster) -> None:
    tab.asked += ["ERR_FAILED", "503"]
    page = tab.page
    page.route("**/live/jobs*", lambda route: route.fulfill(status=503, body="{}"))
    tab.open()
    expect(page.locator("#live")).to_have_attribute("data-state", "wait")
    page.unroute("**/live/jobs*")
    tab.live()


@pytest.mark.nightly
@pytest.mark.parametrize("count", [3, 8, 20])
def test_a_hidden_tab_closes_its_stream_and_is_up_to_date_when_it_is_seen(
    person: NewPerson, cluster: Cluster, count: int
) -> None:
    """Also where there are more tabs of one browser than the six connections that it opens to a server."""
    somebody = person()
    tabs = [somebody.tab() for _ in range(count)]
    for each in tabs:
        each.page.add_init_script(HIDING)
        each.open().live()
        each.page.evaluate("hide(true)")
    until(lambda: cluster.hub.followers == 0)
    job = cluster.submit("came while all were hidden")
    for each in tabs[:: count // 3]:
        each.page.evaluate("hide(false)")
        expect(each.page.locator(f"#{job}")).to_be_visible()
        each.page.evaluate("hide(true)")


@pytest.mark.nightly
@pytest.mark.parametrize("count", [8, 20])
def test_more_windows_than_a_browser_has_connections_work_and_say_which_of_them_stand_still(
    person: NewPerson, cluster: Cluster, count: int
) -> None:
    """All of them are seen: nothing hides them."""
    somebody = person()
    tabs = [somebody.tab().open().live() for _ in range(count)]
    until(lambda: cluster.hub.followers == FOLLOWING)
    first, last = tabs[0].page, tabs[-1].page
    assert_still(first)
    job = cluster.submit("came while many looked")
    expect(last.locator(f"#{job}")).to_be_visible()
    first.get_by_role("heading", name="Jobs").click()
    tabs[0].live()
    expect(first.locator(f"#{job}")).to_be_visible()
    until(lambda: cluster.hub.followers == FOLLOWING)
    still = tabs[-FOLLOWING].page
    assert_still(still)
    still.check(f"#{job} input[name=job]")
    still.get_by_role("button", name="Pause").click()
    expect(still.locator(f"#{job} .state")).to_contain_text("paused")
    for each in tabs[FOLLOWING:]:
        each.page.close()
    for each in tabs[:FOLLOWING]:
        each.live()


def assert_still(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "aside")
    expect(page.locator("#live")).to_have_attribute("title", re.compile("this one does again when you use it"))


@pytest.mark.nightly
def test_tabs_that_are_opened_in_the_background_take_no_connections(person: NewPerson, cluster: Cluster) -> None:
    """However many: each loads, and follows the server once it is seen."""
    somebody = person()
    tabs = [somebody.tab() for _ in range(8)]
    for each in tabs:
        each.page.add_init_script(HIDING.replace("hidden = false", "hidden = true"))
        each.open()
        expect(each.page.locator("#jobs > .job").first).to_be_visible()
        expect(each.page.locator("#live")).to_have_attribute("data-state", "off")
    assert cluster.hub.followers == 0
    for each in tabs[:2]:
        each.page.evaluate("hide(false)")
        each.live()
    assert cluster.hub.followers == 2


HIDING = """
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
window.hide = (now) => { hidden = now; document.dispatchEvent(new Event("visibilitychange")); };
"""


RELOADS = """
addEventListener("htmx:after:swap", ({ detail: { ctx } }) => {
  if (ctx.select === "#screen") document.documentElement.dataset.reloaded = "";
});
"""


def load_again(tab: Tab, cluster: Cluster) -> None:
    """Let another server answer, which knows nothing of the open page: the page loads its screen again."""
    tab.asked += ["ERR_CONNECTION", "htmx:sse:error"]
    tab.page.evaluate(RELOADS)
    cluster.stop()
    expect(tab.page.locator("#live")).to_have_attribute("data-state", "wait")
    cluster.start()
    expect(tab.page.locator("html")).to_have_attribute("data-reloaded", "")
    tab.live()


@pytest.mark.nightly
def test_durations_are_those_of_the_servers_clock_whatever_this_machine_believes(
    person: NewPerson, cluster: Cluster
) -> None:
    right, wrong = person().tab(), person().tab()
    wrong.page.clock.set_system_time((cluster.service.now_ms + 3_600_000) / 1000)
    job = cluster.submit("timed")
    held = cluster.begin(job)
    cluster.step(held, 50, seconds_per_step=2.0)
    shown = [each.open().page.locator(f"#{job} [data-left]") for each in (right, wrong)]
    assert shown[0].inner_text()[:5] == shown[1].inner_text()[:5]


@pytest.mark.nightly
def test_durations_and_days_are_right_after_this_machine_has_slept(person: NewPerson, cluster: Cluster) -> None:
    """Its clock stood still: the stream tells the time when it begins again."""
    tab, other = person().tab(), person(locale="en-GB").tab()
    cluster.submit("waits in vain", needs={"gpu": "RTX 1"})
    job = cluster.submit("has ended")
    cluster.act(job, "cancel")  # so that nothing of its screen changes
    for each, path in ((tab, "/queue"), (other, f"/jobs/{job}")):
        each.page.add_init_script(HIDING)
        each.open(path).live()
    waits = tab.page.locator("[data-since]").last
    submitted = other.page.locator("time[datetime]").first
    expect(waits).not_to_contain_text(" d ")
    expect(submitted).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
    for each in (tab, other):
        each.page.evaluate("hide(true)")
    until(lambda: cluster.hub.followers == 0)
    cluster.service.wait(2 * 86_400)
    for each in (tab, other):
        each.page.evaluate("hide(false)")
    expect(waits).to_contain_text("2 d 0 h")
    expect(submitted).to_have_text(re.compile(r"^\d\d/\d\d/\d{4}, \d\d:\d\d$"))


@pytest.mark.nightly
def test_a_stream_that_went_on_while_this_machine_slept_is_opened_again_for_its_time(
    tab: Tab, cluster: Cluster
) -> None:
    page = tab.open().live().page
    page.clock.set_system_time(0)
    with page.expect_request("**/live/jobs*"):
        see_one_come(page, cluster)
    tab.live()


@pytest.mark.nightly
def test_the_theme_that_was_chosen_is_kept(tab: Tab) -> None:
    page = tab.open().page
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.nightly
def test_times_are_in_the_readers_time_zone(person: NewPerson, cluster: Cluster) -> None:
    zone = "Asia/Kolkata"
    job = cluster.submit("timed in India")
    cluster.step(cluster.begin(job), 50)
    page = person(timezone_id=zone, locale="en-GB").tab().open(f"/jobs/{job}").live().page
    shown = page.locator("time[datetime]").evaluate_all("each => each.map(one => [one.dateTime, one.textContent])")
    assert shown
    for at, text in shown:
        assert f"{datetime.fromisoformat(at).astimezone(ZoneInfo(zone)):%H:%M}" in text
