"""Read what the screen of costs shows, and follow it while it is open: for all who look at the same days at once."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from gangline.core.money.cost import Cause
from gangline.core.reports.cost_lines import forecast_words, shown_rows
from gangline.core.reports.costs import BudgetsView, CostRow, CostsView
from gangline.core.reports.days import parse_zone
from gangline.service.access import projects
from gangline.service.deployment import Deployment
from gangline.service.experiments.budgets import budgets
from gangline.service.reports.costs import costs, count_interruptions
from gangline.web.cost.asked import AskedCosts
from gangline.web.cost.drawn import HEIGHT, SAYS, BarPiece, Chart, chart_of_days, most_of, row_bar
from gangline.web.frame.rendering import block
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments, ReadPace

ROWS = 100
FEW_USD = 0.1
"""Sums below this are shown with more digits."""
EVERY_MS = 5_000
SHARE = 30
"""Sums of a long ledger take a while: a screen takes at most one part in this many of the time that open pages are read in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSeen:
    """How a session looks at costs: at those of `project` (None: of all), of the days and by the key that it asked for. As an operator it
    sees the shares of projects, and changes budgets if it `may`."""

    project: str | None
    asked: AskedCosts
    operates: bool
    may: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCosts:
    """Costs, and of them what `interruptions` lost. `rows` have their bars, `digits` are those of every sum, so that they stand below each
    other, and `causes` have columns of their own."""

    found: CostsView
    asked: AskedCosts
    interruptions: int
    chart: Chart | None
    rows: tuple[tuple[CostRow, tuple[BarPiece, ...]], ...]
    digits: int
    causes: tuple[Cause, ...]

    @property
    def forecast(self) -> tuple[str, ...]:
        """What this day and this month will have cost, as sentences."""
        words = map(forecast_words, self.found.forecast)
        return tuple(f"{each[:1].upper()}{each[1:]}." for each in words)

    def share(self, cause: Cause) -> float:
        """Return the share of a cause in all costs, without the credits among them."""
        whole = sum(usd for usd in self.found.parts.values() if usd > 0)
        return self.found.parts.get(cause, 0.0) / whole if whole else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBudgets:
    """The budgets of `project` (None: of all), and for operators the shares of projects."""

    project: str | None
    found: BudgetsView
    shares: dict[str, float]
    may: bool

    @property
    def names(self) -> tuple[str, ...]:
        return (*(each.project for each in self.found.projects), *(each.experiment for each in self.found.experiments))


def shown_costs(deployment: Deployment, project: str | None, asked: AskedCosts, now_ms: int) -> ShownCosts:
    since_ms, until_ms = asked.span(now_ms)
    span = {"since_ms": since_ms, "until_ms": until_ms}
    found = costs(deployment, project, asked.by, now_ms, **span, zone=asked.zone, limit=ROWS, forecast=True)
    zone = parse_zone(asked.zone)
    first, last = (
        (f"{datetime.fromtimestamp(at_ms / 1000, zone).date()}" for at_ms in (since_ms, now_ms))
        if since_ms is not None and asked.days != "own"
        else (None, None)
    )
    rows = shown_rows(found)
    most = most_of(rows)
    return ShownCosts(
        found=found,
        asked=asked,
        interruptions=count_interruptions(deployment, project, **span),
        chart=chart_of_days(found.rows, first, last) if asked.by == "day" else None,
        rows=tuple((row, row_bar(row, most)) for row in rows),
        digits=6 if abs(found.usd) < FEW_USD else 4,
        causes=tuple(found.parts),
    )


def shown_budgets(
    deployment: Deployment, project: str | None, now_ms: int, *, operates: bool, may: bool
) -> ShownBudgets:
    shares = {each.project: each.share for each in projects.projects(deployment)} if operates else {}
    return ShownBudgets(project=project, found=budgets(deployment, project, now_ms), shares=shares, may=may)


class CostScreen:
    """What the chosen days cost, and how far the budgets are spent. Sums change with time alone, so they are read every few seconds."""

    project: str | None = None

    def __init__(self, seen: CostSeen) -> None:
        self._seen = seen
        self._pace = ReadPace(SHARE, EVERY_MS)
        self._budgets: tuple[str, ...] = ()
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return False

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        begun_ms = deployment.store.now_ms()
        if not self._pace.is_due(begun_ms):
            return ""
        shown = shown_costs(deployment, self._seen.project, self._seen.asked, begun_ms)
        of = shown_budgets(deployment, self._seen.project, begun_ms, operates=self._seen.operates, may=self._seen.may)
        self._pace.was_read(begun_ms, deployment.store.now_ms())
        before, self._budgets = self._budgets, of.names
        listed = block("cost/budgets.html", "budgets", of=of, oob=True) if before not in ((), of.names) else ""
        return listed + self._fragments.changed(dict(self._parts(shown, of)))

    def whole(self) -> str:
        return self._fragments.whole()

    def _parts(self, shown: ShownCosts, of: ShownBudgets) -> Iterator[tuple[str, str]]:
        yield "totals", block("cost/parts.html", "totals", shown=shown, oob=True)
        yield "forecast", block("cost/parts.html", "forecast", shown=shown, oob=True)
        yield "sums", block("cost/parts.html", "sums", shown=shown, says=SAYS, height=HEIGHT, oob=True)
        for each in of.found.projects:
            yield f"project {each.project}", block("cost/budgets.html", "of_project", each=each, oob=True)
        for one in of.found.experiments:
            yield f"experiment {one.experiment}", block("cost/budgets.html", "of_experiment", each=one, of=of, oob=True)
