"""An experiment as people read it: only what differs, and the pictures of its jobs beside each other."""

import pytest
from playwright.sync_api import Page, expect

from gangline.service.experiments.tend import tend_experiment
from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab
from tests.browser.conftest import one_cluster as cluster
from tests.browser.conftest import one_tab as tab
from tests.browser.test_list import CHOOSE
from tests.browser.test_session import load_again
from tests.service.experiments.at_work import submit
from tests.service.pictures.many import write_pictures
from tests.waiting import until

__all__ = ["cluster", "tab"]  # fixtures
PROMPTS = ("sks dog", "sks dog on the beach")
ALIVE = """document.body.dispatchEvent(new CustomEvent("htmx:sse:after:message", { detail: { message: { event: "alive" } } }))"""
LAST_PLOT = """let made;
Object.defineProperty(window, "uPlot", { configurable: true, get: () => made, set: (real) => {
  made = class extends real { constructor(...all) { super(...all); window.plot = this; } };
} });"""


@pytest.fixture(scope="module")
def experiment(cluster: Cluster) -> str:
    """Of two ranks and two rates, with pictures of two prompts at two steps; the larger rank is the better one."""
    service = cluster.service
    vary = {"rank": [4, 8], "learning_rate": [1e-4, 2e-4]}
    made = submit(service, name="ranks and rates", vary=vary, settings={"sample_prompts": PROMPTS})["id"]
    for number, run in enumerate(service.ask("GET", f"/v1/experiments/{made}/runs").json()):
        held = cluster.begin(run["job"], f"node of {number}")
        for step in (50, 100):
            cluster.step(held, step)
            cluster.measure(held, {step: {"loss": 1 / (run["settings"]["rank"] + number)}})
        write_pictures(service, run["job"], prompts=2, steps=[0, 50, 100])
        cluster.succeed(held)
        tend_experiment(service.deployment, made, service.now_ms)
    return made


def test_only_what_differs_is_a_column_and_any_column_orders_the_rows(tab: Tab, experiment: str) -> None:
    page = tab.open(f"/experiments/{experiment}").live().page
    table = page.locator(".compared")
    heads = table.locator("thead th").all_inner_texts()
    assert {"rank", "learning_rate"} < set(heads) and "steps" not in heads and "prompt" not in heads
    ranks = table.locator("tbody tr td:nth-child(2)")
    expect(ranks).to_have_text(["8", "8", "4", "4"])  # the best first
    table.get_by_role("link", name="rank").click()
    page.wait_for_url("**sort=rank*")
    expect(ranks).to_have_text(["4", "4", "8", "8"])
    table.get_by_role("link", name="rank").click()
    page.wait_for_url("**sort=-rank*")
    expect(ranks).to_have_text(["8", "8", "4", "4"])


def test_the_matrix_shows_each_combination_at_the_step_that_is_chosen(tab: Tab, experiment: str) -> None:
    page = tab.open(f"/experiments/{experiment}").live().page
    matrix = page.locator("#matrix")
    pictures = matrix.locator("td img")
    expect(pictures).to_have_count(4)
    assert [cells.count() for cells in (matrix.locator("thead th"), matrix.locator("tbody tr"))] == [3, 2]
    last = [each.get_attribute("src") for each in pictures.all()]
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    expect(matrix.locator("output")).to_have_text("the base")
    page.keyboard.press("ArrowRight")
    expect(matrix.locator("output")).to_contain_text("50")
    expect(pictures).to_have_count(4)
    assert {each.get_attribute("src") for each in pictures.all()}.isdisjoint(last)
    page.get_by_label("Across").select_option("the prompt")
    expect(matrix.locator("thead th").nth(2)).to_have_text(PROMPTS[1])


@pytest.mark.nightly
def test_the_pictures_that_were_chosen_stay_when_the_screen_is_loaded_again(
    tab: Tab, cluster: Cluster, experiment: str
) -> None:
    page = tab.open(f"/experiments/{experiment}").live().page
    matrix = page.locator("#matrix")
    prompt, before = matrix.locator("[name=prompt]"), matrix.locator("td img").first.get_attribute("src")
    prompt.select_option(PROMPTS[1])
    expect(matrix.locator("td img").first).not_to_have_attribute("src", before or "")
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(matrix.locator("output")).to_contain_text("50")
    chosen = {each.get_attribute("src") for each in matrix.locator("td img").all()}
    load_again(tab, cluster)
    expect(matrix.locator("output")).to_contain_text("50")
    expect(prompt).to_have_value("1")
    assert {each.get_attribute("src") for each in matrix.locator("td img").all()} == chosen


@pytest.mark.nightly
def test_a_jobs_end_comes_into_the_open_table(tab: Tab, cluster: Cluster) -> None:
    made = submit(cluster.service, name="live")["id"]
    page = tab.open(f"/experiments/{made}").live().page
    run = cluster.service.ask("GET", f"/v1/experiments/{made}/runs").json()[0]
    held = cluster.begin(run["job"], "node of the live one")
    row = page.locator(".compared tbody tr").first
    expect(row).to_contain_text("running")
    cluster.step(held, 100)
    cluster.succeed(held)
    expect(row).to_contain_text("succeeded")


@pytest.mark.nightly
def test_the_matrix_is_that_of_the_last_step_though_others_were_on_their_way(tab: Tab, experiment: str) -> None:
    page = tab.open(f"/experiments/{experiment}").live().page
    page.get_by_role("slider", name="Step").evaluate(CHOOSE, ["1", "2", "0"])
    expect(page.locator("#matrix output")).to_have_text("the base")
    assert page.get_by_role("slider", name="Step").input_value() == "0"


def span(page: Page) -> list[float]:
    """The steps that the chart shows."""
    return page.evaluate("[plot.scales.x.min, plot.scales.x.max]")


def zoom(page: Page) -> list[float]:
    """Drag over the middle of the chart, and return what it shows then."""
    over = page.locator("#curves-plot .u-over")
    over.scroll_into_view_if_needed()
    box, whole = over.bounding_box(), span(page)
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30, steps=4)
    page.mouse.up()
    until(lambda: span(page) != whole)
    return span(page)


@pytest.mark.nightly
def test_the_chart_of_losses_stays_where_one_looks_as_they_come(tab: Tab, cluster: Cluster) -> None:
    made = submit(cluster.service, name="looked at")["id"]
    run = cluster.service.ask("GET", f"/v1/experiments/{made}/runs").json()[0]
    held = cluster.begin(run["job"], "node of the one that is looked at")
    cluster.step(held, 20)
    cluster.measure(held, {step: {"loss": 1 / step} for step in range(1, 21)})
    page = tab.page
    page.add_init_script(LAST_PLOT)
    tab.open(f"/experiments/{made}").live()
    expect(page.locator("#curves-plot canvas")).to_have_count(1)
    near = zoom(page)
    page.evaluate("window.before = plot")
    cluster.step(held, 40)
    cluster.measure(held, {step: {"loss": 1 / step} for step in range(21, 41)})
    until(lambda: page.evaluate("plot.data[0].at(-1)") == 40)
    assert span(page) == near
    assert page.evaluate("plot === before")
    page.get_by_label("logarithm").check()
    until(lambda: page.evaluate("plot !== before"))
    assert span(page) == near
    page.locator("#curves-plot .u-over").dblclick()
    until(lambda: span(page) == [0, 40])


@pytest.mark.nightly
def test_an_experiment_that_has_ended_is_not_read_again_while_nothing_happens(tab: Tab, experiment: str) -> None:
    page, asked = tab.page, list[str]()
    page.clock.install()
    page.add_init_script("addEventListener('htmx:sse:after:message', () => (window.heard = true))")
    with page.expect_response("**/jobs/curves*"):
        tab.open(f"/experiments/{experiment}").live()
    expect(page.locator("#curves-plot canvas")).to_have_count(1)
    until(lambda: page.evaluate("window.heard"))  # with what the stream begins with
    page.clock.run_for(20_000)
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate(ALIVE)
    page.clock.run_for(20_000)
    assert not [each for each in asked if "/runs" in each or "/jobs/curves" in each]
