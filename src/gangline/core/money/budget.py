"""Check a project's budget, and reserve money for an attempt before it is spent."""

from dataclasses import dataclass
from math import ceil

from gangline.core.money.cost import HOUR_MS, egress_micro_usd
from gangline.core.policy import Policy
from gangline.core.words import usd_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """A project's usage, decayed to `usage_ms`, its share of the fleet, and its budget (None: no limit). Money is in micro-dollars."""

    project: str
    usage: float
    usage_ms: int
    share: float
    budget: int | None
    spent: int
    reserved: int


UNPRICED_MICRO_USD = 2 * 10**15
"""The reservation for a slot of unknown price: it exceeds every budget, and fits into 64 bits for up to 4,000 slots."""


def unaccountable(purse: Purse, what: str) -> str:
    """Return why a project with a budget may not use `what`, a node or a kind of node whose price is not known."""
    return (
        f"the price of {what} is not known, so it could not be counted against the budget of {purse.project}: "
        "give its join token or its pool a price"
    )


def over_budget(purse: Purse, more: int) -> str | None:
    """Return why the budget does not allow `more` micro-dollars, or None if it does."""
    if purse.budget is None or purse.spent + purse.reserved + more <= purse.budget:
        return None
    return (
        f"the budget of {purse.project}, {usd_words(purse.budget)}, does not allow it: "
        f"{usd_words(purse.spent)} is spent and {usd_words(purse.reserved)} is reserved by running jobs"
    )


def reservation(price_micro_usd_per_hour: int, download_bytes: int, policy: Policy) -> int:
    """Return the micro-dollars to reserve for a new attempt: its downloads, and `reserve_s` of time, in which it can still be stopped."""
    time = round(price_micro_usd_per_hour * policy.reserve_s / 3600)
    return time + egress_micro_usd(download_bytes, policy.egress_usd_per_gb)


def more_to_reserve(
    price_micro_usd_per_hour: int, *, reserved: int, elapsed_ms: int, downloaded_bytes: int, policy: Policy
) -> int:
    """Return the micro-dollars that an attempt needs in addition to `reserved`, so that it can be stopped before all is spent; or 0."""
    margin_ms = elapsed_ms + 1000 * (policy.stop_margin_s + policy.heartbeat_interval_s)
    sent = egress_micro_usd(downloaded_bytes, policy.egress_usd_per_gb)
    missing = sent + price_micro_usd_per_hour * margin_ms / HOUR_MS - reserved
    return max(0, ceil(missing))
