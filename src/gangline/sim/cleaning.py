"""Ask what users ask of jobs; delete and keep stored objects as users do, and as the service does when much time has passed."""

from random import Random

from gangline.service.content.blobs import delete_given_up, give_up_unused
from gangline.service.content.sweep import sweep_attempts
from gangline.service.deployment import Deployment
from gangline.service.jobs import steer, wishes
from gangline.service.jobs.extension.extend import extend
from gangline.service.retention import removal, storage
from gangline.service.retention.ages import expire_checkpoints, expire_logs, expire_previews
from gangline.sim.objects import SimObjects
from gangline.sim.store import SimStore
from gangline.sim.world import World


def delete_some_job(deployment: Deployment, store: SimStore, rng: Random, now_ms: int) -> bool:
    """Delete a random job that has ended. Return False if there is none."""
    rows = store.look(
        "SELECT id FROM job WHERE ended_ms IS NOT NULL AND removed_ms IS NULL AND kind <> 'sample' ORDER BY id"
    )
    if rows:
        removal.remove(deployment, rng.choice(rows)[0], now_ms)
    return bool(rows)


def pin_some_checkpoint(deployment: Deployment, store: SimStore, rng: Random) -> bool:
    """Pin a random checkpoint, or unpin it if it is pinned. Return False if there is none."""
    rows = store.look("SELECT job, step, pinned FROM checkpoint WHERE state = 'committed' ORDER BY id")
    if rows:
        job, step, pinned = rng.choice(rows)
        storage.pin(deployment, deployment.store.load("job", id=job)[0], step, pinned=not pinned)
    return bool(rows)


def retry_some_from_checkpoint(deployment: Deployment, store: SimStore, rng: Random, now_ms: int) -> bool:
    """Submit a job again that has ended, from a checkpoint that it keeps. Return False if there is no such job."""
    rows = store.look(
        "SELECT job.project, job.id, checkpoint.step FROM job JOIN checkpoint ON checkpoint.job = job.id "
        "WHERE checkpoint.state = 'committed' AND job.ended_ms IS NOT NULL AND job.removed_ms IS NULL ORDER BY job.id, checkpoint.step"
    )
    if rows:
        project, job, step = rng.choice(rows)
        steer.submit_again(deployment, project, job, now_ms, from_step=step)
    return bool(rows)


def extend_some_job(deployment: Deployment, store: SimStore, rng: Random, now_ms: int) -> bool:
    """Extend a random job that has ended and keeps a checkpoint. Return False if there is none."""
    rows = store.look(
        "SELECT DISTINCT job.id, job.steps FROM job JOIN checkpoint ON checkpoint.job = job.id "
        "WHERE checkpoint.state = 'committed' AND job.ended_ms IS NOT NULL AND job.removed_ms IS NULL AND job.kind <> 'sample' "
        "ORDER BY job.id"
    )
    if rows:
        job, steps = rng.choice(rows)
        row = deployment.store.load("job", id=job)[0]
        extend(deployment, row["project"], row, steps + rng.randrange(5, 60), "stretch", now_ms)
    return bool(rows)


def ask_some_job(deployment: Deployment, store: SimStore, rng: Random, now_ms: int) -> str:
    """Ask a random job to save, to show itself or to finish. Return which, or an empty text if there is none or it was asked before."""
    rows = store.look(
        "SELECT id FROM job WHERE ended_ms IS NULL AND fencing > 0 AND kind <> 'sample' ORDER BY state DESC, id LIMIT 20"
    )
    if not rows:
        return ""
    asks = {
        "checkpoint asked for": wishes.ask_to_save,
        "pictures asked for": wishes.ask_for_samples,
        "finish asked for": wishes.ask_to_finish,
    }
    job, what = rng.choice(rows)[0], rng.choice(list(asks))
    return what if asks[what](deployment, job, now_ms) else ""


def sweep_all(deployment: Deployment, store: SimStore) -> None:
    """Sweep all attempts, as if all had ended long ago."""
    now_ms = deployment.store.now_ms() + round(deployment.policy.orphans_s * 1000) + 1
    while store.look("SELECT 1 FROM attempt WHERE swept = 0 LIMIT 1"):
        sweep_attempts(deployment, now_ms)


def age_all(deployment: Deployment, world: World, store: SimStore, objects: SimObjects) -> None:
    """Let so much time pass that everything is older than its maximum age, and expire it.

    Each call of the service deletes a limited number of objects, so the calls are repeated until nothing changes.
    """
    policy = deployment.policy
    kept_s = (
        policy.checkpoints_succeeded_s,
        policy.checkpoints_ended_s,
        policy.logs_s,
        policy.previews_s,
        policy.inputs_s,
    )
    world.now_ms += round((max(kept_s) + policy.orphans_s) * 1000) + 1
    before = -1
    while before != len(objects.objects):
        before = len(objects.objects)
        for part in (expire_checkpoints, expire_logs, expire_previews, give_up_unused, delete_given_up):
            part(deployment, world.now_ms)
        sweep_all(deployment, store)
