"""Find out whether a job that runs would find a larger card."""

from dataclasses import fields, replace

from gangline.core.job import WORKING
from gangline.core.jobs.claim import ClaimCandidate, mismatch
from gangline.core.jobs.supply import could_rent
from gangline.service.deployment import Deployment
from gangline.service.fleet.supply import load_supply
from gangline.service.money.bill import load_purse
from gangline.service.nodes_here import load_nodes_here

CANDIDATE_COLUMNS = tuple(field.name for field in fields(ClaimCandidate) if field.name != "banned")


def finds_larger(deployment: Deployment, job: str, gpu_memory_gb: float, now_ms: int) -> bool:
    """Return whether a node with so much GPU memory is here that may take this job, busy or not, or could be rented for it. A job that is
    bound to the numerics of its checkpoints stays on cards of one class, so it finds none."""
    row = deployment.store.load("candidate", id=job)[0]
    found = ClaimCandidate(**{name: row[name] for name in CANDIDATE_COLUMNS}, banned=False)
    candidate = replace(found, gpu_memory_gb=gpu_memory_gb)
    if candidate.numerics:
        return False
    nodes = load_nodes_here(deployment)
    here = (replace(node, slots_free=node.slots) for node in nodes if node.state in WORKING)
    if any(mismatch(candidate, node, now_ms) is None for node in here):
        return True
    supply = load_supply(deployment, nodes)
    return bool(could_rent(candidate, load_purse(deployment, candidate.project), supply, deployment.policy))
