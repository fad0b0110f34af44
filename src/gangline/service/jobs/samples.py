"""Render samples: pictures of a training job's checkpoints and of its result, wherever that delays nobody.

If pictures of a checkpoint are due, they become a job, or the training node is asked to render them. Those of a result always become a job.
No training ever waits for them.
"""

import json
from dataclasses import dataclass, replace

from gangline.core.errors import BadInput, Unreachable
from gangline.core.files import File
from gangline.core.job import Node
from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.jobs.failure import Verdict
from gangline.core.jobs.keys import attempt_prefix, folder_prefix
from gangline.core.jobs.samples import Rhythm, are_samples_due, may_go_elsewhere
from gangline.core.jobs.wishes import is_shown_by
from gangline.core.money.cost import unknown_parts
from gangline.core.runs.contract import PICTURES, pictures_folder
from gangline.core.runs.proof import isolation_of, wanted_kind
from gangline.core.specs.spec import SampleSpec, TrainingSpec, parse_spec, parse_task, spec_hash, workload
from gangline.core.views import SamplesView
from gangline.ports.server import Committed, Done, Hold, Refused, Show, Stale
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import (
    LOST,
    TRIES_MAX,
    as_job,
    ask_to_stop,
    event,
    holding,
    job_of_hold,
    load_wishes,
    moving,
)
from gangline.service.content.blobs import check_here, listing, naming
from gangline.service.content.upload import stored_as
from gangline.service.deployment import Deployment
from gangline.service.jobs.submit import NOBODY, Asker, adding, earlier_job
from gangline.service.money.bill import load_purse

ATTEMPTS_MAX = 2
"""A rendering that fails is tried once more: nothing waits for it."""
AS_IT_IS_NOW = 2
"""In the column `here`: the training node is to draw what it has now, and not the step that it has kept for its rhythm."""


def due(
    deployment: Deployment, held: Row, node: str, checkpoint: str, step: int, now_ms: int, *, wished: bool
) -> list[Write]:
    """Return the writes, for the transaction that commits a checkpoint, that request its pictures if they are due, or `wished`."""
    if held["sampled_step"] is None:
        return []
    rhythm = Rhythm(
        every_steps=held["sample_every_steps"],
        every_s=held["sample_every_s"],
        step=held["sampled_step"],
        at_ms=held["sampled_ms"],
    )
    if not (wished or are_samples_due(rhythm, step, now_ms)):
        return []
    job = deployment.store.load("job", id=held["id"])[0]
    free = [Node(**row) for row in deployment.store.load("free_nodes", but=node)]
    nodes = [other for other in free if may_render_steps(deployment, other, now_ms)]
    elsewhere = may_go_elsewhere(_candidate(job), nodes, load_purse(deployment, job["project"]), now_ms)
    here = 0 if elsewhere else AS_IT_IS_NOW if wished else 1
    # What a node renders itself is done once it has: it may be gone before.
    wish = {"job": job["id"], "kind": "sample"}
    answer = [write("drop_wish", **wish) if elsewhere else write("wish_saved", **wish)] if wished else []
    asked = write("sampled", job=job["id"], step=step, here=here, now=now_ms)
    return [asked, *answer, *(showing(deployment, job, checkpoint, step, now_ms) if elsewhere else ())]


def showing(deployment: Deployment, job: Row, checkpoint: str, step: int, now_ms: int) -> list[Write]:
    """Return the writes of a job that renders a checkpoint of this one."""
    return _adding_job(deployment, deployment.new_id("job"), job, checkpoint, step, now_ms)


def may_render_steps(deployment: Deployment, node: Node, now_ms: int) -> bool:
    """Return whether this node may render pictures of steps. They do not keep a node rented: one that has had nothing to train for `idle_s`
    is left idle, and so returned, if its pool has more nodes than its minimum.

    Pictures of results are exempt: each is rendered once, and when the node is gone another may not come for long.
    """
    pool = deployment.pools.get(node.pool)
    if not node.rented or pool is None:
        return True
    trained = deployment.store.load("last_training", node=node.id)
    since_ms = max(node.joined_ms or 0, trained[0]["ended_ms"] if trained else 0)
    if now_ms - since_ms < deployment.policy.idle_s * 1000:
        return True
    return deployment.store.load("rented_in_pool", pool=node.pool)[0]["nodes"] <= pool.limits.nodes_min


def give_way(deployment: Deployment, now_ms: int) -> None:
    """Stop rendering on as many nodes as there are training jobs that wait and that no free node takes."""
    before = now_ms - round(deployment.policy.claim_interval_s * 1000)
    money = {"reserve_h": deployment.policy.reserve_s / 3600, "egress": deployment.policy.egress_micro_usd_per_byte}
    rows = deployment.store.load("in_the_way", before=before, **money)
    if rows:
        waiting = deployment.store.load("queue_length", limit=len(rows))[0]["jobs"]
        for row in rows[:waiting]:
            ask_to_stop(deployment, row, "training waits for this node", now_ms)


def committed(deployment: Deployment, held: Row, step: int) -> Committed:
    """Return whether the training node should render this step. A repeated request, after a lost answer, gets the same answer."""
    if held["sampled_step"] is None:
        return Committed()
    path = f"{pictures_folder(step)}/{PICTURES}"
    rows = deployment.store.load("to_render_here", job=held["id"], step=step, path=path)
    return Committed(render=bool(rows), now=bool(rows) and rows[0]["here"] == AS_IT_IS_NOW)


def _candidate(parent: Row) -> ClaimCandidate:
    """Return the rendering job as the claim will see it."""
    known = {name: parent[name] for name in ("project", "priority", "base", "gpu", "gpu_memory_gb", "pool", "trust")}
    new = {"id": "", "fencing": 0, "version": 1, "queued_ms": 0, "ready_ms": 0, "slots": 1, "download_bytes": 0}
    wanted = wanted_kind("sample", isolation_of(parent["wanted"]))
    return ClaimCandidate(**known, **new, kind="sample", wanted=wanted, numerics="", banned=False)


def of_result(deployment: Deployment, job: str, step: int, now_ms: int) -> list[Write]:
    """Return the writes, for the transaction that ends a training job at `step`, that request pictures of its result, beside the base's."""
    parent = deployment.store.load("job", id=job)[0]
    spec = parse_spec(json.loads(parent["spec"]))
    wanted = spec.sample_result and spec.prompts_to_sample
    return _adding_job(deployment, deployment.new_id("job"), parent, None, step, now_ms) if wanted else []


def retry_samples(
    deployment: Deployment, ended: Row, now_ms: int, request: str | None = None, asker: Asker = NOBODY
) -> str:
    """Submit a new job that renders what this one should have, and return its id. Raise `BadInput` if its checkpoint may be gone."""
    task = parse_task(json.loads(ended["spec"]))
    assert isinstance(task, SampleSpec), "it renders"
    if task.checkpoint:
        raise BadInput(
            f"{ended['id']} renders a checkpoint that may have been deleted",
            hint="the job renders pictures of its later checkpoints by itself",
        )
    for _ in range(TRIES_MAX):
        # Another server may have answered the same request meanwhile.
        earlier = earlier_job(deployment, ended["project"], request, asker)
        if earlier:
            return earlier
        job, parent = deployment.new_id("job"), deployment.store.load("job", id=task.job)[0]
        if parent["removed_ms"] is not None:
            raise BadInput(f"{task.job} was deleted, so its pictures cannot be rendered")
        # If the parent is being deleted concurrently, the guard makes `remove` look again, and it cancels this job first.
        moved = guard("say_why", id=parent["id"], version=parent["version"], because=parent["because"])
        check_here(deployment, parent["project"], task.input_files())
        used = naming(parent["project"], task.input_files().values(), now_ms)
        last = parent["ended_step"] or parent["steps"]
        if deployment.store.apply(
            *used, *_adding_job(deployment, job, parent, None, last, now_ms, request, asker), moved
        ):
            return job
    raise Unreachable(f"{task.job} changed {TRIES_MAX} times meanwhile; try again")


def _adding_job(
    deployment: Deployment,
    job: str,
    parent: Row,
    checkpoint: str | None,
    step: int,
    now_ms: int,
    request: str | None = None,
    asker: Asker = NOBODY,
) -> list[Write]:
    """Return the writes of a job that renders pictures of `parent`. If nobody asked for it, it belongs to whom its parent belongs."""
    of = parse_spec(json.loads(parent["spec"]))
    assert isinstance(of, TrainingSpec), "nothing else learns what pictures could show"
    of = replace(of, needs=replace(of.needs, slots=1, gpu_memory_gb=parent["gpu_memory_gb"]), attempts_max=ATTEMPTS_MAX)
    spec = SampleSpec(of=of, job=parent["id"], checkpoint=checkpoint, step=step)
    what = f"step {step}" if checkpoint else "the result"
    because = f"waits for a node that has nothing to train, to render {what} of {parent['id']}"
    return [
        adding(
            spec,
            of,
            id=job,
            project=parent["project"],
            name=f"{parent['name']}, {what}",
            spec_hash=spec_hash(spec),
            request=request,
            because=because,
            steps=spec.pictures,
            workload=workload(spec),
            exact="off",
            owner=asker.owner or parent["owner"],
            fingerprint=asker.fingerprint,
            now=now_ms,
        ),
        *listing(parent["project"], job, spec.input_files().values()),
        write("add_sample", job=job, parent=parent["id"], checkpoint=checkpoint, step=step),
        event(job, "submitted", because, now_ms),
    ]


def drop_overtaken(deployment: Deployment, parent: str, now_ms: int) -> None:
    """Cancel queued samples of a job, except for the newest: older steps are not worth a node."""
    rows = deployment.store.load("open_samples", parent=parent)
    for row in rows[1:]:
        if row["state"] == "queued":
            _drop(deployment, row, f"step {rows[0]['step']} was reached before a node was free", now_ms)


def drop_late(deployment: Deployment, now_ms: int) -> None:
    """Cancel samples that waited too long, as samples alone start no node. Those of a result wait much longer than those of a step."""
    steps_ms, results_ms = (
        round(wait_s * 1000) for wait_s in (deployment.policy.samples_wait_s, deployment.policy.results_wait_s)
    )
    for row in deployment.store.load("late_samples", before=now_ms - steps_ms, results_before=now_ms - results_ms):
        _drop(deployment, row, f"no node had time for it in {(now_ms - row['submitted_ms']) / 3_600_000:.0f} h", now_ms)


def _drop(deployment: Deployment, row: Row, because: str, now_ms: int) -> None:
    """Cancel the job, unless a node has just taken it."""
    job = as_job(row)
    verdict = Verdict(attempt="canceled", job="canceled", attempts_failed=job.attempts_failed, because=because)
    deployment.store.apply(moving(job, verdict, now_ms), event(job.id, "canceled", because, now_ms))


@dataclass(frozen=True, slots=True)
class SampleFolder:
    """The destination of pictures: the job among whose results they appear, and the folder there."""

    job: str
    folder: str


def sample_folder_of(deployment: Deployment, job: str) -> SampleFolder:
    """Return where a rendering job's pictures belong: among the results of the job that it shows, with a folder for each step."""
    row = deployment.store.load("sample", job=job)[0]
    return SampleFolder(row["parent"], pictures_folder(row["step"]) if row["checkpoint"] else "samples")


def adding_artifact(target: SampleFolder, attempt: str, key: str, file: File, now_ms: int) -> Write:
    path = f"{target.folder}/{file.path}" if target.folder else file.path
    facts = {"key": key, "bytes": file.bytes, "sha256": file.sha256, "now": now_ms}
    return write("add_artifact", job=target.job, path=path, attempt=attempt, **facts)


def rendered(target: SampleFolder, live: Row, now_ms: int) -> list[Write]:
    """Return the writes after a rendering: the node has the base on disk, trackers get the pictures, followers get an event."""
    return [
        write("add_base", node=live["node"], base=live["job_base"]),
        write("track_again", job=target.job),
        event(target.job, "rendered", f"{target.folder} by {live['node_name']}", now_ms, node=live["node"]),
    ]


def keep_samples(deployment: Deployment, node: str, hold: Hold, request: Show, now_ms: int) -> Done | Stale | Refused:
    """Record pictures that the training node rendered between two steps. They are results from now on, however the attempt ends."""
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    prefix = folder_prefix(attempt_prefix(job["project"], job["id"], hold.attempt), "samples", 0)
    target, files = SampleFolder(job["id"], "samples"), [(f"{prefix}/{file.path}", file) for file in request.files]
    attested = stored_as(deployment, files)
    if isinstance(attested, Refused):
        return attested
    writes = [adding_artifact(target, hold.attempt, key, file, now_ms) for key, file in files]
    told = event(job["id"], "rendered", f"{pictures_folder(request.step)} between two steps", now_ms, node=node)
    first = all(artifact.values["path"] not in _known(deployment, job["id"]) for artifact in writes)
    if is_shown_by(load_wishes(deployment, job["id"]), hold.attempt, request.step):
        writes.append(write("drop_wish", job=job["id"], kind="sample"))
    held = deployment.store.apply(holding(node, hold, now_ms), *writes, *([told] if first else ()))
    return Done() if held else LOST


def _known(deployment: Deployment, job: str) -> set[str]:
    return {row["path"] for row in deployment.store.load("artifacts", job=job)}


def samples_view(deployment: Deployment, job: str) -> SamplesView:
    rows = deployment.store.load("samples_of", job=job)
    failed = _missed(rows)
    return SamplesView(
        pictures=deployment.store.load("pictures", job=job)[0]["pictures"],
        waiting=sum(row["state"] in ("queued", "running") for row in rows),
        failed=len(failed),
        because=f"{failed[-1]['id']}: {failed[-1]['because']}" if failed else "",
        cost_usd=sum(row["micro_usd"] for row in rows) / 1e6,
        cost_lacks=unknown_parts(deployment.policy, node_time=any(row["unpriced"] for row in rows)) if rows else (),
    )


def _missed(rows: list[Row]) -> list[Row]:
    """Return the samples to report as failed.

    A result counts until it is shown, also if it was canceled; a step only if it failed, as newer steps replace it.
    """
    results = [row for row in rows if not row["checkpoint"]]
    steps = [row for row in rows if row["checkpoint"] and row["state"] == "failed"]
    if any(row["state"] == "succeeded" for row in results):
        return steps
    return [*steps, *(row for row in results if row["state"] in ("failed", "canceled"))]
