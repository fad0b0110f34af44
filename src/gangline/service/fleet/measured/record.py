"""Show what is known of a node's past: its attempts, and the strikes of its machine with their evidence."""

from dataclasses import dataclass

from gangline.core.fleet.trust import Strike, counting
from gangline.core.job import AttemptState
from gangline.core.jobs.failure import MEANING, STRIKE
from gangline.service.deployment import Deployment
from gangline.service.fleet.health import as_strike

ATTEMPTS_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class StrikeView:
    """A strike of a machine. `job` is None for who may not see it. `because` says why it counts, or why not yet."""

    at_ms: int
    job: str | None
    says: str
    strikes: float
    counts: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAttempt:
    """An attempt that a node had or has. `job` and `name` are None for who may not see the job; `cost_usd` if its price is not known."""

    job: str | None
    name: str | None
    state: AttemptState
    because: str
    from_step: int
    step: int
    seconds_per_step: float | None
    started_ms: int
    ended_ms: int | None
    cost_usd: float | None


def machine_strikes(deployment: Deployment, machine: str, project: str | None, now_ms: int) -> tuple[StrikeView, ...]:
    """Return the strikes of a machine since its last quarantine, newest first. Jobs are shown to their own project, and to operators
    (`project` is None)."""
    known = deployment.store.load("machine", id=machine)
    since_ms = now_ms - round(deployment.policy.strike_window_s * 1000)
    rows = deployment.store.load("strikes", machine=machine, since=since_ms) if known else []
    strikes = [as_strike(row) for row in rows]
    on_trial = bool(known and known[0]["on_trial"])
    that_count = {id(strike) for strike in counting(strikes, on_trial=on_trial)}
    return tuple(
        StrikeView(
            at_ms=row["at_ms"],
            job=row["job"] if project in (None, row["project"]) else None,
            says=MEANING[strike.kind].says,
            strikes=strike.quarters / STRIKE,
            counts=id(strike) in that_count,
            because=_evidence(strike, counts=id(strike) in that_count, on_trial=on_trial),
        )
        for row, strike in reversed(list(zip(rows, strikes, strict=True)))
    )


def _evidence(strike: Strike, *, counts: bool, on_trial: bool) -> str:
    if strike.elsewhere:
        return "the same work went well on another machine with such a GPU"
    if not counts:
        return "it does not count as long as the same work has gone well nowhere else"
    return "on trial every failure counts" if on_trial else "the machine failed several kinds of work"


def attempts_of_node(
    deployment: Deployment, node: str, project: str | None, now_ms: int, limit: int = ATTEMPTS_MAX
) -> tuple[NodeAttempt, ...]:
    """Return the last attempts of a node, newest first. Jobs are shown to their own project, and to operators (`project` is None)."""
    return tuple(
        NodeAttempt(
            **{
                name: row[name] for name in ("state", "from_step", "step", "seconds_per_step", "started_ms", "ended_ms")
            },
            because=row["because"] if project in (None, row["project"]) else "",
            job=row["job"] if project in (None, row["project"]) else None,
            name=row["name"] if project in (None, row["project"]) else None,
            cost_usd=row["micro_usd"] / 1e6 if row["price_known"] == 1 else None,
        )
        for row in deployment.store.load("attempts_of_node", node=node, limit=limit, now=now_ms)
    )
