"""Carry out what is decided for experiments: measure their jobs, halve, release, pause within the budget, and end."""

import logging
from collections.abc import Sequence

from gangline.core.canonical import canonical_json
from gangline.core.errors import Unreachable
from gangline.core.experiments.best import BestView, best_so_far
from gangline.core.experiments.halving import HalvingStep, next_step, rungs_of
from gangline.core.experiments.measured import pack_measurements, sum_up, with_held_out
from gangline.core.experiments.release import next_release
from gangline.core.experiments.runs import STOPPED_BEFORE, ExperimentRun, how_jobs_ended
from gangline.core.jobs.lists.labels import BEST, LABELS_MAX, VALUE_MAX
from gangline.core.parsing import to_json
from gangline.ports.store import Row, Write, guard, write
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import LoadedExperiment, count_states, experiment_rows, load_experiment
from gangline.service.experiments.moves import cancel_held, holding_again, pause_run, release_runs
from gangline.service.jobs.lists.labels import labels_of
from gangline.service.jobs.metrics import load_series
from gangline.service.jobs.steer import cancel
from gangline.service.jobs.story.held_out import held_out_of_result

log = logging.getLogger(__name__)
MEASURED_AT_ONCE = 50
"""At most this many jobs are summed up at one look; each reads all of its metrics."""
MEASURED_PARTS = 50
"""A running job is summed up again once it has run a fiftieth longer: at every look, a long one would be read thousands of times."""
RAISED = "continues, as the budget of its experiment was raised"


def tend_experiments(deployment: Deployment, now_ms: int) -> None:
    """Look at every experiment that has not ended, and do what is decided. Repeating it changes nothing more."""
    tend_each(deployment, [row["id"] for row in deployment.store.load("open_experiments")], now_ms)


def tend_each(deployment: Deployment, experiments: Sequence[str], now_ms: int) -> None:
    """Look at these experiments. An error in one of them keeps nothing else from being done."""
    for experiment in experiments:
        try:
            tend_experiment(deployment, experiment, now_ms)
        except Exception:
            log.exception("%s could not be looked at; the next look tries again", experiment)


def tend_experiment(deployment: Deployment, experiment: str, now_ms: int) -> None:
    """Look at one experiment. It is loaded again after each change, as the next decision is about its jobs as they are then."""
    found = _load(deployment, experiment, now_ms)
    if found is None:
        return
    for change in (_stop, _measure, _halve):
        if change(deployment, found, now_ms):
            found = _load(deployment, experiment, now_ms)
            if found is None:
                return
    if all(run.has_ended for run in found.runs):
        _end(deployment, found, now_ms)
        return
    if found.experiment.state == "running":
        _release(deployment, found, now_ms)
    _rest(deployment, found, now_ms)


def _load(deployment: Deployment, experiment: str, now_ms: int) -> LoadedExperiment | None:
    rows = experiment_rows(deployment, [experiment])
    is_open = bool(rows) and rows[0]["ended_ms"] is None
    return load_experiment(deployment, rows[0], now_ms) if is_open else None


def _stop(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> bool:
    """Cancel all jobs of a stopped experiment that have not ended. Return whether there were any."""
    left = [found.rows[run.job] for run in found.runs if not run.has_ended]
    if found.experiment.state != "stopped" or not left:
        return False
    because = f"its experiment {found.experiment.name} was stopped"
    fresh = [row for row in left if row["state"] != "running" and not row["fencing"]]
    cancel_held(deployment, fresh, because, now_ms)
    for row in left:
        if row not in fresh:
            cancel(deployment, row["job"], now_ms, because=because)
    return True


def _measure(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> bool:
    """Sum up the metrics that came since the last look. Return whether there were any."""
    halving = found.experiment.halving
    rungs = rungs_of(halving, found.steps) if halving else ()
    rows = _to_measure(deployment, found, now_ms)
    for row in rows:
        measured = sum_up(load_series(deployment, row["job"]), rungs)
        if row["ended_ms"] is not None and measured.held_out_loss is None:
            try:
                jobs = deployment.store.load("job", id=row["job"])
                measured = with_held_out(measured, held_out_of_result(deployment, jobs[0]) if jobs else None)
            except Unreachable as error:
                log.warning("the report of %s could not be read; the next look tries again: %s", row["job"], error)
                continue
        packed = pack_measurements(measured)
        deployment.store.apply(write("set_measured", job=row["job"], measured=packed, at_ms=row["at_ms"]))
    return bool(rows)


def _to_measure(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> list[Row]:
    return deployment.store.load(
        "runs_to_measure",
        experiment=found.experiment.id,
        parts=MEASURED_PARTS,
        now=now_ms,
        limit=MEASURED_AT_ONCE,
    )


def _halve(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> bool:
    """Do the next step of halving, and end the jobs that earlier ones dropped. Return whether anything was done."""
    if not found.experiment.halving:
        return False
    dropped = [run for run in found.runs if run.dropped and not run.has_ended]
    for run in dropped:
        cancel(deployment, run.job, now_ms, because=run.because)
    if any(row["ended_ms"] is not None for row in _to_measure(deployment, found, now_ms)):
        return bool(dropped)  # what it measured last may decide the rung
    step = next_step(found.runs, found.experiment.halving, found.steps)
    for each in step.pause:
        pause_run(deployment, found.rows[each.run.job], each.because, "rung", now_ms)
    if not (step.advance or step.drop):
        return bool(dropped)
    if deployment.store.apply(*_halving(found, step, now_ms)):
        for each in step.drop:
            if each.run.has_ended:
                continue  # it has a result, and its pictures
            cancel(deployment, each.run.job, now_ms, because=each.because)
    return True


def _halving(found: LoadedExperiment, step: HalvingStep, now_ms: int) -> list[Write]:
    """Return the writes of a decision about a rung: all of it or nothing, so that no job is ranked among the rest of another rung."""
    writes = [guard("step_experiment", id=found.experiment.id, version=found.row["version"])]
    for each in step.advance:
        writes.append(write("advance_run", job=each.run.job))
        if not each.run.has_ended and not _is_its_owners(each.run):
            writes += holding_again(found.rows[each.run.job], each.because, now_ms)
    for each in step.drop:
        writes.append(write("drop_run", job=each.run.job, because=each.because))
    return writes


def _is_its_owners(run: ExperimentRun) -> bool:
    """Return whether its owner has paused a job, which then stays paused whatever its experiment decides."""
    return run.pausing and not run.waits


def _release(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> None:
    decided = next_release(found.experiment, found.runs)
    if decided.continued:
        for run in decided.continued:
            held = holding_again(found.rows[run.job], RAISED, now_ms)
            deployment.store.apply(*held, write("wait_at", job=run.job, waits=""))
        again = _load(deployment, found.experiment.id, now_ms)
        if again is None:
            return
        found = again
        decided = next_release(found.experiment, found.runs)
    for run in decided.pause:
        pause_run(deployment, found.rows[run.job], decided.because, "budget", now_ms)
    if decided.jobs:
        release_runs(deployment, found.row, decided.jobs, now_ms)
    if decided.because != found.experiment.because:
        deployment.store.apply(write("say_why_experiment", id=found.experiment.id, because=decided.because))


def _rest(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> None:
    """Where only its owner can change anything, such as by resuming a job, remember that, so that no look is needed until then."""
    if any(run.held or run.in_progress for run in found.runs) or _to_measure(deployment, found, now_ms):
        return
    seen = sum(run.version for run in found.runs)
    if seen != found.row["seen"]:
        deployment.store.apply(write("see_experiment", id=found.experiment.id, seen=seen))


def _end(deployment: Deployment, found: LoadedExperiment, now_ms: int) -> None:
    """End an experiment once all is measured: record its best job, keep that one's last checkpoint, and label it."""
    if _to_measure(deployment, found, now_ms):
        return
    best = best_so_far(found.runs, found.experiment.measure, ended=True)
    deployment.store.apply(  # where something changed meanwhile, the next look decides again
        guard(
            "end_experiment",
            id=found.experiment.id,
            version=found.row["version"],
            because=_how_it_ended(found),
            best=best.job if best else None,
            best_as=canonical_json(to_json(best)) if best else "",
            now=now_ms,
        ),
        *(_crowning(deployment, found, best) if best else ()),
    )


def _how_it_ended(found: LoadedExperiment) -> str:
    stopped = STOPPED_BEFORE if found.experiment.state == "stopped" else ""
    return stopped + how_jobs_ended(count_states(found.runs))


def _crowning(deployment: Deployment, found: LoadedExperiment, best: BestView) -> list[Write]:
    """Return the writes that keep the last checkpoint of the best job, and label it, if it may have one more label, and its
    owner has given it none of this key."""
    row, labels = found.rows[best.job], labels_of(deployment, best.job)
    kept = deployment.store.load("checkpoints", job=best.job)
    writes = [write("pin_checkpoint", id=kept[0]["id"], pinned=1)] if kept else []
    if BEST not in labels and len(labels) < LABELS_MAX:
        value = found.experiment.name[:VALUE_MAX]
        writes.append(guard("change_job", id=best.job, version=row["version"]))
        writes.append(write("put_label", job=best.job, key=BEST, value=value))
    return writes
