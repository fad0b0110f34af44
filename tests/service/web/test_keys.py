"""Keys, join tokens, secrets and endpoints on the page: made, shown once, and revoked."""

from collections.abc import Callable
from html import unescape

from tests.service.conftest import Service
from tests.service.web.conftest import Browser

HOSTILE = "<script>alert(1)</script>\"'"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;"


def test_a_key_is_shown_once_and_works_until_it_is_revoked(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("admin")
    made = browser.post("/keys", name=HOSTILE, role="viewer", days="1")
    secret = made.text.split('<code id="new-key">')[1].split("<")[0]
    assert page.ask("GET", "/v1/jobs", secret).status_code == 200
    listed = browser.get("/keys").text
    assert secret not in listed and ESCAPED in listed and HOSTILE not in made.text + listed
    id = next(key["id"] for key in page.ask("GET", "/v1/keys").json() if key["name"] == HOSTILE)
    browser.post(f"/keys/{id}/revoke")
    assert page.ask("GET", "/v1/jobs", secret).status_code == 401
    assert browser.post("/keys", name="more", role="operator").status_code == 403


def test_an_operator_who_looks_at_one_project_sees_the_keys_of_operators_too(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    operator = signed_in("operator")
    operator.post("/session/project", project="default")
    shown = unescape(operator.get("/keys").text)
    assert "Keys of default, and operators'" in shown and 'class="label">yours' in shown
    assert "No other operator's key is valid" in shown
    made = operator.post("/keys", name="second", role="operator")
    assert "No other operator's key is valid" not in made.text
    id = next(key["id"] for key in page.ask("GET", "/v1/keys").json() if key["name"] == "second")
    assert "revoked" in operator.post(f"/keys/{id}/revoke").text


def test_who_revokes_the_key_of_the_session_is_signed_out(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("admin")
    own = next(key["id"] for key in page.ask("GET", "/v1/keys").json() if key["role"] == "admin")
    assert "the key that you are signed in with" in browser.get("/keys").text
    answer = browser.post(f"/keys/{own}/revoke")
    assert answer.headers["HX-Redirect"] == "/sign-in" and "revoked" in answer.headers["HX-Trigger"]
    assert browser.get("/keys").status_code == 303


def test_a_wrong_field_is_named_and_nothing_is_made(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("admin")
    for fields in ({"name": "", "role": "viewer"}, {"name": "a", "role": "king"}, {"name": "a", "days": "x"}):
        answer = browser.post("/keys", **fields)
        assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    assert "&lt;" not in browser.get("/keys").text


def test_join_tokens_are_for_operators_and_secrets_for_members(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    operator, member = signed_in("operator"), signed_in("member")
    made = operator.post("/join-tokens", name="home", nodes_max="2")
    token = made.text.split('<code id="new-token">')[1].split("<")[0]
    assert page.join_with(token).status_code == 201
    assert "Join tokens" not in signed_in("admin").get("/keys").text
    kept = member.post("/secrets", secret="HF_TOKEN", value="hf_abcdefgh")
    assert "HF_TOKEN" in kept.text and "hf_abcdefgh" not in kept.text
    assert "HF_TOKEN" not in member.post("/secrets/HF_TOKEN/remove").text


def test_an_endpoint_is_added_changed_disabled_and_removed(page: Service, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("member")
    made = browser.post("/notices", channel="webhook", address="https://hooks.example/x", name="<script>a&b")
    assert made.status_code == 200 and 'id="new-secret"' in made.text and "is added" in made.headers["HX-Trigger"]
    assert "&lt;script&gt;a&amp;b" in made.text and "<script>a" not in made.text
    id = page.ask("GET", "/v1/notices/endpoints").json()[0]["id"]
    browser.post(f"/notices/{id}/change", kind=["failed", "succeeded"], quiet="22:00-07:00 Europe/Berlin", minutes="5")
    found = page.ask("GET", f"/v1/notices/endpoints/{id}").json()
    assert (found["kinds"], found["quiet"], found["interval_s"]) == (
        ["succeeded", "failed"],
        "22:00-07:00 Europe/Berlin",
        300,
    )
    assert 'name="states" value="kinds"' in browser.get("/notices").text
    none = browser.post(f"/notices/{id}/change", states="kinds", quiet="", minutes="10")
    assert none.status_code == 422 and "one kind of news at least" in none.json()["detail"]
    assert page.ask("GET", f"/v1/notices/endpoints/{id}").json() == found, "nothing of it is changed"
    browser.post(f"/notices/{id}/change", state="disabled")
    assert "Enable" in browser.get("/notices").text
    assert browser.get(f"/notices/{id}/log").status_code == 200
    assert browser.post(f"/notices/{id}/remove").status_code == 200
    assert page.ask("GET", "/v1/notices/endpoints").json() == []
