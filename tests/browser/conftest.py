"""A browser, and the cluster whose page it opens. A test fails on whatever the browser complains of, and on requests to elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import urlsplit

import pytest

from tests.browser.chromium import CHROMIUM, SWITCHES
from tests.browser.cluster import Cluster, a_cluster, stopped_scenario
from tests.service.conftest import OPERATOR

playwright = pytest.importorskip("playwright.sync_api")
ANSWER_MS = 30_000
playwright.expect.set_options(timeout=ANSWER_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        lacking = pytest.mark.skip(
            reason="the page's tests need Chromium (the package chromium-headless-shell), which is not installed"
        )
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(lacking)


class Site(Protocol):
    """What serves the page: a simulated cluster, or a real `gangline up`."""

    @property
    def url(self) -> str: ...


@dataclass
class Tab:
    """A page of the browser and what went wrong in it. `asked` are words of what a test brings about itself, such as a status."""

    page: "playwright.Page"
    url: str
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        on = self.page.on
        on("console", lambda said: self._note(f"console {said.type}: {said.text} {said.location.get('url', '')}"))
        on("pageerror", lambda error: self._note(f"script: {error}"))
        on("dialog", lambda dialog: (self._note(f"dialog: {dialog.message}"), dialog.dismiss()))
        on("request", self._request)
        on(
            "response",
            lambda answer: self._note(f"status {answer.status}: {answer.url}") if answer.status >= 400 else None,
        )

    def open(self, path: str = "/") -> "Tab":
        self.page.goto(self.url + path)
        return self

    def live(self) -> "Tab":
        """Wait until the stream is open."""
        playwright.expect(self.page.locator("#live")).to_have_attribute("data-state", "on")
        return self

    def found_wrong(self) -> list[str]:
        return [each for each in self.wrong if not any(word in each for word in self.asked)]

    def _request(self, request: "playwright.Request") -> None:
        at = urlsplit(request.url)
        if at.scheme not in ("data", "blob") and f"{at.scheme}://{at.netloc}" != self.url:
            self._note(f"foreign: {request.url}")

    def _note(self, what: str) -> None:
        self.wrong.append(what)


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The database of the stopped scenario, and its time."""
    path = tmp_path_factory.mktemp("scenario") / "db.sqlite"
    return path, stopped_scenario(path)


@pytest.fixture(scope="package")
def browser() -> Iterator["playwright.Browser"]:
    """Until these tests end: Playwright's loop runs in this thread, and tests that follow have loops of their own."""
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=CHROMIUM, args=list(SWITCHES))


@pytest.fixture
def cluster(scenario: tuple[Path, int], tmp_path: Path) -> Iterator[Cluster]:
    with a_cluster(tmp_path, *scenario) as found:
        yield found


@pytest.fixture(scope="module")
def one_cluster(scenario: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of a module that imports it as `cluster`: each of them has jobs of its own."""
    with a_cluster(tmp_path_factory.mktemp("cluster"), *scenario) as found:
        yield found


@dataclass
class Person:
    """Somebody who has signed in with a key, in a browser of their own."""

    context: "playwright.BrowserContext"
    url: str
    tabs: list[Tab] = field(default_factory=list)

    def tab(self) -> Tab:
        self.tabs.append(Tab(self.context.new_page(), self.url))
        return self.tabs[-1]

    def sign_in(self, key: str = OPERATOR) -> "Person":
        """Without the form, which has a test of its own."""
        answer = self.context.request.post(f"{self.url}/sign-in", form={"key": key, "stay": "1"})
        assert answer.ok
        return self


def reply(page: "playwright.Page", value: Literal["yes", "no"]) -> None:
    """Answer the question that the page asks before it does something."""
    page.locator(f"#confirm [value={value}]").click()


def somebody(browser: "playwright.Browser", url: str, **options: object) -> Person:
    """Return a person with a new browser, who has not signed in. `options` are those of Playwright's contexts."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
    context.set_default_timeout(ANSWER_MS)
    return Person(context, url)


NewPerson = Callable[..., Person]


@pytest.fixture
def person(browser: "playwright.Browser", cluster: Site) -> Iterator[NewPerson]:
    """Give a person a new browser, with options of Playwright's contexts. At the end, none of their tabs may have complained."""
    people = list[Person]()
    with ExitStack() as closing:

        def come(*, key: str | None = OPERATOR, **options: object) -> Person:
            people.append(somebody(browser, cluster.url, **options))
            closing.callback(people[-1].context.close)
            return people[-1].sign_in(key) if key else people[-1]

        yield come
        wrong = [each for somebody in people for tab in somebody.tabs for each in tab.found_wrong()]
    assert not wrong


@pytest.fixture
def tab(person: NewPerson) -> Tab:
    """An operator's."""
    return person().tab()


@pytest.fixture(scope="module")
def one_person(browser: "playwright.Browser", cluster: Cluster) -> Iterator[Person]:
    """An operator for all tests of a module that has one cluster."""
    operator = somebody(browser, cluster.url).sign_in()
    yield operator
    operator.context.close()


@pytest.fixture
def one_tab(one_person: Person) -> Iterator[Tab]:
    """A tab of theirs, which has in its browser's cache what the others have asked for."""
    found = one_person.tab()
    yield found
    found.page.close()
    assert not found.found_wrong()
