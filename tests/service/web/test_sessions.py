"""Sign-in to the page: a session is its key's, no other site uses it, and it ends with the key."""

import json
import re
from collections.abc import Callable
from html import unescape
from urllib.parse import urlencode

import httpx
import pytest

from gangline.api.sessions.cookie import csrf_token
from gangline.service.access.access import lost_credentials, recognize
from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.experiments.at_work import PATH, body
from tests.service.web.conftest import Browser


def test_the_page_asks_for_a_key_and_comes_back_to_the_screen_that_was_asked_for(page: Service) -> None:
    browser = Browser(page)
    sent = browser.get("/?state=running")
    assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?next=%2F%3Fstate%3Drunning")
    form = browser.get(sent.headers["location"])
    assert 'name="next" value="/?state=running"' in form.text
    answer = browser.sign_in(OPERATOR, next="/?state=running")
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/?state=running")
    assert browser.get("/").status_code == 200


def test_no_script_reads_the_cookie_and_no_other_site_sends_it_with_a_form(page: Service) -> None:
    cookie = Browser(page).sign_in(OPERATOR).headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Path=/" in cookie
    assert "Secure" not in cookie  # over plain http, which this operator allows


@pytest.mark.parametrize(
    "to", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", "javascript:x", "//[", ""]
)
def test_no_link_leads_through_the_sign_in_to_another_site(page: Service, to: str) -> None:
    assert Browser(page).sign_in(OPERATOR, next=to).headers["hx-redirect"] == "/"
    assert 'name="next" value="/"' in Browser(page).get(f"/sign-in?{urlencode({'next': to})}").text


@pytest.mark.parametrize(("key", "status"), [("", 401), ("gl_operator_wrong", 401), (JOIN, 403)])
def test_who_has_no_key_of_people_does_not_sign_in(page: Service, key: str, status: int) -> None:
    answer = Browser(page).sign_in(key)
    assert answer.status_code == status and "set-cookie" not in answer.headers and answer.json()["detail"]
    assert not key or "--token" not in answer.json()["hint"], "the browser does not send an empty key"


def test_a_form_of_another_site_signs_nobody_in(page: Service) -> None:
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://elsewhere.example"}, {"Origin": "http://["}):
        assert Browser(page, headers=headers).sign_in(OPERATOR).status_code == 403


def test_a_request_of_another_site_changes_nothing(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser, job = signed_in("member"), page.submit()
    assert browser.post("/jobs/actions", forged=True, job=job, action="cancel").status_code == 403
    api = page.http.post(f"/v1/jobs/{job}/cancel", headers={"Cookie": f"gangline={browser.session}"})
    assert api.status_code == 403 and page.state(job) == "queued"
    assert browser.post("/jobs/actions", job=job, action="cancel").status_code == 204
    assert page.state(job) == "canceled"


@pytest.mark.parametrize(
    "cookies",
    ['foo={"a":1}; %s', "no value; %s", "foo={; a b=1; %s", "%s; =; ;; \x7f=\xe9", "long=" + "x" * 9_000 + "; %s"],
)
def test_whatever_cookies_others_on_this_host_have_set_a_session_is_found(page: Service, cookies: str) -> None:
    browser = Browser(page)
    browser.sign_in(OPERATOR)
    cookie = cookies.replace("%s", f"gangline={browser.session}").encode("latin-1")
    assert page.http.get("/v1/jobs", headers={b"Cookie": cookie}).status_code == 200


def test_a_session_opens_the_api_as_its_key_does(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser, job = signed_in("viewer"), page.submit()
    cookie = {"Cookie": f"gangline={browser.session}"}
    assert page.http.get(f"/v1/jobs/{job}", headers=cookie).status_code == 200
    assert page.http.get("/v1/keys", headers=cookie).status_code == 403
    forged = {"X-CSRF-Token": csrf_token(browser.session)}
    assert page.http.post(f"/v1/jobs/{job}/cancel", headers=cookie | forged).status_code == 403  # a viewer's


def test_a_session_ends_with_its_key_with_sign_out_and_with_time(page: Service) -> None:
    made = page.make_key("viewer")
    revoked, left, old = Browser(page), Browser(page), Browser(page)
    revoked.sign_in(made["secret"])
    for browser in (left, old):
        browser.sign_in(OPERATOR)
    page.ask("DELETE", f"/v1/keys/{made['key']['id']}")
    assert revoked.part("/").status_code == 401
    assert left.post("/sign-out").headers["hx-redirect"] == "/sign-in"
    assert left.part("/").status_code == 401
    assert old.part("/").status_code == 200
    page.wait(31 * 86_400)
    assert old.part("/").status_code == 401
    assert old.get("/sign-in").status_code == 200  # its form, not a way round in a circle


def test_the_streams_of_a_session_end_with_it_and_with_its_key(page: Service) -> None:
    def proof(browser: Browser) -> str:
        return recognize(page.deployment, browser.session, "viewer", page.now_ms).proof

    def lost() -> set[str]:
        return lost_credentials(page.deployment, [*proofs.values(), made["key"]["id"]], page.now_ms)

    made = page.make_key("viewer")
    browsers = {name: Browser(page) for name in ("left", "stays", "revoked")}
    for name, browser in browsers.items():
        browser.sign_in(made["secret"] if name == "revoked" else OPERATOR)
    proofs = {name: proof(browser) for name, browser in browsers.items()}
    assert len({*proofs.values()}) == 3 and lost() == set()
    browsers["left"].post("/sign-out")
    assert lost() == {proofs["left"]}
    page.ask("DELETE", f"/v1/keys/{made['key']['id']}")
    assert lost() == {proofs["left"], proofs["revoked"], made["key"]["id"]}
    page.wait(31 * 86_400)
    assert proofs["stays"] in lost()


def test_the_store_has_no_session_that_could_be_used(page: Service) -> None:
    browser = Browser(page)
    browser.sign_in(OPERATOR)
    assert browser.session.startswith("gl_session_") and browser.session not in page.dump()


def test_an_operator_looks_at_one_project_after_another(page: Service, signed_in: Callable[[str], Browser]) -> None:
    page.add_project("other")
    page.submit(project="other", prompt="a cat of theirs")
    browser = signed_in("operator")
    assert "a cat of theirs" not in browser.get("/").text
    assert browser.post("/session/project", project="other", next="/").status_code == 204
    assert "a cat of theirs" in browser.get("/").text
    assert browser.post("/session/project", project="nowhere").status_code == 404
    assert signed_in("admin").post("/session/project", project="other").status_code == 403


def test_a_link_takes_an_operator_to_the_project_of_its_job_and_nobody_else(
    page: Service, signed_in: Callable[..., Browser]
) -> None:
    page.add_project("other")
    job = page.submit(project="other", prompt="a cat of theirs")
    made = page.ask("POST", PATH, page.key("member", "other"), json=body(page, vary={"rank": [4, 8]}))
    experiment = made.json()["id"]
    operator, admin = signed_in("operator"), signed_in("admin")
    of_another_site = operator.get(f"/jobs/{job}", **{"Sec-Fetch-Site": "cross-site"})
    assert of_another_site.status_code == 404 and f"{job} is of the project other" in of_another_site.text
    for address in (f"/jobs/{job}", f"/jobs/{job}/pictures", f"/experiments/{experiment}?sort=name"):
        operator.post("/session/project", project="default")
        moved = operator.get(address, **{"Sec-Fetch-Site": "same-origin"})
        assert (moved.status_code, moved.headers["location"]) == (303, address)
        assert operator.get(address).status_code == 200
    nothing = admin.get("/jobs/job-of-nobody", **{"Sec-Fetch-Site": "same-origin"})
    theirs = admin.get(f"/jobs/{job}", **{"Sec-Fetch-Site": "same-origin"})
    assert nothing.status_code == theirs.status_code == 404
    assert theirs.text.replace(job, "") == nothing.text.replace("job-of-nobody", "")
    assert operator.get("/jobs/job-of-nobody", **{"Sec-Fetch-Site": "same-origin"}).status_code == 404
    operator.post("/session/project", project="default")
    assert operator.part(f"/jobs/{job}").status_code == 404  # a script's request moves nobody


def sent_by(shown: httpx.Response) -> dict[str, str]:
    """Return the headers that an open page sends with whatever it asks."""
    return json.loads(unescape(re.findall(r"hx-headers:inherited='([^']*)'", shown.text)[0]))


@pytest.mark.parametrize("chosen", ["first", "default", ""])
def test_an_open_page_acts_on_the_project_that_it_names_whichever_its_session_looks_at_by_then(
    page: Service, signed_in: Callable[..., Browser], chosen: str
) -> None:
    for project in ("first", "other"):
        page.add_project(project)
    operator, project = signed_in("operator"), chosen or "default"
    job = page.submit(project=project)
    if chosen:
        operator.post("/session/project", project=chosen)
    shown = operator.get("/keys")
    title = re.findall(r'id="keys-title">(.*?)<', shown.text)[0]
    assert f"Add key of {project}" in shown.text and ("all projects" in title) == (not chosen)
    operator.headers = sent_by(shown)
    assert Browser(page, session=operator.session).post("/session/project", project="other").status_code == 204
    after = operator.post("/keys", name="new one", role="member").text
    assert f'id="keys-title">{title}<' in after and f"Add key of {project}" in after
    assert operator.post("/secrets", secret="HF_TOKEN", value="hf_abcdefgh").status_code == 200
    made = operator.post("/new", forged=False, **{"from": job, "count": "1", "prompt": "a new one"})
    found = page.look(f"SELECT project FROM job WHERE id = '{made.headers['HX-Redirect'].rsplit('/', 1)[-1]}'")
    (key,) = [each for each in page.ask("GET", "/v1/keys").json() if each["name"] == "new one"]
    assert found[0]["project"] == key["project"] == project
    for each, has in ((project, True), ("other", False)):
        assert ("HF_TOKEN" in page.ask("GET", "/v1/secrets", page.key("member", each)).text) == has
    assert f'aria-current="true">{project}</a>' in operator.get("/cost?of=project").text
    assert ('aria-current="true">all projects</a>' in operator.get("/cost").text) == (not chosen)
    assert operator.post("/session/project", project="first").status_code == 204
    assert "Add key of first" in Browser(page, session=operator.session).get("/keys").text


@pytest.mark.parametrize("role", ["viewer", "member", "admin"])
def test_the_page_of_a_key_of_one_project_names_that(
    page: Service, signed_in: Callable[..., Browser], role: str
) -> None:
    page.add_project("other")
    browser = signed_in(role, "other")
    browser.headers = sent_by(browser.get("/"))
    assert browser.headers["Gangline-Project"] == "other"
    for path in ("/", "/queue", "/cost", "/fleet", "/experiments", "/v1/jobs"):
        assert browser.part(path).status_code == 200, path


def test_a_page_over_plain_http_from_another_machine_takes_no_key(page: Service) -> None:
    page.app.state.page_over_http = False
    browser = Browser(page)
    assert browser.sign_in(OPERATOR).status_code == 403
    assert "others on the way could read your key" in browser.get("/sign-in").text
    browser.headers = {"Host": "127.0.0.1"}
    assert browser.sign_in(OPERATOR).status_code == 204


def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    answer = signed_in("viewer").get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'") and "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy and answer.headers["cache-control"] == "no-store"
    assert "<style" not in answer.text and " style=" not in answer.text and " on" not in answer.text.split("<body")[0]


@pytest.mark.parametrize("path", ["/pictures", "/nodes/x", "/jobs/job-1/nothing", "/sign-out", "/v1/nothing"])
def test_an_address_without_a_screen_is_a_page_for_a_browser_and_a_problem_for_a_program(
    page: Service, path: str
) -> None:
    shown = Browser(page).get(path)
    assert shown.status_code == 404 and shown.headers["content-type"].startswith("text/html")
    assert f"There is no screen at {path}" in shown.text and 'class="button" href="/' in shown.text
    assert "default-src" in shown.headers["content-security-policy"]
    for other in (Browser(page).part(path), page.http.get(path)):
        assert other.status_code in (404, 405) and other.headers["content-type"] == "application/problem+json"


def test_an_address_without_a_screen_is_shown_as_it_is_written(page: Service) -> None:
    shown = Browser(page).get("/<script>alert(1)</script>")
    assert shown.status_code == 404 and "<script>alert" not in shown.text and "&lt;script&gt;alert" in shown.text


def test_the_address_of_all_jobs_leads_to_their_list(page: Service, signed_in: Callable[[str], Browser]) -> None:
    for path, to in [("/jobs", "/"), ("/jobs?state=running", "/?state=running")]:
        sent = signed_in("viewer").get(path)
        assert (sent.status_code, sent.headers["location"]) == (303, to)
    assert Browser(page).get("/jobs").headers["location"] == "/sign-in?next=%2Fjobs"


@pytest.mark.parametrize(
    ("path", "back"),
    [("/fleet/none", "/fleet"), ("/nodes/x", "/fleet"), ("/experiments/none", "/experiments"), ("/jobs/none", "/")],
)
def test_what_is_not_there_leads_to_where_others_of_its_kind_are(
    page: Service, signed_in: Callable[[str], Browser], path: str, back: str
) -> None:
    shown = signed_in("viewer").get(path)
    assert shown.status_code == 404 and f'<a class="button" href="{back}">' in shown.text


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_nobody_is_told_to_do_what_they_may_not(page: Service, signed_in: Callable[[str], Browser], role: str) -> None:
    browser = signed_in(role)
    assert ("Add an address above" in browser.get("/notices").text) == (role == "member")
    assert ("Start one from" in browser.get("/experiments").text) == (role == "member")
