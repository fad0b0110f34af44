"""Decide what a check of a pool has shown so far, and when it has failed. `gangline pools check` rents one node, trains a tiny job on it,
gives it back, and shows that nothing is left."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gangline.core.errors import BadInput
from gangline.core.fleet.nodes import NodeDetail, NodeView
from gangline.core.fleet.pools import InstanceView, OfferView, PoolView
from gangline.core.words import usd_words

CheckStage = Literal["rented", "listed", "joined", "passed", "training", "saved", "finished", "gone"]
STAGES: Mapping[CheckStage, str] = {
    "rented": "the server asked for a node",
    "listed": "the provider lists its instance",
    "joined": "its worker joined",
    "passed": "it passed its probe",
    "training": "the job trains on it",
    "saved": "a checkpoint is safe",
    "finished": "the job succeeded",
    "gone": "the node is gone, and the provider listed no instance of it twice in a row",
}
assert set(STAGES) == set(get_args(CheckStage)), "every stage has its sentence"
KIND = "lora"
"""The kind of the job, which the node's probe must allow."""
LOOKS_MIN = 2
"""This many looks in a row must find nothing: a list may lack an instance once although it still runs."""
REFUSED_S = 5.0
"""After a refusal the server tries the next offer, which takes it no longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLimits:
    """What a check may cost and how long it may take. Without `price_known` time is the only limit."""

    usd_max: float
    minutes_max: float
    price_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedJob:
    """The job of a check. `node` is the name of the one that it runs on, or ran on last."""

    state: str
    because: str
    phase: str | None = None
    step: int = 0
    committed_step: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSight:
    """What was seen at one moment, `elapsed_s` after the job was submitted. `node` is the one that was rented for it, if any was;
    `spent_usd` is what all that were have cost. `refused` is what the provider refused meanwhile, `refused_s` seconds ago."""

    elapsed_s: float
    job: CheckedJob
    node: NodeDetail | None = None
    spent_usd: float = 0.0
    refused: str = ""
    refused_s: float = 0.0


def choose_offer(pool: PoolView, here: Sequence[NodeView], offer: str, limits: CheckLimits) -> list[OfferView]:
    """Return the offers that may be rented for the check, which is one if `offer` names it. Raise `BadInput` if the check would prove
    nothing, or could cost too much. `here` are the nodes of the pool.
    """
    check_that_it_rents(pool, here)
    if pool.because:
        raise BadInput(
            f"nothing can be rented in {pool.name}: {pool.because}", hint=f"`gangline pools show {pool.name}`"
        )
    admitted = [each for each in pool.offered if not each.excluded]
    chosen = _the_offer(pool, admitted, offer) if offer else admitted
    if not chosen:
        raise BadInput(f"the provider of {pool.name} offers nothing that the pool may rent", hint=_shows(pool))
    _check_price(pool, chosen, limits)
    return chosen


def check_that_it_rents(pool: PoolView, here: Sequence[NodeView]) -> None:
    """Raise `BadInput` if no node would be rented for the check's job, whatever the provider offers."""
    if not pool.editable:
        raise BadInput(
            f"the pool {pool.name} belongs to the server's own settings", hint="add a pool: `gangline pools add`"
        )
    if pool.state != "active":
        what = "is paused" if pool.state == "paused" else "is being removed"
        hint = f"`gangline pools resume {pool.name}`" if pool.state == "paused" else "check another pool"
        raise BadInput(f"the pool {pool.name} {what}, so no node would be rented", hint=hint)
    _check_room(pool, here)


def _check_room(pool: PoolView, here: Sequence[NodeView]) -> None:
    for node in here:
        if node.state in ("starting", "ready", "on_trial") and sum(job.slots for job in node.jobs) < node.slots:
            what = "is starting" if node.state == "starting" else "has no job" if not node.jobs else "has a free slot"
            raise BadInput(
                f"{node.name} {what} and would take the check's job, so no node would be rented",
                hint=f"`gangline nodes drain {node.id}` gives it back first",
            )
    if pool.nodes >= pool.nodes_max:
        raise BadInput(
            f"the pool {pool.name} may have {pool.nodes_max} nodes and has {pool.nodes}, so no node would be rented",
            hint=f"`gangline pools set {pool.name} --nodes {pool.nodes_min}..{pool.nodes + 1}`",
        )


def _the_offer(pool: PoolView, admitted: Sequence[OfferView], offer: str) -> list[OfferView]:
    for each in pool.offered:
        if each.id == offer and each.excluded:
            raise BadInput(f"the pool {pool.name} does not rent {offer}: {each.excluded}", hint=_shows(pool))
    chosen = [each for each in admitted if each.id == offer]
    if not chosen:
        raise BadInput(f"the provider of {pool.name} has no offer {offer} now", hint=_shows(pool))
    rivals = [each.id for each in admitted if each.id != offer and chosen[0].gpu in ("", each.gpu)]
    if rivals:
        raise BadInput(
            f"the server might rent {rivals[0]} instead of {offer}, as it has the same GPU",
            hint=f"`gangline pools set {pool.name} --offer {offer}` lets the pool rent nothing else",
        )
    return chosen


def _check_price(pool: PoolView, chosen: Sequence[OfferView], limits: CheckLimits) -> None:
    unknown = next((each for each in chosen if not each.price_known), None)
    if unknown and limits.price_known:
        raise BadInput(
            f"the price of {unknown.id} is not known, so --max-usd cannot be kept",
            hint="set a price (`gangline docs money`), or let the time alone limit it with --any-price",
        )
    dearest = max(chosen, key=lambda each: each.price_usd_per_hour if each.price_known else 0.0)
    most = dearest.price_usd_per_hour * limits.minutes_max / 60
    if dearest.price_known and most > limits.usd_max:
        raise BadInput(
            f"{limits.minutes_max:g} minutes of {dearest.id} cost {usd_words(most * 1e6)}, and the check may cost ${limits.usd_max:g}",
            hint="check a cheaper --offer, or change --max-usd or --minutes",
        )


def _shows(pool: PoolView) -> str:
    return f"`gangline pools show {pool.name}` lists the offers, and why some are not rented"


def reached(sight: CheckSight) -> list[CheckStage]:
    """Return the stages that this sight shows, in their order; those before the last one may have been too short to be seen."""
    node, job = sight.node, sight.job
    joined = node is not None and node.joined_ms is not None
    shown: dict[CheckStage, bool] = {
        "rented": node is not None,
        "listed": node is not None and node.instance is not None,
        "joined": joined,
        "passed": joined and node is not None and not _failed_probe(node),
        "training": job.step > 0,
        "saved": job.committed_step > 0,
        "finished": job.state == "succeeded",
    }
    return [stage for stage, is_shown in shown.items() if is_shown]


def _failed_probe(node: NodeDetail) -> str:
    if KIND in node.problems:
        return node.problems[KIND]
    return node.because if node.state == "quarantined" else ""


def why_failed(sight: CheckSight, limits: CheckLimits, offers: Collection[str]) -> str:
    """Return why the check has failed, or an empty text while it may still succeed. Only nodes of `offers` count."""
    node, job = sight.node, sight.job
    if job.state in ("failed", "canceled", "paused"):
        return f"its job is {job.state}: {job.because}"
    if job.node and (node is None or job.node != node.name):
        return f"its job went to {job.node}, which was not rented for it"
    if node is not None and node.offer not in offers:
        return f"{node.name} is of the offer {node.offer}, not of {', '.join(sorted(offers))}"
    if job.state == "succeeded":
        return ""
    if node is not None and _failed_probe(node):
        return f"{node.name} failed its probe: {_failed_probe(node)}"
    if node is not None and node.state == "gone":
        return f"{node.name} {'is gone' if node.joined_ms else 'never joined'}: {node.because}"
    if node is None and sight.refused and sight.refused_s >= REFUSED_S:
        return f"the provider refused {sight.refused}"
    if limits.price_known and sight.spent_usd >= limits.usd_max:
        return f"it has cost {usd_words(sight.spent_usd * 1e6)}, and --max-usd is {limits.usd_max:g}"
    if sight.elapsed_s >= 60 * limits.minutes_max:
        return f"its job has not succeeded in {limits.minutes_max:g} minutes ({_last_known(sight)})"
    return ""


def _last_known(sight: CheckSight) -> str:
    if sight.node is None:
        return f"no node was rented: {sight.refused or sight.job.because}"
    if sight.node.joined_ms is None:
        return f"{sight.node.name} has not joined: {sight.node.because}"
    return f"it is {sight.job.phase or sight.job.state}: {sight.job.because}"


def left_of(instances: Sequence[InstanceView], rentals: Collection[str]) -> list[InstanceView]:
    """Return the instances of these rentals that have not ended."""
    return [each for each in instances if each.rental in rentals and each.billed_to_ms is None]
