"""Explain where a job's node would be rented, and why there."""

from gangline.core.fleet.choice import OfferFacts, PaceTable, expect, is_paid
from gangline.core.fleet.explained import JobOffer, JobOffers, job_offer, why_unfit
from gangline.core.fleet.needs import QueuedWork
from gangline.core.policy import Policy
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.fleet.demand import facts_of_offers, load_histories, load_paces
from gangline.service.jobs.query import owned


def explain(deployment: Deployment, project: str, job: str, now_ms: int) -> JobOffers:
    """Return the offers of all pools for a job of this project, as the providers answered last, with the figures of the choice."""
    owned(deployment, project, job)
    work = QueuedWork(**deployment.store.load("work_of_job", job=job)[0])
    histories, paces = load_histories(deployment, now_ms), PaceTable(load_paces(deployment, now_ms))
    found: list[JobOffer] = []
    silent: list[str] = []
    for name, pool in deployment.pools.items():
        answer = deployment.recent.offers_of(name)
        if answer is None or answer.offers is None:
            silent.append(
                f"pool {name}: its provider {f'did not answer: {answer.away}' if answer else 'was not asked yet'}"
            )
            continue
        rented = deployment.store.load("rented_in_pool", pool=name)[0]["nodes"]
        for facts in facts_of_offers(deployment, pool.limits, answer.offers, histories, now_ms):
            expected = expect(work, facts, paces, deployment.policy, shared_by=facts.shape.slots)
            found.append(job_offer(work, facts, expected, _why_not(pool, rented, work, facts, deployment.policy)))
    found.sort(key=lambda each: (bool(each.because), not each.price_known, each.usd_per_step, each.pool, each.offer))
    return JobOffers(job=job, offers=tuple(found), silent=tuple(silent))


def _why_not(pool: RentedPool, rented: int, work: QueuedWork, offer: OfferFacts, policy: Policy) -> str:
    unfit = why_unfit(work, offer.shape)
    if unfit:
        return unfit
    if pool.state != "active":
        return f"the pool is {pool.state}"
    if offer.refused:
        return "its provider had none left at the last request"
    if not is_paid(work, offer, policy):
        return "the project's budget does not pay for it" if offer.price_known else "its price is not known"
    return f"the pool has its {rented} nodes" if rented >= pool.limits.nodes_max else ""
