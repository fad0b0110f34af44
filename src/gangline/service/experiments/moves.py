"""Move jobs of an experiment: pause, hold again, release, cancel. Each is one guarded transaction, and may be repeated."""

from collections.abc import Sequence

from gangline.core.experiments.runs import ExperimentRun, RunWaits
from gangline.core.job import Job
from gangline.core.jobs.queue.helps import TURN
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import JOB_COLUMNS, event
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import experiment_rows
from gangline.service.jobs import steer

AT_ONCE = 200
"""At most this many jobs are released or canceled in one transaction."""


def release_runs(deployment: Deployment, experiment: Row, runs: Sequence[ExperimentRun], now_ms: int) -> None:
    """Let held jobs wait for a node, as long as the experiment is as its row was read: of two servers, one decides who is released. A job
    that changed meanwhile is left for the next look."""
    because, version = f"{TURN}, as a job of its experiment {experiment['name']}", experiment["version"]
    parts = [_releasing(run, because, now_ms) for run in runs]
    for start in range(0, len(parts), AT_ONCE):
        some = parts[start : start + AT_ONCE]
        if _step(deployment, experiment["id"], version, [each for part in some for each in part]):
            version += 1
            continue
        for part in some:
            if _step(deployment, experiment["id"], version, part):
                version += 1
            elif _version_of(deployment, experiment["id"]) != version:
                return


def _step(deployment: Deployment, experiment: str, version: int, writes: Sequence[Write]) -> bool:
    return deployment.store.apply(guard("step_experiment", id=experiment, version=version), *writes)


def _version_of(deployment: Deployment, experiment: str) -> int | None:
    rows = experiment_rows(deployment, [experiment])
    return rows[0]["version"] if rows else None


def _releasing(run: ExperimentRun, because: str, now_ms: int) -> list[Write]:
    return [
        guard("release_job", id=run.job, version=run.version, because=because, now=now_ms),
        write("wait_at", job=run.job, waits=""),
        event(run.job, "admitted", because, now_ms),
    ]


def _apply_each(deployment: Deployment, parts: Sequence[list[Write]]) -> list[int]:
    """Apply the writes of many jobs, some jobs in one transaction. Where one of those changed meanwhile, apply each by itself, and return
    the places of those that failed."""
    failed = list[int]()
    for start in range(0, len(parts), AT_ONCE):
        some = parts[start : start + AT_ONCE]
        if not deployment.store.apply(*(each for part in some for each in part)):
            failed += [place for place, part in enumerate(some, start) if not deployment.store.apply(*part)]
    return failed


def pause_run(deployment: Deployment, row: Row, because: str, waits: RunWaits, now_ms: int) -> bool:
    """Pause a job that waits for a node or has one, which saves and hands it back first. Return False if it changed meanwhile."""
    job, at = _job(row), write("wait_at", job=row["job"], waits=waits)
    if row["last_state"] == "live" and row["state"] == "running":
        return deployment.store.apply(
            write("ask_to_pause", attempt=row["attempt"], because=because, now=now_ms),
            guard("say_why", id=job.id, version=job.version, because=because),
            event(job.id, "asked to stop", because, now_ms, attempt=row["attempt"]),
            at,
        )
    return deployment.store.apply(
        steer.moving_to(job, "paused", because, now_ms), event(job.id, "paused", because, now_ms), at
    )


def holding_again(row: Row, because: str, now_ms: int) -> list[Write]:
    """Return the writes that let a paused job wait for its experiment again, or one that its node is about to hand back."""
    job = _job(row)
    if row["state"] == "paused":
        return [
            steer.moving_to(job, "queued", because, now_ms),
            write("hold_job", id=job.id),
            event(job.id, "advanced", because, now_ms),
        ]
    if row["last_state"] == "live" and row["stop_kind"] == "paused":
        return [
            write("unpause_lease", attempt=row["attempt"], because=because),
            guard("say_why", id=job.id, version=job.version, because=because),
            event(job.id, "advanced", because, now_ms),
        ]
    return [event(job.id, "advanced", because, now_ms)]


def cancel_held(deployment: Deployment, rows: Sequence[Row], because: str, now_ms: int) -> None:
    """Cancel jobs that no node has, also those that a node took meanwhile."""
    parts = [
        [steer.moving_to(_job(row), "canceled", because, now_ms), event(row["job"], "canceled", because, now_ms)]
        for row in rows
    ]
    for place in _apply_each(deployment, parts):
        steer.cancel(deployment, rows[place]["job"], now_ms, because=because)


def _job(row: Row) -> Job:
    return Job(**{name: row["job" if name == "id" else name] for name in JOB_COLUMNS})
