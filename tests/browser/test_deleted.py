"""What an open page says of a job that somebody deletes meanwhile: on its own screen, among its pictures, before one of them."""

import pytest
from playwright.sync_api import expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab
from tests.service.pictures.many import PIXELS, write_pictures
from tests.waiting import until

FETCHED = "performance.getEntriesByType('resource').filter((each) => /pictures\\/[0-9a-f]{64}$/.test(each.name)).length"
"""The whole pictures that are here."""
NEIGHBOURS = 2
"""Of the first picture, which are fetched before somebody asks for them."""
AGAIN_S = 31
"""After this time, a screen that is open is read as a whole."""


@pytest.fixture
def job(cluster: Cluster) -> str:
    """One that has ended, with pictures of two prompts at two steps."""
    made = cluster.submit("to be deleted", sample_prompts=["a cat", "a cat on a mat"])
    cluster.step(cluster.begin(made), 50, loss=0.5)
    write_pictures(cluster.service, made, prompts=2, steps=[10, 20])
    cluster.act(made, "cancel")
    return made


def delete(cluster: Cluster, job: str) -> None:
    assert cluster.service.ask("DELETE", f"/v1/jobs/{job}").is_success


def test_the_screen_of_a_deleted_job_says_so_and_offers_nothing_more(tab: Tab, cluster: Cluster, job: str) -> None:
    page = tab.open(f"/jobs/{job}").live().page
    expect(page.get_by_role("button", name="Delete")).to_be_visible()
    delete(cluster, job)
    expect(page.locator("#job-deleted")).to_be_visible()
    expect(page.locator("#job-actions")).to_be_hidden()
    expect(page.locator("#live")).to_have_attribute("data-state", "off")
    cluster.service.wait(AGAIN_S)
    tab.asked.append("404")
    with page.expect_response(lambda answer: answer.url == page.url and answer.status == 404):
        # the screen is loaded again, as it is after something was done
        page.evaluate("document.dispatchEvent(new CustomEvent('toast', {detail: {text: 'Done.'}}))")
    expect(page.locator("#toasts .toast")).to_have_count(2)
    expect(page.locator("#toasts .toast.bad")).to_have_text("What this page shows was deleted.×")
    page.locator("#job-deleted").get_by_role("link", name="To the jobs").click()
    tab.live()
    expect(page.locator(f"#{job}")).to_have_count(0)


@pytest.mark.nightly
def test_a_question_that_is_open_when_its_job_is_deleted_says_that_there_is_none(
    tab: Tab, cluster: Cluster, job: str
) -> None:
    page = tab.open(f"/jobs/{job}").live().page
    tab.asked.append("404")
    page.get_by_role("button", name="Labels…").click()
    page.locator("#labels-text").fill("kept=yes")
    delete(cluster, job)
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.locator("#dialog-labels [role=alert]")).to_contain_text(f"There is no job {job}.")
    expect(page.locator("#labels-text")).to_have_value("kept=yes")


def test_pictures_of_a_deleted_job_say_so(tab: Tab, cluster: Cluster, job: str) -> None:
    page = tab.open(f"/jobs/{job}/pictures").live().page
    expect(page.locator("#grid .cell img")).to_have_count(4)
    delete(cluster, job)
    expect(page.locator("#toasts")).to_contain_text("was deleted")
    expect(page.locator("#live")).to_have_attribute("data-state", "off")


@pytest.mark.nightly
def test_a_picture_that_is_open_when_its_job_is_deleted_says_so_and_closes(
    tab: Tab, cluster: Cluster, job: str
) -> None:
    page = tab.open(f"/jobs/{job}/pictures").live().page
    page.locator("#grid .cell a").first.click()
    viewer = page.locator("#viewer")
    picture = viewer.locator("[data-pane=b] img")
    expect(picture).to_have_js_property("naturalWidth", PIXELS)
    until(lambda: page.evaluate(FETCHED) == NEIGHBOURS + 1)
    delete(cluster, job)
    expect(viewer.locator("#toasts")).to_contain_text("was deleted")
    expect(picture).to_be_visible()
    page.keyboard.press("Escape")
    expect(viewer).to_be_hidden()
    expect(page.locator("#toasts")).to_contain_text("was deleted")
