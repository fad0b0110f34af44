"""What holds for every screen: people with assistive technology can use it, at every width and in both themes, and no text becomes code."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.cluster import Cluster, a_cluster
from tests.browser.conftest import NewPerson, Tab
from tests.browser.screens import OPEN, REFUSED, SCREENS, address
from tests.service.conftest import OPERATOR

AXE = (Path(__file__).parent / "vendor/axe-4.14.1.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDTHS = (360, 768, 1440, 2560)
HOSTILE = '"\'><img src=/hostile onerror="window.hostile=1"><script>window.hostile=1</script>{{7*7}}<li hx-get=/hostile hx-trigger=load>'
HOSTILE_LABEL = "a<b onmouseover=hostile>"


@pytest.fixture(scope="module")
def cluster(scenario: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all: what these tests look at is the same."""
    with a_cluster(tmp_path_factory.mktemp("cluster"), *scenario) as found:
        yield found


@pytest.fixture(scope="module")
def hostile(cluster: Cluster) -> str:
    """A job of which each text that somebody can choose is hostile, and that has run and failed."""
    service = cluster.service
    key = service.key("member", name=HOSTILE[:60])
    answer = service.ask(
        "POST",
        "/v1/jobs",
        key,
        json={"name": HOSTILE[:100], "labels": {"hostile": HOSTILE_LABEL}, "spec": cluster.spec(prompt=HOSTILE)},
    )
    assert answer.status_code == 201, answer.text
    job = answer.json()["summary"]["id"]
    cluster.fail(cluster.begin(job, HOSTILE[:60]), HOSTILE)
    return job


def shown(screen: str, person: NewPerson, job: str, **options: object) -> Tab:
    """The screen as it is once its stream is open."""
    tab = person(key=None if screen in OPEN else OPERATOR, **options).tab()
    if screen in REFUSED:
        tab.asked.append("status of 4")
        tab.asked.append("status 4")
    tab.open(address(screen, job))
    if tab.page.locator("[hx-sse\\:connect]").count():
        tab.live()
    return tab


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_reader_finds_its_way_in_both_themes(person: NewPerson, hostile: str, screen: str) -> None:
    """As axe-core judges it: names, roles, contrast, order."""
    page = shown(screen, person, hostile).page
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert judged(page) == [], theme


def test_the_judge_finds_what_is_wrong(person: NewPerson, hostile: str) -> None:
    page = shown("jobs", person, hostile).page
    page.evaluate("document.getElementById('search').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('search').removeAttribute('placeholder')")
    assert [rule for rule, _ in judged(page)] == ["label"]


@pytest.mark.parametrize("screen", SCREENS)
def test_no_screen_is_wider_than_its_window(person: NewPerson, hostile: str, screen: str) -> None:
    page = shown(screen, person, hostile).page
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} of {width}"


@pytest.mark.parametrize("screen", SCREENS)
def test_what_people_write_is_shown_and_never_run(
    person: NewPerson, cluster: Cluster, hostile: str, screen: str
) -> None:
    tab = shown(screen, person, hostile)
    page = tab.page
    again = cluster.begin(hostile, HOSTILE[:50]) if screen == "jobs" else None
    if again is not None:
        expect(page.locator(f"#{hostile} .where")).to_have_text(HOSTILE[:50])  # came with the stream
        expect(page.locator(f"#{hostile} b")).to_have_text(HOSTILE[:100])
        expect(page.locator(f"#{hostile} .label")).to_have_text(f"hostile={HOSTILE_LABEL}")
    assert harmless(page)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_keyboard_reaches_all_and_shows_where_it_is(person: NewPerson, hostile: str, screen: str) -> None:
    page = shown(screen, person, hostile).page
    seen = 1 if page.evaluate(FOCUSED)[0] else 0
    for _ in range(200):
        page.keyboard.press("Tab")
        where, visible = page.evaluate(FOCUSED)
        if not where:
            break
        seen += 1
        assert visible, where
    reached = page.evaluate(REACHABLE)
    assert seen >= min(reached, 200), (seen, reached)


FOCUSED = """
(() => {
  const at = document.activeElement, seen = (window.seenByTheTest ??= new Set());
  if (!at || at === document.body || seen.has(at)) return ["", true];
  seen.add(at);
  const style = getComputedStyle(at), box = at.getBoundingClientRect();
  return [at.outerHTML.slice(0, 80), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 && box.width > 0];
})()
"""
REACHABLE = """
[...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter((each) =>
  !each.disabled && each.type !== "hidden" && each.tabIndex >= 0 && each.checkVisibility({ visibilityProperty: true })).length
"""


def judged(page: Page) -> list[tuple[str, list[str]]]:
    """Return the rules that axe-core finds broken, each with where."""
    if not page.evaluate("window.axe !== undefined"):
        page.evaluate(AXE)
    found = page.evaluate("(rules) => axe.run(document, { runOnly: rules })", RULES)["violations"]
    return [(each["id"], [f"{node['html']} {node['failureSummary']}" for node in each["nodes"]]) for each in found]


def harmless(page: Page) -> bool:
    """Whether nothing hostile has become an element or was run."""
    return page.evaluate(
        "window.hostile === undefined && !document.querySelector('[onerror], [src$=hostile], [hx-get$=hostile]')"
    )
