"""Costs on the page: the sums of the API over the reader's days, what interruptions took, files, and budgets."""

import re
from collections.abc import Callable

import pytest

from gangline.core.reports.costs import CostRow
from gangline.web.cost.asked import AskedCosts
from gangline.web.cost.drawn import HEIGHT, chart_of_days, most_of, row_bar
from gangline.web.cost.followed import EVERY_MS, CostScreen, CostSeen
from tests.service.conftest import PROJECT, Service
from tests.service.reports.test_costs import write_lines
from tests.service.web.conftest import Browser

HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000
"""2026-01-01T12:00:00Z."""


@pytest.fixture
def spent(page: Service) -> str:
    """A job that cost something, some of it for an interruption, late on New Year's day. Return its id."""
    page.store.time_ms = NOON_MS + 24 * HOUR_MS
    page.wait(0)
    job, late = page.submit(), NOON_MS + 11 * HOUR_MS + HOUR_MS // 2
    write_lines(
        page,
        ("training", late, late + 1000, 2_000_000),
        ("redone steps", late + 1000, late + 2000, 250_000),
        job=job,
        project=PROJECT,
    )
    return job


def test_the_sums_are_those_of_the_api(page: Service, spent: str, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("viewer")
    assert "Today: " in browser.get("/cost").text and "This month: " in browser.get("/cost").text
    for by in ("day", "pool", "job", "cause", "node", "user", "gpu"):
        html = browser.get(f"/cost?by={by}").text
        assert "$2.2500" in html and "$2.0000" in html and "$0.2500" in html and "11.1%" in html
    assert f"/jobs/{spent}" in browser.get("/cost?by=job").text
    assert "Interruptions cost" in html


def test_days_are_those_of_the_reader(page: Service, spent: str, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("viewer")
    assert "2026-01-01" in browser.get("/cost").text
    assert "2026-01-02" in browser.get("/cost?zone=Asia/Tokyo").text
    assert "2026-01-01</th>" not in browser.get("/cost?zone=Asia/Tokyo").text
    assert "Nothing was spent" in browser.get("/cost?days=1").text
    own = browser.get("/cost?days=own&from=2026-01-01&to=2026-01-01").text
    assert "$2.2500" in own
    assert "Nothing was spent" in browser.get("/cost?days=own&from=2026-01-02").text
    for wrong in (
        "zone=Nowhere",
        "days=own&from=tomorrow",
        "days=own&from=2026-02-02&to=2026-01-01",
        "days=own&to=9999-12-31",
        "days=own&from=0001-01-01&zone=Asia/Tokyo",
    ):
        assert browser.part(f"/cost?{wrong}").status_code == 422, wrong
    assert "since=0001-01-01T00" in browser.get("/cost?days=own&from=0001-01-01&zone=UTC").text
    cookie = browser.service.http.request(
        "GET",
        "/cost",
        headers={"Accept": "text/html", "Cookie": f"gangline={browser.session}; gangline_zone=Asia/Tokyo"},
    )
    assert 'data-zone="Asia/Tokyo"' in cookie.text
    nonsense = browser.service.http.request(
        "GET", "/cost", headers={"Accept": "text/html", "Cookie": f"gangline={browser.session}; gangline_zone=../etc"}
    )
    assert 'data-zone="UTC"' in nonsense.text


def test_files_have_the_same_rows(page: Service, spent: str, signed_in: Callable[[str], Browser]) -> None:
    page.execute(f"UPDATE job SET name = '=1+1' WHERE id = '{spent}'")
    browser = signed_in("viewer")
    csv = browser.get("/cost/export?by=job&days=30")
    assert csv.headers["content-disposition"] == 'attachment; filename="costs-by-job.csv"'
    assert csv.text.splitlines() == ["key,label,usd,training,redone steps", f"{spent},'=1+1,2.250000,2.000000,0.250000"]
    found = browser.get("/cost/export?by=job&days=all&format=json").json()
    assert found == page.ask("GET", "/v1/costs?by=job&limit=1000", page.key("viewer")).json()


def test_viewers_see_their_project_and_operators_all(
    page: Service, spent: str, signed_in: Callable[..., Browser]
) -> None:
    page.add_project("other")
    write_lines(page, ("training", NOON_MS, NOON_MS + 1000, 1_000_000), job="job-x", project="other")
    assert "$2.2500" in signed_in("viewer").get("/cost?of=all").text
    assert "$3.2500" in signed_in("operator").get("/cost").text
    assert "$2.2500" in signed_in("operator").get("/cost?of=project").text
    assert "$1.0000" in signed_in("viewer", "other").get("/cost").text


def test_an_operator_sets_a_budget_and_a_share(page: Service, signed_in: Callable[[str], Browser]) -> None:
    operator = signed_in("operator")
    answer = operator.post("/cost/projects/default", budget_usd="12.5", share="2")
    assert answer.status_code == 200 and "$12.50" in answer.text
    found = page.ask("GET", "/v1/projects").json()[0]
    assert (found["budget_usd"], found["share"]) == (12.5, 2)
    operator.post("/cost/projects/default", budget_usd="", share="2")
    assert page.ask("GET", "/v1/projects").json()[0]["budget_usd"] is None
    for wrong in ({"budget_usd": "-1"}, {"budget_usd": "much"}, {"share": "0"}):
        assert operator.post("/cost/projects/default", **wrong).status_code == 422
    assert "Share of the fleet" not in signed_in("admin").get("/cost").text


def test_a_chart_has_every_day_and_its_pieces_have_the_height_of_their_sum() -> None:
    def row(day: str, **parts: float) -> CostRow:
        return CostRow(key=day, label=day, usd=sum(parts.values()), parts=parts)  # type: ignore[arg-type]

    rows = [row("2026-01-01", training=3.0, failed=1.0), row("2026-01-04", training=1.0, correction=-1.0)]
    chart = chart_of_days(rows)
    assert chart is not None and [bar.day[-2:] for bar in chart.bars] == ["01", "02", "03", "04"]
    first, last = chart.bars[0], chart.bars[-1]
    assert sum(piece.length for piece in first.pieces) == pytest.approx(HEIGHT * 4 / 5)
    assert min(piece.begin for piece in first.pieces) == pytest.approx(0)
    assert max(piece.begin + piece.length for piece in last.pieces) == pytest.approx(HEIGHT)
    assert chart.zero == pytest.approx(HEIGHT * 4 / 5)
    assert [value for value, _ in chart.ticks] == [1, 2, 3, 4]
    assert chart_of_days([]) is None and chart_of_days([row("2026-01-01"), row("2026-01-02", training=0.0)]) is None
    pieces = row_bar(rows[1], most_of(rows))
    assert [(piece.cause, piece.length) for piece in pieces] == [("training", 25)]


def test_a_share_is_of_what_was_spent_and_credits_make_it_no_larger(
    page: Service, spent: str, signed_in: Callable[[str], Browser]
) -> None:
    write_lines(page, ("correction", NOON_MS, NOON_MS + 1000, -900_000), job=f"{spent}-credit", project=PROJECT)
    html = signed_in("viewer").get("/cost?by=cause&days=all").text
    assert re.findall(r">([\d.]+)%<", html).count("88.9") == 1 and "11.1%" in html
    assert "148.1" not in html


def test_without_a_price_a_sentence_stands_in_place_of_the_chart(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    page.store.time_ms = NOON_MS + 24 * HOUR_MS
    page.wait(0)
    job, browser = page.submit(), signed_in("viewer")
    assert "<dt" in (html := browser.get("/cost").text) and ">Interruptions</dt><dd>none" in html
    write_lines(page, ("training", NOON_MS, NOON_MS + 1000, 0), job=job, project=PROJECT)
    html = browser.get("/cost").text
    assert "There is no chart, as nothing of this time cost anything." in html and "cost-chart" not in html
    node = page.join("bear")
    page.claim(node)
    page.execute("UPDATE attempt SET price_known = 0", f"UPDATE node SET price_known = 0 WHERE id = '{node}'")
    assert "There is no chart, as no price of these nodes is known." in browser.get("/cost").text
    assert "There is no chart" not in browser.get("/cost?by=job").text


def test_the_page_has_no_style_of_its_own(page: Service, spent: str, signed_in: Callable[[str], Browser]) -> None:
    browser = signed_in("operator")
    for address in ("/cost", "/cost?by=job", "/fleet", "/queue"):
        html = browser.get(address).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", html), address


def test_an_open_screen_follows_the_sums_and_the_budgets_and_is_read_every_few_seconds(
    page: Service, spent: str, signed_in: Callable[[str], Browser]
) -> None:
    asked = AskedCosts(by="day", days="all", zone="UTC")
    screen = CostScreen(CostSeen(project=PROJECT, asked=asked, operates=True, may=True))
    first = screen.refresh(page.deployment, None)
    html = signed_in("operator").get("/cost?of=project&days=all").text
    for part in ("cost-totals", "cost-sums", f"budget-now-{PROJECT}"):
        assert f'id="{part}"' in first and f'id="{part}"' in html
    assert "hx-sse:connect" in html and "<form" not in first
    write_lines(page, ("failed", NOON_MS, NOON_MS + 1000, 1_000_000), job=spent, project=PROJECT)
    page.wait(1)
    assert screen.refresh(page.deployment, None) == ""  # not so soon
    page.wait(EVERY_MS / 1000)
    later = screen.refresh(page.deployment, None)
    assert "$3.2500" in later and 'id="cost-sums"' in later and 'id="budget' not in later
    page.wait(EVERY_MS / 1000)
    assert screen.refresh(page.deployment, None) == ""
    signed_in("operator").post(f"/cost/projects/{PROJECT}", budget_usd="12.5", share="2")
    page.wait(EVERY_MS / 1000)
    now = screen.refresh(page.deployment, None)
    assert now.count("hx-swap-oob") == 1 and f'id="budget-now-{PROJECT}"' in now and "$12.50" in now
    assert "<form" not in now and "$3.2500" in screen.whole()


def test_a_project_that_came_meanwhile_has_a_budget_on_open_screens(page: Service) -> None:
    seen = CostSeen(project=None, asked=AskedCosts(by="day", days="all", zone="UTC"), operates=True, may=True)
    screen = CostScreen(seen)
    screen.refresh(page.deployment, None)
    page.add_project("other")
    page.wait(EVERY_MS / 1000)
    assert 'id="budgets"' in (came := screen.refresh(page.deployment, None)) and "/cost/projects/other" in came
