"""What is done on the page leaves the focus where it is of use, asks first with words that say what goes, and says what came of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gangline.core.runs.contract import picture_name
from gangline.web.new.tiny import TinyBase
from gangline.web.queue import routes as queue_routes
from tests.browser.cluster import Cluster
from tests.browser.conftest import NewPerson, Tab
from tests.conftest import BASE
from tests.service.datasets.conftest import InspectorHere, picture
from tests.service.pictures.conftest import Album

PROMPTS = ("sks dog", "sks dog on the beach", "sks dog asleep")
SEEDS = (1, 2)


def press(page: Page, selector: str, key: str = "Enter") -> None:
    """Press a button with the keyboard alone."""
    page.locator(selector).focus()
    page.keyboard.press(key)


def agree(page: Page, answer: str) -> None:
    """Answer a question with its other button: the first one does nothing."""
    expect(page.locator("#confirm [value=no]")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name=answer, exact=True)).to_be_focused()
    page.keyboard.press("Enter")


@pytest.mark.nightly
def test_a_button_of_a_job_keeps_the_focus_or_gives_it_to_the_one_beside_it(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("watched")
    page = tab.open(f"/jobs/{job}").live().page
    press(page, "#action-hold")
    expect(page.locator("#action-hold")).to_have_text("Resume")
    expect(page.locator("#action-hold")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#action-hold")).to_have_text("Pause")
    expect(page.locator("#action-hold")).to_be_focused()
    press(page, "#action-cancel")
    agree(page, "Cancel the job")
    expect(page.locator("#job-head")).to_have_attribute("data-state", "canceled")
    expect(page.locator("#job-actions button:focus")).to_have_count(1)


@pytest.mark.nightly
def test_the_focus_of_a_list_goes_back_to_its_rows_when_the_bar_closes(tab: Tab, cluster: Cluster) -> None:
    for number in range(3):
        cluster.submit(f"one of three {number}")
    page = tab.open().live().page
    page.locator("#jobs input[name=job]").first.focus()
    page.keyboard.press("Space")
    press(page, "#bulk [value=cancel]")
    agree(page, "Cancel 1 job")
    expect(page.locator("#bulk")).to_be_hidden()
    expect(page.locator("#jobs input[name=job]:focus")).to_have_count(1)
    page.goto(f"{cluster.url}/?search=there-is-none")
    press(page, "#found .empty a:visible")
    page.wait_for_url("**/#search")
    expect(page.get_by_label("Search jobs")).to_be_focused()


@pytest.mark.nightly
def test_a_form_that_closes_and_a_row_that_is_done_give_the_focus_to_what_is_near(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/cost?days=all").live().page
    page.locator("#budgets summary").first.click()
    page.locator("#budgets form button").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#budgets summary").first).to_be_focused()
    keys = [cluster.service.key("viewer", name=name) for name in ("first", "second")]
    assert len(keys) == 2
    page.goto(f"{cluster.url}/keys")
    row = page.locator("#keys tbody tr", has=page.get_by_text("second"))
    row.get_by_role("button", name="Revoke").focus()
    page.keyboard.press("Enter")
    agree(page, "Revoke it")
    expect(row.get_by_text("revoked")).to_be_visible()
    expect(page.locator("#keys tbody button:focus")).to_have_text("Revoke")


@pytest.mark.nightly
def test_a_question_says_how_many_and_which(tab: Tab, cluster: Cluster) -> None:
    jobs = [cluster.submit(f"named {number}") for number in range(5)]
    page = tab.open().live().page
    for job in jobs:
        page.check(f"#{job} input[name=job]")
    page.locator("#bulk [value=cancel]").click()
    question = page.locator("#confirm")
    expect(question).to_contain_text("Cancel 5 jobs: named 4, named 3, named 2 and 2 more?")
    expect(question.get_by_role("button", name="Keep them")).to_be_focused()
    page.keyboard.press("Enter")
    assert {cluster.service.state(job) for job in jobs} == {"queued"}
    page.goto(f"{cluster.url}/fleet")
    tab.live().page.locator("#nodes input[name=node]").first.check()
    page.locator("#bulk-nodes [value=quarantine]").click()
    expect(question).to_contain_text("Quarantine 1 node")
    page.keyboard.press("Escape")
    expect(page.locator("#nodes [data-state=quarantined]")).to_have_count(0)


def test_two_returns_delete_nothing_and_the_list_says_what_was_deleted(tab: Tab, cluster: Cluster) -> None:
    job = cluster.submit("to be deleted")
    cluster.act(job, "cancel")
    page = tab.open(f"/jobs/{job}").live().page
    press(page, "#action-delete")
    expect(page.locator("#dialog-delete").get_by_role("button", name="Back")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#dialog-delete")).to_be_hidden()
    press(page, "#action-delete")
    page.locator("#dialog-delete").get_by_role("button", name="Delete").click()
    page.wait_for_url(f"{cluster.url}/")
    expect(page.locator("#toasts")).to_contain_text("to be deleted is deleted.")


@pytest.mark.nightly
def test_a_large_group_is_paused_whole_in_parts(tab: Tab, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_routes, "ACTED_S", -1.0)  # each answer has done one
    jobs = [cluster.submit(f"of a group {number}", seed=number, needs={"gpu_memory_gb": 999}) for number in range(4)]
    page = tab.open("/queue").live().page
    page.get_by_role("button", name="Pause all 4").click()
    expect(page.locator("#toasts .toast")).to_have_text(re.compile("^4 jobs paused"))
    assert {cluster.service.state(job) for job in jobs} == {"paused"}


def test_who_revokes_the_own_key_is_told_and_signed_out(person: NewPerson, cluster: Cluster) -> None:
    tab = person(key=cluster.service.key("admin", name="mine")).tab()
    page = tab.open("/keys").page
    page.locator("#keys tbody tr", has=page.get_by_text("yours")).get_by_role("button", name="Revoke").click()
    expect(page.locator("#confirm")).to_contain_text("the key that you are signed in with")
    page.get_by_role("button", name="Revoke it").click()
    page.wait_for_url("**/sign-in")
    expect(page.locator("#toasts")).to_contain_text("Your key is revoked")


@pytest.mark.nightly
def test_what_start_lacks_stays_until_something_is_typed(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/new").page
    page.get_by_label("Base", exact=True).select_option("hub")
    page.get_by_label("Prompt", exact=True).fill("a photo of sks dog")
    with page.expect_response("**/new/plan"):
        page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator("#plan .lacks")).to_contain_text("Choose a base")
    expect(page.locator("#s-hub-problem")).to_have_text("Name a repository on the hub, such as ORGANISATION/NAME.")
    expect(page.locator("#s-hub")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#s-photos-problem")).to_be_visible()


@pytest.mark.nightly
def test_the_tiny_base_is_one_press_away(tab: Tab, cluster: Cluster) -> None:
    cluster.app.state.tiny = TinyBase(folder=BASE, licence="apache-2.0", recipe="resolution = 64\nsteps = 30\n")
    page = tab.open("/new").page
    page.get_by_label("Prompt", exact=True).fill("a photo of sks dog")
    page.get_by_role("button", name="Add the tiny base").click()
    expect(page.get_by_label("Base", exact=True)).to_have_value("tiny-sdxl")
    expect(page.locator("#s-resolution")).to_have_value("64")
    expect(page.locator("#toasts")).to_contain_text("The tiny base is there, and the form has settings that suit it.")
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("a photo of sks dog")
    (added,) = cluster.service.ask("GET", "/v1/bases").json()
    assert (added["name"], added["family"], added["licence"]) == ("tiny-sdxl", "sdxl", "apache-2.0")


@pytest.mark.nightly
def test_arrow_keys_mean_the_same_in_the_grid_and_in_an_open_picture(
    tab: Tab, cluster: Cluster, tmp_path: Path
) -> None:
    job = cluster.submit("pictured", sample_every_steps=10, sample_prompts=list(PROMPTS), sample_seeds=list(SEEDS))
    cluster.service.deployment = replace(
        cluster.service.deployment, inspector=InspectorHere(tmp_path / "inspected", ())
    )
    held = cluster.begin(job)
    album = Album(cluster.service, held, cluster._nodes[job])
    for step in (10, 20):
        album.show(
            step,
            {
                picture_name(prompt, seed): picture(step * 100 + prompt * 10 + seed)
                for prompt in range(len(PROMPTS))
                for seed in SEEDS
            },
        )
    album.make_thumbnails()
    page = tab.open(f"/jobs/{job}/pictures").live().page

    def at(path: str) -> None:
        expect(page.locator("#grid a:focus")).to_have_attribute("data-path", path)

    def named(step: int, prompt: int, seed: int) -> str:
        return f"samples/step-{step:06d}/{picture_name(prompt, seed)}"

    page.locator("#grid a").first.focus()
    at(named(10, 0, 1))
    for key, where in (
        ("ArrowRight", (10, 0, 2)),
        ("ArrowRight", (10, 1, 1)),
        ("ArrowDown", (20, 1, 1)),
        ("ArrowLeft", (20, 0, 2)),
        ("ArrowUp", (10, 0, 2)),
        ("End", (20, 0, 2)),
    ):
        before = page.locator("#grid a:focus").bounding_box()
        page.keyboard.press(key)
        at(named(*where))
        after = page.locator("#grid a:focus").bounding_box()
        assert before and after
        moved = {
            "ArrowRight": after["x"] - before["x"],
            "ArrowLeft": before["x"] - after["x"],
            "ArrowDown": after["y"] - before["y"],
            "ArrowUp": before["y"] - after["y"],
        }
        assert moved.get(key, 1) > 0, key  # where the arrow points
    page.keyboard.press("Enter")
    place = page.locator("#viewer-place")
    expect(place).to_contain_text("step 20 · seed 2")
    page.keyboard.press("ArrowUp")
    expect(place).to_contain_text("step 10 · seed 2")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#viewer-prompt")).to_have_text(PROMPTS[1])
    page.get_by_label("Compare with", exact=True).select_option("job")
    expect(page.locator("#other-job")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#other")).to_be_hidden()
    expect(page.locator("#viewer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    at(named(10, 1, 1))
