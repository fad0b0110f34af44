"""The page of a replay: each of its screens at the moment that is chosen, and nothing on it that changes anything."""

import re

import httpx
import pytest

from gangline.sim.replay.app import COOKIE, PROJECT_COOKIE
from gangline.web.frame.routes import LIKE
from gangline.web.page import ROUTERS
from tests.conftest import ROOT
from tests.sim.replay.conftest import Live

HTML = {"Accept": "text/html,application/xhtml+xml"}
PART = HTML | {"HX-Request": "true"}
CHANGES = re.compile(r"hx-(post|put|patch|delete)|method=.?post|hx-sse:connect", re.IGNORECASE)
TEMPLATES = ROOT / "src/gangline/web/templates"


def screens() -> set[str]:
    """Return the paths of the page's routes for reading, but for the sign-in and the streams."""
    found = set[str]()
    for router in ROUTERS:
        for route in router.routes:
            like = (getattr(route, "openapi_extra", None) or {}).get(LIKE, ())
            path = getattr(route, "path", "")
            if "GET" in getattr(route, "methods", ()) and like and not path.startswith("/live/"):
                found.add(path)
    return found


def shown_at(client: httpx.Client, path: str, ms: int) -> httpx.Response:
    return client.get(path, params={"at": ms}, headers=HTML)


def test_no_screen_of_a_replay_changes_anything_or_follows_a_stream(live: Live, client: httpx.Client) -> None:
    ids, shown = {"job": live.simulation.jobs[0]}, 0
    for path in sorted(screens()):
        answer = client.get(re.sub(r"{(\w+)[^}]*}", lambda found: ids.get(found[1], "none"), path), headers=HTML)
        assert answer.status_code in (200, 303, 403, 404, 422), (path, answer.text)
        assert not CHANGES.search(answer.text), path
        shown += answer.status_code == 200
    assert shown >= 3, "else the test looks at little"


def test_each_stream_of_the_page_is_asked_for_where_a_replay_has_none() -> None:
    """A template that names a stream itself would connect in a replay, too."""
    by_hand = {str(each) for each in TEMPLATES.rglob("*.html") if "hx-sse:connect" in each.read_text()}
    assert by_hand == set()


def test_the_page_needs_no_key_and_hides_the_keys(client: httpx.Client) -> None:
    page = client.get("/", headers=HTML)
    assert page.status_code == 200 and "Ten jobs, and every node is taken back once" in page.text
    for hidden in ('href="/keys"', 'href="/new"', "Sign out", 'type="checkbox" name="job"'):
        assert hidden not in page.text


def test_a_screen_shows_its_moment_by_a_clock_that_stands_still(live: Live, client: httpx.Client) -> None:
    snapshot = live.recording.snapshots[40]
    page = shown_at(client, "/", snapshot.ms).text
    assert f'data-now="{snapshot.ms}" data-still' in page
    states = {job["id"]: job["state"] for job in live.answers[snapshot.ms]["/v1/jobs"]["jobs"]}
    assert len(states) > 1
    for job, state in states.items():
        assert re.search(f'<li id="{job}" class="job" data-at="[0-9]+" data-state="{state}"', page)


def test_a_page_that_was_opened_at_a_moment_keeps_it_for_what_it_asks_next(live: Live, client: httpx.Client) -> None:
    ms = live.recording.snapshots[40].ms
    assert shown_at(client, "/", ms).cookies[COOKIE] == str(ms)
    assert f'data-now="{ms}"' in client.get("/notices", headers=HTML).text
    assert COOKIE not in client.get("/", headers=HTML).cookies
    assert COOKIE not in client.get("/v1/jobs", params={"at": ms}).cookies


@pytest.mark.parametrize("project", ["other", "default"])
def test_the_project_of_the_cookie_is_shown(client: httpx.Client, project: str) -> None:
    client.cookies.set(PROJECT_COOKIE, project)
    page = client.get("/", headers=HTML).text
    assert f"<option selected>{project}</option>" in page
    assert page.count('class="job"') == {"other": 2, "default": 8}[project]


def test_a_project_that_this_scenario_does_not_have_is_no_error(client: httpx.Client) -> None:
    client.cookies.set(PROJECT_COOKIE, "of another scenario")
    assert client.get("/", headers=HTML).text.count('class="job"') == 8


def test_a_stream_of_the_page_says_that_a_replay_stands_still(client: httpx.Client) -> None:
    answer = client.get("/live/jobs", headers=PART)
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "a replay stands still, so its pages have no stream of changes",
    )


def test_a_form_that_is_sent_anyway_is_refused(client: httpx.Client) -> None:
    for path in ("/sign-in", "/jobs/actions", "/keys", "/session/project"):
        answer = client.post(path, headers=PART, data={"action": "cancel"})
        assert (answer.status_code, answer.json()["detail"]) == (403, "this is a replay: nothing can be changed")


def test_an_address_with_a_moment_that_is_none_is_a_page_for_a_browser(client: httpx.Client) -> None:
    shown = client.get("/?at=abc", headers=HTML)
    assert shown.status_code == 422 and shown.headers["content-type"].startswith("text/html")
    assert "no moment" in shown.text and 'href="/"' in shown.text and "set-cookie" not in shown.headers
    assert "default-src" in shown.headers["content-security-policy"]
    for headers in (PART, {}):
        assert client.get("/?at=abc", headers=headers).headers["content-type"] == "application/problem+json"
