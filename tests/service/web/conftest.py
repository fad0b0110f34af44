"""The page of the service, and browsers that have signed in to it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from gangline.api.sessions.cookie import CSRF_HEADER, csrf_token
from gangline.core.server.limits import Limits
from gangline.web.new.tiny import TinyBase
from gangline.web.page import add_page
from tests.conftest import BASE
from tests.service.conftest import OPERATOR, Service

TINY = TinyBase(folder=BASE, licence="apache-2.0", recipe="resolution = 64\n")
HTML = {"Accept": "text/html,application/xhtml+xml"}


@dataclass
class Browser:
    """A browser with its cookie. It sends the CSRF token as the page's scripts do, unless a request is `forged`."""

    service: Service
    session: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def sign_in(self, key: str, **fields: str) -> httpx.Response:
        answer = self.post("/sign-in", key=key, **fields)
        self.session = answer.cookies.get("gangline", "")
        self.service.http.cookies.clear()  # the client's jar is everybody's
        return answer

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._ask("GET", path, HTML | headers)

    def part(self, path: str) -> httpx.Response:
        """As a script of the page asks."""
        return self._ask("GET", path, HTML | {"HX-Request": "true"})

    def post(self, path: str, *, forged: bool = False, **fields: Any) -> httpx.Response:
        token = {} if forged else {CSRF_HEADER: csrf_token(self.session)}
        return self._ask("POST", path, HTML | {"HX-Request": "true"} | token, data=fields)

    def _ask(self, method: str, path: str, headers: dict[str, str], **rest: Any) -> httpx.Response:
        cookie = {"Cookie": f"gangline={self.session}"} if self.session else {}
        return self.service.http.request(
            method, path, headers=self.headers | headers | cookie, follow_redirects=False, **rest
        )


@pytest.fixture
def page(service: Service) -> Service:
    add_page(service.app, service.deployment, Limits(), over_http=True, tiny=TINY)
    service.app.middleware_stack = None  # made when it was started; the page of a server is added before
    return service


@pytest.fixture
def signed_in(page: Service) -> Callable[[str], Browser]:
    """Sign in with a key of this role, of the default project."""

    def with_role(role: str, project: str = "default") -> Browser:
        browser = Browser(page)
        key = OPERATOR if role == "operator" else page.key(role, project)
        assert browser.sign_in(key).status_code == 204
        return browser

    return with_role
