"""Budgets: more is reserved for an attempt before it is spent, or the attempt stops."""

from gangline.core.budget import more_to_reserve
from gangline.ports.store import Row, guard
from gangline.service.deployment import Deployment


def out_of_money(at: Deployment, lease: Row, downloaded_bytes: int, now_ms: int) -> str:
    """Why the attempt must stop: what it needs by now, with all of `downloaded_bytes`, can not be reserved."""
    more = more_to_reserve(
        lease["price_micro_usd_per_hour"],
        reserved=lease["reserved"],
        elapsed_ms=now_ms - lease["started_ms"],
        downloaded_bytes=downloaded_bytes,
        policy=at.policy,
    )
    if not more:
        return ""
    project = at.store.load("job_of_attempt", attempt=lease["attempt"])[0]["project"]
    extended = at.store.apply(
        guard("reserve", id=project, micro_usd=more),
        guard("extend_reservation", attempt=lease["attempt"], seen=lease["reserved"], micro_usd=more),
    )
    if extended or at.store.load("attempt", id=lease["attempt"])[0]["reserved"] != lease["reserved"]:
        return ""  # where not by this request, by another at the same time
    return f"the budget of {project} is spent or reserved"
