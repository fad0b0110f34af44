"""From photos to a result on a real `gangline up`: its own page, its own nodes, and one of them dies half-way."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import NewPerson
from tests.browser.up import Up, an_up
from tests.conftest import SUBJECT
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)
TRAINS_MS = 300_000
"""No answer of the page, but of a node that loads its libraries and trains on cores that others use too."""
STEPS, EVERY = 200, 100
PROMPTS = ("sks cat face, crying", "sks cat face, laughing")
SMALL = """
rank = 4
batch_size = 1
resolution = 64
sample_steps = 2
sample_seeds = [1]
checkpoint_every_steps = 20
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with an_up(tmp_path_factory.mktemp("up")) as found:
        yield found


def test_photos_become_a_lora_though_a_node_is_killed(person: NewPerson, cluster: Up, tmp_path: Path) -> None:
    page = person(key=None).tab().page
    page.goto(cluster.link)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="New job").first.click()
    expect(page.locator("#plan")).to_contain_text("Add photos")
    drop(page, SUBJECT)
    expect(page.locator("[data-photos] .photo")).to_have_count(len(list(SUBJECT.glob("*.png"))))
    expect(page.locator("#photos [data-summary]")).to_contain_text("ready", timeout=TRAINS_MS)
    fill_in(page)
    expect(planned(page, "Memory")).to_contain_text("runs on a CPU")
    page.get_by_role("button", name="Start", exact=True).click()

    page.wait_for_url("**/jobs/*")
    job = page.url.rsplit("/", 1)[1]
    page.evaluate("window.untouched = true")
    expect(page.locator("#job-head .state")).to_have_text("training", timeout=TRAINS_MS)
    expect(figure(page, "Loss")).to_have_text(re.compile(r"0\.\d+"))
    expect(figure(page, "Kept")).to_have_text(re.compile(r"[1-9]\d*"))
    (first,) = cluster.box.client.jobs.get(job).attempts
    cluster.kill_node(first.node)
    expect(page.locator("#job-attempts tbody tr")).to_have_count(2, timeout=TRAINS_MS)
    resumed, died = page.locator("#job-attempts tbody tr").all()
    expect(died).to_contain_text("interrupted")
    assert first.node_name is not None
    expect(died).to_contain_text(first.node_name)
    expect(resumed).not_to_contain_text(first.node_name)
    expect(figure(page, "Interrupted")).to_have_text("1 ×")
    expect(page.locator("#job-timeline")).to_contain_text("interrupted")
    expect(page.locator("#job-head .state")).to_have_text("succeeded", timeout=TRAINS_MS)
    expect(page.locator("#job-head .verdict")).to_contain_text("1 interruption")
    expect(figure(page, "Step")).to_have_text(f"{STEPS}/{STEPS}")
    assert page.evaluate("window.untouched"), "the page was never loaded again"

    page.get_by_role("link", name="by prompt and step").click()


def drop(page: Page, folder: Path) -> None:
    """Drop a folder on the page as the operating system does."""
    devtools = page.context.new_cdp_session(page)
    carried = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for event in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": event, "x": 300, "y": 300, "data": carried})
        if event == "dragOver":
            expect(page.get_by_text("Drop the photos anywhere")).to_be_visible()
    expect(page.get_by_text("Drop the photos anywhere")).to_be_hidden()


def fill_in(page: Page) -> None:
    """Say what is trained how: by a recipe what a form has in its folds, and by typing what it begins with."""
    page.get_by_text("Several jobs, name, recipe").click()
    page.get_by_label("Paste a recipe or a spec").fill(SMALL)
    page.get_by_role("button", name="Fill in the form").click()
    expect(page.get_by_label("Resolution", exact=False).first).to_have_value("64")
    page.get_by_label("Prompt", exact=True).fill("sks cat face, fluent emoji")
    page.get_by_label("Base", exact=True).select_option("tiny-sdxl")
    page.locator("#s-steps").fill(str(STEPS))
    page.locator("#s-sample_prompts").fill("\n".join(PROMPTS))
    page.locator("#s-sample_every_steps").fill(str(EVERY))


def planned(page: Page, name: str) -> Locator:
    """What the plan says beside the form."""
    return page.locator("#plan .figures > div", has=page.get_by_text(name, exact=True)).locator("dd")


def figure(page: Page, name: str) -> Locator:
    return page.locator("#job-progress .figures > div", has=page.get_by_text(name, exact=True)).locator("dd")
