"""Pictures as people look through them: with the keyboard, with the mouse and with their fingers."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import NewPerson, Tab
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.service.pictures.many import write_pictures

__all__ = ["cluster", "tab"]  # fixtures
PROMPTS = ("sks dog on a beach", "sks dog in snow")
STEPS = (0, 50, 100)


@pytest.fixture(scope="module")
def job(cluster: Cluster) -> str:
    """One with two prompts at three steps, of which the first is the base's; two have stored weights."""
    return with_pictures(cluster, "an album")


def with_pictures(cluster: Cluster, name: str) -> str:
    job = cluster.submit(name, sample_prompts=PROMPTS)
    held = cluster.begin(job, f"the node of {name}")
    for step in STEPS[1:]:
        cluster.step(held, step)
        cluster.save(held, step)
    write_pictures(cluster.service, job, prompts=len(PROMPTS), steps=STEPS)
    return job


def place(prompt: int = 0, step: int = 50) -> str:
    name = f"prompt-{prompt:02}"
    return f"samples/{name}-base-seed-1.png" if step == 0 else f"samples/step-{step:06}/{name}-seed-1.png"


def viewer(tab: Tab, job: str, **asked: str) -> Page:
    query = "&".join(f"{name}={value}" for name, value in ({"picture": place()} | asked).items())
    page = tab.open(f"/jobs/{job}/pictures?{query}").live().page
    expect(page.locator("#viewer")).to_be_visible()
    return page


def shows(page: Page, prompt: int, step: str) -> None:
    """Wait until the viewer shows this one."""
    expect(page.locator("#viewer-prompt")).to_have_text(PROMPTS[prompt])
    expect(page.locator("#viewer-place")).to_contain_text(f"{step} · seed 1")


def test_arrow_keys_lead_to_other_prompts_and_other_steps(tab: Tab, job: str) -> None:
    page = tab.open(f"/jobs/{job}/pictures").live().page
    page.locator("#grid a").first.focus()
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    for key, prompt, step in (
        ("", 0, "50"),
        ("ArrowRight", 1, "50"),
        ("ArrowDown", 1, "100"),
        ("ArrowDown", 1, "100"),  # the last one
        ("ArrowLeft", 0, "100"),
        ("ArrowUp", 0, "50"),
        ("ArrowUp", 0, "base"),
    ):
        if key:
            page.keyboard.press(key)
        shows(page, prompt, step)
    page.reload()
    shows(page, 0, "base")
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page.locator(f'#grid a[data-path="{place(0, 0)}"]')).to_be_focused()
    expect(page).not_to_have_url(re.compile("picture="))


@pytest.mark.nightly
def test_the_way_back_closes_the_viewer(tab: Tab, job: str) -> None:
    page = tab.open(f"/jobs/{job}/pictures").live().page
    page.locator("#grid a").nth(1).click()
    page.keyboard.press("ArrowRight")
    shows(page, 1, "50")
    page.go_back()
    expect(page.locator("#viewer")).to_be_hidden()
    expect(page).to_have_url(re.compile(f"/jobs/{job}/pictures$"))


@pytest.mark.nightly
def test_one_zooms_with_keys_and_with_the_mouse_and_drags_what_is_larger(tab: Tab, job: str) -> None:
    page = viewer(tab, job)
    now, stage = page.locator("#zoom-now"), page.locator("#stage")
    page.keyboard.press("+")
    expect(now).to_have_text("1.5 ×")
    page.keyboard.press("0")
    expect(now).to_have_text("Fit")
    stage.dblclick()
    expect(now).to_have_text("3.0 ×")
    before = transform(page)
    box = stage.bounding_box()
    assert box
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y + 20, steps=2)
    page.mouse.up()
    assert transform(page) != before
    stage.dblclick()
    expect(now).to_have_text("Fit")
    page.mouse.wheel(0, -300)
    expect(now).to_have_text("2.0 ×")


def transform(page: Page) -> str:
    return page.locator("[data-pane=b] img").evaluate("each => each.style.transform")


def test_two_steps_are_compared_under_a_slider(tab: Tab, job: str) -> None:
    page = viewer(tab, job)
    divider = page.get_by_role("slider", name="Between the two pictures")
    expect(divider).to_be_hidden()
    page.get_by_label("Compare with").select_option("base")
    expect(divider).to_have_attribute("aria-valuenow", "50")
    divider.focus()
    for key, value in (("ArrowRight", "52"), ("Home", "0"), ("End", "100"), ("ArrowLeft", "98")):
        page.keyboard.press(key)
        expect(divider).to_have_attribute("aria-valuenow", value)
    box, stage = divider.bounding_box(), page.locator("#stage").bounding_box()
    assert box and stage
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(stage["x"] + stage["width"] / 4, stage["y"] + 50, steps=3)
    page.mouse.up()
    expect(divider).to_have_attribute("aria-valuenow", "25")
    page.get_by_label("Shown as").select_option("side")
    expect(divider).to_be_hidden()
    page.reload()
    expect(page.locator("[data-pane=a] figcaption")).to_have_text("the base")
    expect(page.locator("[data-pane=b] figcaption")).to_have_text("step 50")


@pytest.mark.nightly
def test_a_picture_that_is_pinned_stays_beside_those_that_follow(tab: Tab, job: str) -> None:
    page = viewer(tab, job)
    page.get_by_label("Compare with").select_option("pin")
    page.locator("#stage").click()
    page.keyboard.press("ArrowDown")
    shows(page, 0, "100")
    expect(page.locator("[data-pane=a] figcaption")).to_have_text("step 50")


@pytest.mark.nightly
def test_another_job_is_compared_at_the_same_prompt(tab: Tab, cluster: Cluster, job: str) -> None:
    other = with_pictures(cluster, "another album")
    page = viewer(tab, job)
    page.get_by_label("Compare with").select_option("job")
    page.get_by_label("Job", exact=True).fill(other)
    page.get_by_role(
        "button", name="Compare", exact=True
    ).click()  # Enter may be taken by the browser's list of suggestions
    expect(page.locator("[data-pane=a] figcaption")).to_have_text("another album: step 50")
    expect(page).to_have_url(re.compile(f"with={other}"))


def test_the_step_that_is_chosen_is_marked_and_its_weights_are_kept(tab: Tab, cluster: Cluster, job: str) -> None:
    page = viewer(tab, job, picture=place(0, 100))
    page.get_by_role("button", name="Choose step").click()
    expect(page.locator("#viewer-place")).to_contain_text("winner")
    expect(page.locator('#steps [data-step="100"]')).to_have_attribute("data-winner", "")
    kept = {each["step"]: each["pinned"] for each in cluster.service.ask("GET", f"/v1/jobs/{job}/checkpoints").json()}
    assert kept == {50: False, 100: True}
    undo = page.get_by_role("button", name="Undo choice")
    assert undo.evaluate(IS_ON_TOP), "what the page says covers no button"
    undo.click()
    expect(page.locator("#viewer-place")).not_to_contain_text("winner")


IS_ON_TOP = """
(each) => {
  const { x, y, width, height } = each.getBoundingClientRect();
  return each.contains(document.elementFromPoint(x + width / 2, y + height / 2));
}
"""


@pytest.fixture
def finger(person: NewPerson, job: str) -> Iterator["Fingers"]:
    tab = person(viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True).tab()
    yield Fingers(viewer(tab, job))


class Fingers:
    """What Playwright has no method for: fingers that move on the stage, as shares of its size from its middle."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.session = page.context.new_cdp_session(page)

    def move(self, *fingers: tuple[tuple[float, float], tuple[float, float]]) -> None:
        """Move each from one place to another, in the same time."""
        self._send("touchStart", [begin for begin, _ in fingers])
        for share in (0.25, 0.5, 0.75, 1):
            between = [tuple(a + share * (b - a) for a, b in zip(*each, strict=True)) for each in fingers]
            self._send("touchMove", between)
        self._send("touchEnd", [])

    def _send(self, kind: str, places: Any) -> None:
        box = self.page.locator("#stage").bounding_box()
        assert box
        points = [
            {"id": number, "x": box["x"] + box["width"] * (0.5 + x), "y": box["y"] + box["height"] * (0.5 + y)}
            for number, (x, y) in enumerate(places)
        ]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@pytest.mark.nightly
def test_a_finger_swipes_to_other_pictures_and_two_zoom(finger: Fingers) -> None:
    page = finger.page
    for move, prompt, step in (
        (((0.3, 0), (-0.3, 0)), 1, "50"),
        (((0, 0.3), (0, -0.3)), 1, "100"),
        (((-0.3, 0), (0.3, 0)), 0, "100"),
        (((0, -0.3), (0, 0.3)), 0, "50"),
    ):
        finger.move(move)
        shows(page, prompt, step)
    finger.move(((-0.1, 0), (-0.3, 0)), ((0.1, 0), (0.3, 0)))
    expect(page.locator("#zoom-now")).to_have_text("3.0 ×")
    finger.move(((0.3, 0), (-0.3, 0)))  # moves the picture, and leads to no other
    shows(page, 0, "50")


@pytest.mark.nightly
def test_pictures_are_asked_for_until_the_job_has_ended(tab: Tab, cluster: Cluster) -> None:
    ending = with_pictures(cluster, "an album that ends")
    page = tab.open(f"/jobs/{ending}/pictures").live().page
    ask = page.get_by_role("button", name="Sample now")
    expect(ask).to_be_visible()
    cluster.service.ask("POST", f"/v1/jobs/{ending}/cancel")
    expect(ask).to_have_count(0)
