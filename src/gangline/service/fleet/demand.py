"""Find the queued jobs that one more node of a pool could take, given the provider's offers and the projects' budgets."""

from collections import Counter

from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.money.budget import UNPRICED_MICRO_USD, reservation
from gangline.core.policy import Policy
from gangline.core.runs.proof import has_kind, kinds_in, kinds_text
from gangline.core.specs.kinds import KINDS
from gangline.ports.pool import Offer
from gangline.ports.store import Row
from gangline.service.deployment import Deployment


def find_demand(
    deployment: Deployment, pool: PoolLimits, offers: list[Offer], covered: set[str], now_ms: int
) -> tuple[list[Row], list[Row]]:
    """Return the jobs that one more node of this pool could take now, as many as matter; and those of them that no node here may take."""
    stuck, found = dict[str, Row](), dict[str, Row]()
    kinds, lacking = kinds_of_pool(deployment, pool.name, now_ms), _lacking(deployment)
    smallest = min((offer.gpu_memory_gb for offer in offers), default=0)
    for offer in offers:
        could = {
            "now": now_ms,
            "gpu": offer.gpu,
            "gpu_memory_gb": offer.gpu_memory_gb,
            "trust": offer.trust,
            "slots": offer.slots,
            "pool": pool.name,
            "kinds": kinds,
            "reserve": _reserve_slots(offer, 1, 0, deployment.policy),
            "egress": deployment.policy.egress_micro_usd_per_byte,
            "limit": 2 * pool.nodes_max + len(covered),
        }
        fitting = deployment.store.load("demand", **could)
        found |= {job["id"]: job for job in fitting}
        if fitting:
            stuck |= {
                job["id"]: job for job in deployment.store.load("stuck", smallest_gb=smallest, lacking=lacking, **could)
            }
    jobs = sorted((stuck | found).values(), key=lambda job: job["id"] not in covered)
    waiting = [job for job in _affordable(jobs, offers, deployment.policy) if job["id"] not in covered]
    return waiting, [job for job in waiting if job["id"] in stuck]


def kinds_of_pool(deployment: Deployment, pool: str, now_ms: int) -> str:
    """Return the kinds of jobs that a new node of this pool is expected to have the libraries for: those of its recent nodes, or all if
    none came.
    """
    rows = deployment.store.load("kinds_of_pool", pool=pool, since=now_ms - round(deployment.policy.lacking_s * 1000))
    return kinds_text({kind for row in rows for kind in kinds_in(row["kinds"])} or KINDS)


def _lacking(deployment: Deployment) -> str:
    """Return the kinds of jobs that some node in service lacks the libraries for."""
    rows = deployment.store.load("kinds_of_nodes")
    return kinds_text({kind for row in rows for kind in KINDS if not has_kind(row["kinds"], kind)})


def _affordable(jobs: list[Row], offers: list[Offer], policy: Policy) -> list[Row]:
    """Return the jobs of each project that its budget can still reserve, on the cheapest offers that fit."""
    taken: Counter[str] = Counter()
    found: list[Row] = []
    for job in jobs:
        least = min(_reserve(offer, job, policy) for offer in offers if fits(offer, job))
        if job["left"] is None or taken[job["project"]] + least <= job["left"]:
            taken[job["project"]] += least
            found.append(job)
    return found


def _reserve(offer: Offer, job: Row, policy: Policy) -> int:
    return _reserve_slots(offer, job["slots"], job["download_bytes"], policy)


def _reserve_slots(offer: Offer, slots: int, download_bytes: int, policy: Policy) -> int:
    """Return what a job on this many slots reserves of a budget, in micro-dollars; if the price is unknown, more than any budget has."""
    if not offer.price_known:
        return UNPRICED_MICRO_USD * slots
    return reservation(offer.price_micro_usd_per_hour * slots // offer.slots, download_bytes, policy)


def suits(offer: Offer, job: Row, policy: Policy) -> bool:
    """Return whether a node of this offer could run the job, and its project's budget pays for that."""
    return fits(offer, job) and (job["left"] is None or _reserve(offer, job, policy) <= job["left"])


def fits(offer: Offer, job: Row) -> bool:
    """Return whether a node of this offer could run the job, apart from the job's pool and bans."""
    large = offer.gpu_memory_gb >= job["gpu_memory_gb"] and offer.slots >= job["slots"]
    return large and job["gpu"] in ("", offer.gpu) and job["trust"] <= offer.trust
