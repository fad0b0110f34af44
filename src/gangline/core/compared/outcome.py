"""What came of a job, as it is compared with another one."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from gangline.core.experiments.measured import sum_up
from gangline.core.jobs.lists.diff import ComparedJob, JobOutcome
from gangline.core.jobs.story.held_out import held_out_change, holds_out
from gangline.core.runs.metrics import Measured
from gangline.core.views import JobView


def compared_job(
    view: JobView, points: Iterable[Measured], read_report: Callable[[], str | None], now_ms: float
) -> ComparedJob:
    """Return a job with what came of it. `points` are its metrics; `read_report` returns the report of its result, None if there is none
    of at most `REPORT_BYTES_MAX`, and is called only if the metrics have no held-out loss."""
    summary, measured = view.summary, sum_up([*points], ())
    if measured.best_held_out_loss is None:
        last = _held_out_loss_of_result(view, read_report)
        measured = replace(measured, held_out_loss=last, best_held_out_loss=last)
    spent = sum((each.ended_ms or now_ms) - each.started_ms for each in view.attempts) / 1000
    return ComparedJob(
        spec=view.spec,
        outcome=JobOutcome(
            id=view.id,
            name=summary.name,
            state=summary.state,
            because=summary.because,
            step=summary.step,
            steps=summary.steps,
            held_out_loss=measured.held_out_loss,
            best_held_out_loss=measured.best_held_out_loss,
            loss=summary.loss if measured.loss is None else measured.loss,
            seconds=round(max(0.0, spent), 1),
            cost_usd=summary.cost_usd,
            cost_lacks=summary.cost_lacks,
            gpus=tuple(dict.fromkeys(each.gpu for each in view.attempts)),
            numerics=tuple(dict.fromkeys(each.numerics for each in view.attempts if each.numerics)),
        ),
    )


def _held_out_loss_of_result(view: JobView, read_report: Callable[[], str | None]) -> float | None:
    """Return the held-out loss that was measured after training alone."""
    if not holds_out(view.spec) or view.state != "succeeded":
        return None
    report = read_report()
    change = held_out_change(report) if report is not None else None
    return change.after if change else None
