"""What the API says of the offers that a job could run on."""

from dataclasses import dataclass

from gangline.core.fleet.choice import Expectation, OfferFacts
from gangline.core.fleet.needs import NodeShape, QueuedWork, fits
from gangline.core.money.cost import HOUR_MS
from gangline.core.runs.proof import why_unwanted
from gangline.core.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOffer:
    """An offer, and what the job is expected to take and to cost there from its beginning, on a node whose slots all have work.

    `because` says why no node of it is rented for the job now; it is empty if one may be. `measured` is false for a pace that was not
    measured at such a job: it is taken from other jobs, else from the vendor's figures, and is only relative if no such job was measured at
    all (`relative`): then `hours` and `usd` are null. `watched_hours` is how long this offer's nodes worked in the last day, by which
    `interruptions_per_hour` is known. `factor` is the seconds that are paid per second of training.
    """

    pool: str
    offer: str
    gpu: str
    slots: int
    price_usd_per_hour: float
    price_known: bool
    seconds_per_step: float
    measured: bool
    relative: bool
    interruptions_per_hour: float
    watched_hours: float
    cold_start_s: float
    factor: float
    egress_usd: float
    usd_per_step: float
    usd: float | None
    hours: float | None
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOffers:
    """The offers of all pools for a job, those first on which a step is expected to cost least. `silent` has a sentence for each pool whose
    provider's offers are not known."""

    job: str
    offers: tuple[JobOffer, ...]
    silent: tuple[str, ...] = ()


def job_offer(work: QueuedWork, offer: OfferFacts, expected: Expectation, because: str) -> JobOffer:
    known = offer.price_known and not expected.relative
    hours = work.steps * expected.seconds_per_step * expected.factor / 3600
    return JobOffer(
        pool=offer.shape.pool,
        offer=offer.offer,
        gpu=offer.shape.gpu,
        slots=offer.shape.slots,
        price_usd_per_hour=offer.price_micro_usd_per_hour / 1e6,
        price_known=offer.price_known,
        seconds_per_step=expected.seconds_per_step,
        measured=expected.measured,
        relative=expected.relative,
        interruptions_per_hour=expected.interruptions_per_hour,
        watched_hours=offer.history.ms / HOUR_MS,
        cold_start_s=expected.cold_start_s,
        factor=expected.factor,
        egress_usd=expected.egress_micro_usd / 1e6,
        usd_per_step=expected.micro_usd_per_step / 1e6,
        usd=expected.micro_usd_per_step * work.steps / 1e6 if known else None,
        hours=None if expected.relative else hours,
        because=because,
    )


def why_unfit(work: QueuedWork, shape: NodeShape) -> str:
    """Return why no node of this shape can run the job; empty if one can."""
    if fits(work, shape):
        return ""
    if work.pool not in ("", shape.pool):
        return f"the job asks for the pool {work.pool}"
    if work.gpu not in ("", shape.gpu):
        return f"the job asks for {work.gpu}"
    if work.gpu_memory_gb > shape.gpu_memory_gb:
        return f"the job needs {work.gpu_memory_gb:g} GB of GPU memory, and it has {shape.gpu_memory_gb:g}"
    if work.slots > shape.slots:
        return f"the job needs {counted(work.slots, 'GPU')}, and it has {shape.slots}"
    if work.trust > shape.trust:
        return f"the job asks for trust {work.trust}, and its nodes have {shape.trust}"
    lack = why_unwanted(shape.kinds, work.wanted)
    assert lack, "numerics of an offer are not known"
    return f"the pool's nodes have no {lack}"
