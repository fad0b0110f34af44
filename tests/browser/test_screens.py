"""What holds for every screen: people with assistive technology can use it, at every width and in both themes, and no text becomes code.

A screen is visited once, and all of this is judged in one visit: it takes longest to load a screen and to wait for its stream.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, TimeoutError, expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import Person, Tab, somebody
from tests.browser.conftest import one_cluster as cluster
from tests.browser.hostile import OTHERS, HostileIds, fill, hostile, places, short, text_of
from tests.browser.screens import REPLAYED, SCREENS, Screen
from tests.docs import page_servers

__all__ = ["cluster"]  # a fixture
AXE = (Path(__file__).parent / "vendor/axe-4.14.1.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDTHS = (360, 768, 1440, 2560)
STOPS_MAX = 120
"""Stops of the tab key: what comes later on a screen are more rows of the same."""
BATCH = 20


@pytest.fixture(scope="module")
def ids(cluster: Cluster) -> HostileIds:
    return fill(cluster)


@pytest.fixture(scope="module")
def operator(browser: Browser, cluster: Cluster) -> Person:
    return somebody(browser, cluster.url).sign_in()


@pytest.fixture(scope="module")
def stranger(browser: Browser, cluster: Cluster) -> Person:
    return somebody(browser, cluster.url)


def screens() -> list[object]:
    marks = {True: [pytest.mark.nightly], False: []}
    return [pytest.param(name, marks=marks[screen.nightly]) for name, screen in SCREENS.items()]


def opened(person: Person, screen: Screen, ids: dict[str, str]) -> Tab:
    """The screen as it is once its stream is open, and what it asks for is there."""
    tab = person.tab()
    if screen.refused:
        tab.asked += ["status of 4", "status 4"]
    tab.open(screen.address.format(**ids))
    if tab.page.locator("[hx-sse\\:connect]").count():
        tab.live()
    if screen.then:
        screen.then(tab.page)
    if screen.ready:
        expect(tab.page.locator(screen.ready).first).to_be_visible()
    return tab


@pytest.mark.parametrize("name", screens())
def test_a_screen_serves_everybody_and_runs_nothing_that_people_wrote(
    operator: Person, stranger: Person, ids: HostileIds, name: str
) -> None:
    screen = SCREENS[name]
    judge(opened(operator if screen.signed_in else stranger, screen, ids.of_addresses()), screen)


@pytest.mark.parametrize("name", REPLAYED)
def test_a_screen_of_a_replay_does_so_too(browser: Browser, replay: tuple[str, dict[str, str]], name: str) -> None:
    url, ids = replay
    person = somebody(browser, url)
    judge(opened(person, REPLAYED[name], ids), REPLAYED[name])
    person.context.close()


@pytest.fixture(scope="module")
def replay() -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a replay whose scenario has hostile texts, and what stands for the names in addresses."""
    with page_servers.replay(SCENARIO) as url:
        job = httpx.get(f"{url}/v1/jobs").json()["jobs"][0]["id"]
        yield url, {"job": job}


SCENARIO = f"""
title = '''{hostile("Scenario.title")}'''
[fleet]
nodes_max = 1
[[machines]]
count = 1
gpu = '''{hostile("Scenario.gpu")}'''
[[jobs]]
count = 2
steps = 100
sample_every_steps = 50
"""


def judge(tab: Tab, screen: Screen) -> None:
    """Judge all of it, in an order in which what is done for one judgement disturbs no other."""
    page = tab.page
    texts = shown_texts(page)
    assert [place for place in screen.shows.split() if plain(text_of(place)) not in texts] == []
    assert [place for place in EVERY if is_altered(place, texts)] == []
    assert judged(page) == []
    page.emulate_media(color_scheme="dark")
    assert judged(page, ["color-contrast"]) == []
    walk(page)
    assert {width: wide for width in WIDTHS if (wide := width_of(page, width)) > width} == {}
    assert harmless(page)
    page.close()
    assert tab.found_wrong() == []


# Hostile texts

EVERY = [*places(), *OTHERS]
TEXTS = """
() => {
  const texts = [document.documentElement.textContent];
  for (const each of document.querySelectorAll("*")) {
    texts.push(each.value ?? "", ...[...each.attributes].filter(({ name }) => !OF_ADDRESSES.includes(name)).map(({ value }) => value));
  }
  return texts.join("\\n");
}
""".replace("OF_ADDRESSES", json.dumps(["href", "src", "action", "hx-get", "hx-post", "hx-sse:connect"]))


def shown_texts(page: Page) -> str:
    """Return all that the screen says, also where it is folded, in names and in fields. Addresses are encoded, and are no texts."""
    return plain(page.evaluate(TEXTS))


def plain(text: str) -> str:
    """Return a text as it is in JSON, in which some of them are shown."""
    text = re.sub(r"\\u00(22|26|27|3[ce])", lambda found: chr(int(found[1], 16)), text)
    return text.replace('\\"', '"')


def is_altered(place: str, texts: str) -> bool:
    """Return whether a text is shown in another form than the one in which somebody wrote it."""
    return f"({place})" in texts.replace(text_of(place), "")


def harmless(page: Page) -> bool:
    """Return whether nothing hostile has become an element or was run."""
    return page.evaluate(
        "window.hostile === undefined && !document.querySelector('[onerror], [onclick], [src$=hostile], [hx-get$=hostile]')"
    )


def test_what_comes_with_the_stream_is_text_too(operator: Person, cluster: Cluster) -> None:
    tab = operator.tab().open().live()
    spec = cluster.spec(prompt=hostile("LoraSpec.prompt"))
    labels = {"of": short("Submission.labels")}
    body = {"name": hostile("Submission.name"), "labels": labels, "spec": spec}
    job = cluster.service.ask("POST", "/v1/jobs", json=body).json()["summary"]["id"]
    held = cluster.begin(job, hostile("Join.name"))
    row = tab.page.locator(f"#{job}")
    expect(row.locator(".where")).to_have_text(hostile("Join.name"))
    expect(row.locator("b")).to_have_text(hostile("Submission.name"))
    expect(row.locator(".label")).to_have_text(f"of={short('Submission.labels')}")
    cluster.fail(held, hostile("Failed.because"))
    expect(row.locator(".why")).to_contain_text(hostile("Failed.because"))
    assert harmless(tab.page)
    tab.page.close()
    assert tab.found_wrong() == []


# What is broken of the rules of accessibility


def judged(page: Page, rules: list[str] = RULES) -> list[tuple[str, list[str]]]:
    """Return the rules that axe-core finds broken, each with where: in names, roles, contrast, order."""
    if not page.evaluate("window.axe !== undefined"):
        page.evaluate(AXE)
    asked = {"runOnly": rules, "resultTypes": ["violations"]}
    found = page.evaluate("async (asked) => (await axe.run(document, asked)).violations", asked)
    return [(each["id"], [f"{node['html']} {node['failureSummary']}" for node in each["nodes"]]) for each in found]


def test_the_judge_finds_what_is_wrong(operator: Person) -> None:
    page = operator.tab().open().live().page
    page.evaluate("document.getElementById('search').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('search').removeAttribute('placeholder')")
    page.evaluate("document.querySelector('h1').style.color = '#bbb'")
    assert [rule for rule, _ in judged(page)] == ["color-contrast", "label"]
    page.close()


# Widths


def width_of(page: Page, width: int) -> int:
    """Return how wide the screen is in a window of this width, once charts have followed."""
    page.set_viewport_size({"width": width, "height": 900})
    with suppress(TimeoutError):
        page.wait_for_function(FITS, timeout=FITS_MS)
    return page.evaluate("document.documentElement.scrollWidth")


FITS, FITS_MS = "document.documentElement.scrollWidth <= innerWidth", 5_000


# The keyboard


def walk(page: Page) -> None:
    """Press the tab key until it has been everywhere: each stop is seen, and nothing that one can use is left out."""
    page.evaluate(FOLLOW)
    reachable = min(page.evaluate(REACHABLE), STOPS_MAX)
    been, before = list[list[str]](), -1
    while before < len(been) < STOPS_MAX:
        before = len(been)
        for _ in range(BATCH):
            page.keyboard.press("Tab")
        been = page.evaluate("window.been")
    assert [where for where, seen in been if not seen] == []
    assert len(been) >= reachable, [where for where, _ in been]


FOLLOW = """
() => {
  const seen = new Set();
  window.been = [];
  document.addEventListener("focusin", ({ target }) => {
    if (seen.has(target)) return;
    seen.add(target);
    const { outlineStyle, outlineWidth } = getComputedStyle(target), { width } = target.getBoundingClientRect();
    window.been.push([target.outerHTML.slice(0, 80), outlineStyle !== "none" && parseFloat(outlineWidth) > 0 && width > 0]);
  });
}
"""
REACHABLE = """
[...(document.querySelector("dialog[open]") ?? document)
  .querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((each) => !each.disabled && each.type !== "hidden" && each.tabIndex >= 0)
  .filter((each) => each.checkVisibility({ visibilityProperty: true })).length
"""
