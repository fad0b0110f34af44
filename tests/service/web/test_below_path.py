"""A server whose address has a path: what its page and its answers lead to lies below that path."""

import asyncio
import re
from dataclasses import replace

import pytest
from starlette.types import Message, Receive, Scope, Send

from gangline.api.answers.below_path import BelowPath, path_of_address
from gangline.api.app import over_another
from gangline.core.errors import BadInput
from gangline.core.files import absolute_url
from gangline.web.frame.assets import asset_address
from gangline.web.page import refuse_path_of_a_screen
from tests.service.conftest import OPERATOR, Service
from tests.service.web.conftest import Browser

PATH = "/gangline"
AT = f"https://example.org{PATH}"
ADDRESS = re.compile(r'\s(?:href|src|action|hx-get|hx-post|hx-sse:connect)="(/[^"]*)"')
SCREENS = ("/", "/experiments", "/queue", "/fleet", "/cost", "/notices", "/keys", "/new")


@pytest.fixture
def below(page: Service) -> Service:
    """The same service under an address with a path."""
    page.deployment = replace(page.deployment, url=AT)
    page.http.app = over_another(page.app, page.deployment)  # type: ignore[assignment]
    page.http._transport.app = page.http.app  # type: ignore[attr-defined]
    return page


@pytest.fixture
def browser(below: Service) -> Browser:
    found = Browser(below)
    assert found.sign_in(OPERATOR).headers["HX-Redirect"] == f"{PATH}/"
    return found


def test_every_address_of_every_screen_lies_below_the_path(below: Service, browser: Browser) -> None:
    job = below.submit()
    for screen in (*SCREENS, f"/jobs/{job}", f"/jobs/{job}/pictures", f"/jobs/{job}/diff"):
        answer = browser.get(screen)
        assert answer.status_code == 200, screen
        found = ADDRESS.findall(answer.text)
        assert found
        assert [each for each in found if not each.startswith(f"{PATH}/")] == []
        assert len(answer.content) == int(answer.headers["content-length"])


def test_it_makes_no_difference_whether_the_proxy_removes_the_path(below: Service, browser: Browser) -> None:
    assert browser.get("/fleet").text.replace(PATH, "") == browser.get(f"{PATH}/fleet").text.replace(PATH, "")
    assert browser.get(PATH).status_code == browser.get(f"{PATH}/").status_code == 200
    assert browser.get(f"{PATH}{asset_address('page.js')}").status_code == 200
    assert browser.get("/ganglines").status_code == 404
    key = {"Authorization": f"Bearer {OPERATOR}"}
    assert below.http.get(f"{PATH}/v1/jobs", headers=key).json() == below.http.get("/v1/jobs", headers=key).json()


def test_redirects_and_the_cookie_lie_below_the_path(below: Service) -> None:
    stranger = Browser(below)
    assert stranger.get("/queue?of=all").headers["Location"] == f"{PATH}/sign-in?next=%2Fqueue%3Fof%3Dall"
    answer = stranger.post("/sign-in", key=OPERATOR, next="/queue?of=all")
    assert answer.headers["HX-Redirect"] == f"{PATH}/queue?of=all"
    assert f"Path={PATH}/;" in answer.headers["Set-Cookie"]


def test_the_document_of_the_api_says_where_its_paths_are(below: Service) -> None:
    assert f"'{PATH}/openapi.json'" in below.http.get("/docs").text
    assert below.http.get(f"{PATH}/openapi.json").json()["servers"] == [{"url": PATH}]


def test_what_a_user_wrote_is_no_address(below: Service, browser: Browser) -> None:
    job = below.submit(prompt="sks dog href=\"/evil\" src='/evil'")
    shown = browser.get(f"/jobs/{job}").text
    assert "/evil" in shown
    assert f"{PATH}/evil" not in shown


@pytest.mark.parametrize("path", ["/v1/facts/stream", "/live/jobs"])
def test_the_head_of_a_stream_is_sent_before_there_is_anything_in_it(path: str) -> None:
    sent = list[str]()

    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["path"] == path
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        assert sent == ["http.response.start"]
        await send({"type": "http.response.body", "body": b'data: <a href="/jobs">\n\n', "more_body": True})

    async def nothing() -> Message:
        raise AssertionError("a stream has no body to read")

    async def collect(message: Message) -> None:
        sent.append(message.get("body", b"").decode() or message["type"])

    scope = {"type": "http", "path": f"{PATH}{path}", "raw_path": f"{PATH}{path}".encode(), "headers": []}
    asyncio.run(BelowPath(silent, PATH)(scope, nothing, collect))
    below = "" if path.startswith("/v1") else PATH
    assert sent[1] == f'data: <a href="{below}/jobs">\n\n'


def test_json_names_addresses_without_the_path_and_clients_put_the_servers_before_them(below: Service) -> None:
    assert absolute_url(f"{AT}/", "/v1/objects/x?sig=1") == f"{AT}/v1/objects/x?sig=1"
    assert absolute_url(AT, "https://bucket.example.org/x") == "https://bucket.example.org/x"


@pytest.mark.parametrize("path", ["/jobs", "/v1/gangline", "/assets", "/metrics/gangline"])
def test_a_path_that_is_one_of_the_servers_own_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="the server's url cannot have the path"):
        refuse_path_of_a_screen(path_of_address(f"https://example.org{path}/"))


@pytest.mark.parametrize(
    "address", ["https://example.org", "https://example.org/", AT, "https://example.org/tools/gangline/"]
)
def test_any_other_path_is_not(address: str) -> None:
    refuse_path_of_a_screen(path_of_address(address))
