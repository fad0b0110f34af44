"""From photos to a result on a real `gangline up`: its own page, its own nodes, and one of them dies half-way."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import NewPerson
from tests.browser.real.up import NODES, Up, an_up
from tests.conftest import SUBJECT
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)
TRAINS_MS = 300_000
"""No answer of the page, but of a node that loads its libraries and trains on cores that others use too."""
STEPS, EVERY = 300, 150
PROMPTS = ("sks cat face, crying", "sks cat face, laughing")
TABS_MAX = 200
LORA = "pytorch_lora_weights.safetensors"
SMALL = """
rank = 4
batch_size = 1
resolution = 64
sample_steps = 2
sample_seeds = [1]
checkpoint_every_steps = 30
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with an_up(tmp_path_factory.mktemp("up")) as found:
        yield found


def test_photos_become_a_lora_though_a_node_is_killed(person: NewPerson, cluster: Up) -> None:
    page = person(key=None).tab().page
    page.goto(cluster.link)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="New job").first.click()
    job = start_on_photos(page)
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
    expect(page.locator("#job-head .verdict")).to_contain_text("one interruption cost")
    expect(figure(page, "Step")).to_have_text(f"{STEPS}/{STEPS}")
    assert page.evaluate("window.untouched"), "the page was never loaded again"

    (kept,) = (each for each in cluster.box.client.artifacts.list(job) if each.path == LORA)
    with page.expect_download() as downloading:
        page.locator("#job-files").get_by_role("link", name=LORA, exact=True).click()
    assert hashlib.sha256(downloading.value.path().read_bytes()).hexdigest() == kept.sha256

    page.goto(f"{cluster.url}/new?from={job}")
    expect(planned(page, "Time")).to_contain_text("measured")
    price = dollars(planned(page, "Cost"))
    page.locator("#s-steps").fill(str(10 * STEPS))
    until(lambda: dollars(planned(page, "Cost")) > 2 * price)


@pytest.mark.nightly
def test_pictures_of_a_lora_are_compared_and_a_winner_is_chosen(person: NewPerson, cluster: Up) -> None:
    page = person(key=cluster.key).tab().open("/new").page
    start_on_photos(page, PROMPTS)
    expect(page.locator("#job-head .state")).to_have_text("succeeded", timeout=TRAINS_MS)
    page.get_by_role("link", name="by prompt and step").click()
    compare_pictures(page)


@pytest.mark.nightly
def test_a_budget_that_is_exceeded_is_said_with_what_helps_and_raised(person: NewPerson, cluster: Up) -> None:
    until(lambda: any(node.state == "ready" for node in cluster.box.client.nodes.list()))
    page = person(key=cluster.key).tab().open("/cost").page
    set_budget(page, "0.01")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_role("link", name="New job").first.click()
    expect(page.locator("#plan")).to_contain_text("Add photos")
    drop(page, SUBJECT)
    fill_in(page)
    expect(page.locator("#plan")).to_contain_text("the budget of default, $0.01, does not allow it")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/jobs/*")
    watched = page.url
    expect(page.locator("#job-head .verdict")).to_contain_text("the budget of default, $0.01, does not allow it")
    page.get_by_role("link", name="Queue", exact=True).click()
    expect(page.locator("#queue-groups")).to_contain_text("does not allow it")
    page.get_by_role("link", name="Change the budget").click()
    set_budget(page, "10")
    page.goto(watched)
    expect(page.locator("#job-head .verdict")).not_to_contain_text("budget", timeout=TRAINS_MS)
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#job-head .state")).to_have_text("canceled")


def set_budget(page: Page, usd: str) -> None:
    budget = page.locator("#budget-default")
    budget.get_by_text("Change", exact=True).click()
    budget.get_by_label("Budget in $").fill(usd)
    budget.get_by_role("button", name="Set").click()
    expect(budget.locator(".budget-head")).to_contain_text(f"${float(usd):.2f}")


@pytest.mark.nightly
def test_a_job_is_submitted_watched_and_canceled_with_the_keyboard_alone(person: NewPerson, cluster: Up) -> None:
    page = person(key=cluster.key).tab().open().page
    press = page.keyboard.press
    tab_to(page, page.get_by_role("link", name="New job").first)
    press("Enter")
    expect(page.locator("#plan")).to_contain_text("Add photos")
    page.wait_for_function("document.readyState === 'complete'")
    tab_to(page, page.get_by_role("button", name="Choose photos"))
    with page.expect_file_chooser() as choosing:
        press("Enter")
    choosing.value.set_files(sorted(SUBJECT.glob("*.png")))
    expect(page.locator("#photos [data-summary]")).to_contain_text("ready", timeout=TRAINS_MS)
    tab_to(page, page.get_by_label("Prompt", exact=True))
    page.keyboard.type("sks cat face, fluent emoji")
    tab_to(page, page.get_by_label("Base", exact=True))
    page.keyboard.type("tiny")
    expect(page.get_by_label("Base", exact=True)).to_have_value("tiny-sdxl")
    tab_to(page, page.locator("#s-steps"))
    page.keyboard.type("100000")
    tab_to(page, page.locator("#s-resolution"))
    page.keyboard.type("64")
    tab_to(page, page.get_by_role("button", name="Start", exact=True))
    press("Enter")
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#job-head .state")).to_have_text("training", timeout=TRAINS_MS)
    expect(figure(page, "Step")).to_have_text(re.compile(r"[1-9]\d*/100000"), timeout=TRAINS_MS)
    tab_to(page, page.get_by_role("button", name="Cancel", exact=True))
    press("Enter")
    tab_to(page, page.get_by_role("button", name="Cancel the job"))
    press("Enter")
    expect(page.locator("#job-head .state")).to_have_text("canceled")


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(TABS_MAX):
        if wanted.evaluate("(one) => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{wanted} is not reached by {TABS_MAX} presses of Tab")


@pytest.mark.nightly
def test_a_page_outlives_its_server_and_the_nodes_come_back(person: NewPerson, cluster: Up) -> None:
    tab = person(key=cluster.key).tab()
    tab.asked += ["ERR_CONNECTION", "ERR_INCOMPLETE", "htmx:sse:error"]
    page = tab.open("/fleet").live().page
    ready = page.locator(".node[data-state=ready]")
    expect(ready).to_have_count(NODES, timeout=TRAINS_MS)
    before = ready.evaluate_all("each => each.map((node) => node.id)")
    page.evaluate("window.untouched = true")
    cluster.box.kill_server()
    expect(page.locator("#live")).to_have_attribute("data-state", "wait")
    cluster.box.start_server()
    tab.live()
    new = ready.and_(page.locator(":not(" + ", ".join(f"#{node}" for node in before) + ")"))
    expect(new).to_have_count(NODES, timeout=TRAINS_MS)
    assert page.evaluate("window.untouched")


def start_on_photos(page: Page, prompts: Sequence[str] = ()) -> str:
    """Fill in the form of a new job, see its plan, start it, and return its id."""
    expect(page.locator("#plan")).to_contain_text("Add photos")
    drop(page, SUBJECT)
    expect(page.locator("[data-photos] .photo")).to_have_count(len(list(SUBJECT.glob("*.png"))))
    expect(page.locator("#photos [data-summary]")).to_contain_text("ready", timeout=TRAINS_MS)
    fill_in(page, prompts)
    expect(planned(page, "Memory")).to_contain_text("runs on a CPU")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_url("**/jobs/*")
    return page.url.rsplit("/", 1)[1]


def compare_pictures(page: Page) -> None:
    """Look at the grid, at one picture with the arrow keys, at two with the slider, and choose a winner."""
    expect(page.locator("#grid .prow")).to_have_count(len(PROMPTS))
    expect(page.locator("#grid .step b")).to_have_text(["base", str(EVERY), "result"], timeout=TRAINS_MS)
    expect(page.locator("#grid .cell img")).to_have_count(3 * len(PROMPTS), timeout=TRAINS_MS)
    viewer = page.locator("#viewer")
    page.locator("#grid .cell a").first.click()
    expect(viewer.locator("#viewer-prompt")).to_have_text(PROMPTS[0])
    page.keyboard.press("ArrowRight")
    expect(viewer.locator("#viewer-prompt")).to_have_text(PROMPTS[1])
    page.keyboard.press("ArrowDown")
    expect(viewer.locator("#viewer-place")).to_contain_text(f"step {EVERY}")
    page.keyboard.press("ArrowDown")
    expect(viewer.locator("#viewer-place")).to_contain_text(f"the result, step {STEPS}")
    viewer.get_by_label("Compare with", exact=True).select_option("step")
    slider = viewer.get_by_role("slider")
    expect(viewer.locator("figcaption")).to_have_text([f"step {EVERY}", f"the result, step {STEPS}"])
    slider.focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(slider).to_have_attribute("aria-valuenow", "52")
    until(lambda: all(viewer.locator(".pane img").evaluate_all("each => each.map((one) => one.naturalWidth)")))
    viewer.get_by_role("button", name="Choose step").click()
    expect(page.locator("#toasts")).to_contain_text(f"Step {STEPS} is the winner")
    expect(viewer.locator("#viewer-place")).to_contain_text("winner")
    page.keyboard.press("Escape")
    expect(page.locator("#grid .step[data-winner] b")).to_have_text("result")


def drop(page: Page, folder: Path) -> None:
    """Drop a folder on the page as the operating system does."""
    devtools = page.context.new_cdp_session(page)
    carried = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for event in ("dragEnter", "dragOver", "drop"):
        devtools.send("Input.dispatchDragEvent", {"type": event, "x": 300, "y": 300, "data": carried})
        if event == "dragOver":
            expect(page.get_by_text("Drop the photos anywhere")).to_be_visible()
    expect(page.get_by_text("Drop the photos anywhere")).to_be_hidden()


def fill_in(page: Page, prompts: Sequence[str] = ()) -> None:
    """Say what is trained how: by a recipe what a form has in its folds, and by typing what it begins with."""
    page.get_by_text("Several jobs, name, recipe").click()
    page.get_by_label("Paste a recipe or a spec").fill(SMALL)
    page.get_by_role("button", name="Fill in the form").click()
    expect(page.get_by_label("Resolution", exact=False).first).to_have_value("64")
    page.get_by_label("Prompt", exact=True).fill("sks cat face, fluent emoji")
    page.get_by_label("Base", exact=True).select_option("tiny-sdxl")
    page.locator("#s-steps").fill(str(STEPS))
    if prompts:
        page.locator("#s-sample_prompts").fill("\n".join(prompts))
        folds = page.locator("details:not([open]):has(#s-sample_every_steps) > summary")
        while folds.count():
            folds.first.click()
        page.locator("#s-sample_every_steps").fill(str(EVERY))


def planned(page: Page, name: str) -> Locator:
    """What the plan says beside the form."""
    return page.locator("#plan .figures > div", has=page.get_by_text(name, exact=True)).locator("dd")


def dollars(shown: Locator) -> float:
    found = re.search(r"\$([\d.]+)", shown.inner_text())
    return float(found[1]) if found else 0.0


def figure(page: Page, name: str) -> Locator:
    return page.locator("#job-progress .figures > div", has=page.get_by_text(name, exact=True)).locator("dd")
