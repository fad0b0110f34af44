"""Show where a job could run before it is submitted. This changes nothing and asks no provider and no hub."""

from dataclasses import replace

from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.jobs.placement import MachinePace, PlacementView, place
from gangline.core.models.bases import ROLES
from gangline.core.money.budget import Purse
from gangline.core.runs.proof import wanted_kind
from gangline.core.runs.schedule import rates_on_the_way
from gangline.core.specs.fields import HubBase
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import Spec, parse_spec, workload
from gangline.service.content.bases import how_far
from gangline.service.content.mirror import copied_files, find
from gangline.service.datasets.named import with_dataset_named
from gangline.service.deployment import Deployment
from gangline.service.fleet.supply import load_supply
from gangline.service.money.bill import as_purse
from gangline.service.nodes_here import load_nodes_here

AHEAD_MAX = 1000
PACES_MAX = 1000
"""The number of machines whose pace at this workload is compared, at most."""


def placement(deployment: Deployment, project: str, value: dict[str, object], now_ms: int) -> PlacementView:
    """Return where the job could run. Its files need not be uploaded. Raise `InvalidSpec` if the spec is invalid."""
    return place_spec(deployment, project, parse_spec(with_dataset_named(deployment, project, value)[0]), now_ms)


def place_spec(deployment: Deployment, project: str, spec: Spec, now_ms: int) -> PlacementView:
    """As `placement`, of a spec that was read already."""
    nodes = load_nodes_here(deployment)
    known = deployment.store.load("paces_of_workload", workload=workload(spec), limit=PACES_MAX)
    ahead = deployment.store.load("jobs_before", project=project, priority=spec.priority, limit=AHEAD_MAX)[0]["jobs"]
    found = place(
        _candidate(deployment, project, spec, now_ms),
        _purse(deployment, project),
        nodes,
        load_supply(deployment, nodes),
        [MachinePace(**row) for row in known],
        now_ms,
        deployment.policy,
        taken={row["node"]: row["slots"] for row in deployment.store.load("slots_in_use")},
        ahead=min(ahead, AHEAD_MAX),
        copies=_copies(deployment, project, spec),
    )
    return replace(found, rates=rates_on_the_way(spec)) if isinstance(spec, TrainingSpec) else found


def _candidate(deployment: Deployment, project: str, spec: Spec, now_ms: int) -> ClaimCandidate:
    """Return the job as it would stand in the queue."""
    files = spec.input_files() | copied_files(deployment, project, spec)
    return ClaimCandidate(
        id="",
        project=project,
        kind=spec.kind,
        wanted=wanted_kind(spec.kind, spec.needs.isolation),
        fencing=0,
        version=0,
        priority=spec.priority,
        queued_ms=now_ms,
        ready_ms=0,
        base=spec.base.id,
        slots=spec.needs.slots,
        download_bytes=sum(file.bytes for file in files.values()),
        gpu=spec.needs.gpu,
        gpu_memory_gb=spec.needs.gpu_memory_gb,
        pool=spec.needs.pool,
        trust=spec.needs.trust,
        numerics="",
        banned=False,
    )


def _purse(deployment: Deployment, project: str) -> Purse:
    """Return the project's purse; an empty one if it does not exist yet, as a project is created with its first job."""
    rows = deployment.store.load("project", id=project)
    if rows:
        return as_purse(rows[0])
    return Purse(project=project, usage=0, usage_ms=0, share=1, budget=None, spent=0, reserved=0)


def _copies(deployment: Deployment, project: str, spec: Spec) -> dict[str, str]:
    """Return how far the mirrors of the job's hub models are, by role. Only models that are named by commit are found, not by branch."""
    models = zip(ROLES, (spec.base, spec.vae), strict=True)
    rows = {role: find(deployment, project, model.id, role) for role, model in models if isinstance(model, HubBase)}
    return {role: row["state"] if row["state"] == "ready" else how_far(row) for role, row in rows.items() if row}
