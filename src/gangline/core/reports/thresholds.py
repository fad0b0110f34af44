"""Thresholds as the API shows them."""

from dataclasses import dataclass

from gangline.core.money.forecast import CostSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdNotice:
    """A notice of a threshold in the current day or month: `percent` of it were spent, or with `forecast` expected."""

    percent: int
    forecast: bool
    at_ms: int
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdView:
    """An amount for each day or month of `zone`; it only gives notice, and stops nothing.

    It is of the costs of `project` (empty: of everything that the service costs) and of the nodes of `pool` (empty: of all). `spent_usd`
    is spent since `from_ms`, with what runs now, and `expected_usd` is expected until `until_ms` (null: there is no forecast yet). The
    endpoints of the project `notify` get a notice when `percents` of the amount are spent, and with `forecast` when more is expected;
    `notices` are those of the current day or month. `endpoints` is how many hear of it now; with none, notices wait until one does.
    """

    id: str
    project: str
    pool: str
    per: CostSpan
    usd: float
    percents: tuple[int, ...]
    forecast: bool
    zone: str
    notify: str
    endpoints: int
    from_ms: int
    until_ms: int
    spent_usd: float
    expected_usd: float | None
    notices: tuple[ThresholdNotice, ...]
