"""Extend an attempt's budget reservation before it is used up, or stop the attempt."""

from gangline.core.errors import Unreachable
from gangline.core.money.budget import more_to_reserve, over_budget, reservation
from gangline.ports.store import Row, guard
from gangline.service.attempts import TRIES_MAX
from gangline.service.deployment import Deployment
from gangline.service.money.bill import load_purse


def out_of_money(deployment: Deployment, lease: Row, downloaded_bytes: int, now_ms: int) -> str:
    """Return why the attempt must stop, because its needs up to now, `downloaded_bytes` in total included, cannot be reserved; else ""."""
    attempt, price, reserved = lease["attempt"], lease["price_micro_usd_per_hour"], lease["reserved"]
    for _ in range(TRIES_MAX):
        least = more_to_reserve(
            price,
            reserved=reserved,
            elapsed_ms=now_ms - lease["started_ms"],
            downloaded_bytes=downloaded_bytes,
            policy=deployment.policy,
        )
        if not least:
            return ""
        purse = load_purse(deployment, deployment.store.load("job_of_attempt", attempt=attempt)[0]["project"])
        too_much = over_budget(purse, least)
        if too_much:
            return f"stopped: {too_much}"
        whole = max(least, reservation(price, 0, deployment.policy))
        # A full reservation saves transactions; close to the budget's limit, the least that the attempt needs now is enough.
        more = least if over_budget(purse, whole) else whole
        if deployment.store.apply(
            guard("extend_reservation", attempt=attempt, seen=reserved, micro_usd=more),
            guard("reserve", id=purse.project, micro_usd=more),
        ):
            return ""
        now = deployment.store.load("attempt", id=attempt)[0]
        if now["state"] != "live":
            return ""  # the attempt has ended: the next write for its lease fails
        reserved = now["reserved"]  # a concurrent request may have reserved more
    raise Unreachable(f"the budget for {attempt} changed {TRIES_MAX} times meanwhile")
