"""The screen of costs follows what is spent, and nothing on it moves or is lost meanwhile."""

import pytest
from playwright.sync_api import expect

from tests.browser.cluster import Cluster
from tests.browser.conftest import Tab
from tests.service.reports.test_costs import write_lines

WATCH = """
window.moved = [];
new PerformanceObserver((list) => list.getEntries().forEach(({ sources }) => window.moved.push(...sources.map(({ node }) =>
  `${node?.parentElement?.outerHTML.slice(0, 80)} ${node?.textContent.slice(0, 40)}`)))).observe({ type: "layout-shift" });
"""


def test_sums_and_budgets_follow_while_a_form_is_filled_in(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/cost?days=all").live().page
    page.locator("#budgets summary").first.click()
    budget = page.get_by_label("Budget in $").first
    budget.fill("12")
    page.evaluate(WATCH)
    totals = page.locator("#cost-totals")
    before, spent = totals.inner_text(), page.locator("#cost-totals dd").first.inner_text()
    now_ms = cluster.service.now_ms
    write_lines(cluster.service, ("training", now_ms - 60_000, now_ms, 1_000_000), job="job-x", project="default")
    cluster.service.wait(6)
    expect(totals).not_to_have_text(before, use_inner_text=True)
    expect(page.locator("#cost-totals dd").first).not_to_have_text(spent)
    expect(budget).to_have_value("12")
    expect(budget).to_be_focused()
    assert page.evaluate("window.moved") == []


@pytest.mark.nightly
def test_other_days_are_followed_once_they_are_chosen(tab: Tab, cluster: Cluster) -> None:
    page = tab.open("/cost?days=all").live().page
    page.get_by_label("Summed by").select_option("job")
    expect(page.locator("#costs")).to_have_attribute("hx-sse:connect", "/live/cost?by=job&days=all&zone=UTC&of=all")
    tab.live()
    now_ms = cluster.service.now_ms
    write_lines(cluster.service, ("failed", now_ms - 60_000, now_ms, 9_000_000), job="job-x", project="default")
    cluster.service.wait(6)
    expect(page.locator(".cost-rows tbody tr").first).to_contain_text("job-x")
