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


HIDING = """
let hidden = false;
Object.defineProperty(document, "hidden", { get: () => hidden });
window.hide = (now) => { hidden = now; document.dispatchEvent(new Event("visibilitychange")); };
"""


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
