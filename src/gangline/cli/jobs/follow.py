"""A live line of a job's progress, on standard error."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from gangline.cli.columns import PlainColumn
from gangline.cli.output import cost_alone, err, number, say
from gangline.core.errors import Unreachable
from gangline.core.views import EventView, JobSummary, JobView

if TYPE_CHECKING:
    from gangline.wire.client import Client

AGAIN_S = 0.5


def follow(client: "Client", job: str, *, seen: Callable[[JobView], None] = lambda _: None) -> JobView:
    """Until the job has ended; `seen` is called with every look at it. A server that goes away is waited for."""
    with progress_line() as line:
        task = line.add_task(job, total=None)

        def waiting(error: Unreachable) -> None:
            line.update(task, description=f"waits for the server: {error.message}")

        for told in client.follow_events(job, waiting=waiting):
            if not isinstance(told, EventView):
                found = _look(client, job, waiting)
                show(line, task, found.summary)
                seen(found)
        return _look(client, job, waiting)


def wait_for_pictures(client: "Client", job: str) -> JobView:
    """Until the job has ended, and no picture of it is to come."""
    if client.job(job).summary.ended_ms is None:
        follow(client, job)
    with progress_line() as line:
        task = line.add_task(job, total=None)

        def waiting(error: Unreachable) -> None:
            line.update(task, description=f"waits for the server: {error.message}")

        while (found := _look(client, job, waiting)).samples.waiting:
            line.update(task, description="waits for pictures, from a node that has nothing to train")
            threading.Event().wait(AGAIN_S)
    return found


def _look(client: "Client", job: str, waiting: Callable[[Unreachable], None]) -> JobView:
    while True:
        try:
            return client.job(job)
        except Unreachable as error:
            waiting(error)
            threading.Event().wait(AGAIN_S)


def progress_line() -> Progress:
    return Progress(
        PlainColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=err
    )


def show(line: Progress, task: object, job: JobSummary) -> None:
    where = f" on {job.node_name}" if job.phase and job.node_name else ""
    loss = f"  loss {number(job.loss)}" if job.loss is not None else ""
    text = f"{job.phase or job.state}{where}{loss}  {cost_alone(job.cost_usd, job.cost_lacks)}"
    line.update(task, description=text, completed=job.step, total=job.steps)  # type: ignore[arg-type]


def tell_end(job: JobSummary) -> None:
    say(f"{job.id} {job.state}: {job.because}")
