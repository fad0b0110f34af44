"""A live line of a job's progress, on standard error."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from rich.cells import cell_len
from rich.progress import Progress

from gangline.cli.columns import PlainColumn
from gangline.cli.lines import GAP
from gangline.cli.output import EXIT_INTERRUPTED, as_typed, clock, cost_alone, err, format_number, say, usd
from gangline.core.display import printable
from gangline.core.errors import Unreachable
from gangline.core.views import JobSummary, JobView, ProgressView
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client

AGAIN_S = 0.5
BAR_CELLS_MIN, BAR_CELLS_MAX = 6, 24
ORDER = ("what", "where", "done", "bar", "left", "safe", "spent", "loss")


def follow_job(client: "Client", job: str, *, seen: Callable[[JobView], None] = lambda _: None) -> JobView:
    """Follow a job until it ends. `seen` is called with each new state. If the server does not answer, wait for it."""
    with progress_line() as line:
        task = line.add_task(job, total=None)

        def waiting(error: Unreachable) -> None:
            line.update(task, description=f"waiting for the server: {error.message}")

        def look(found: JobView) -> JobView:
            show_progress(line, task, found.summary)
            seen(found)
            return found

        def progress(_: ProgressView) -> None:
            look(client.jobs.get(job, waiting=waiting))

        return look(client.jobs.wait(job, waiting=waiting, progress=progress))


@contextmanager
def watching(job: str, *again: str) -> Iterator[None]:
    """Let Ctrl-C end the watching but not the job, name the command `again` that shows the job, and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"the job continues; `{as_typed('gangline', *(again or ('jobs', 'show', job)))}` shows it again")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def wait_for_pictures(client: "Client", job: str) -> JobView:
    """Wait until the job has ended and no more pictures of it will come."""
    if client.jobs.get(job).summary.ended_ms is None:
        follow_job(client, job)
    return wait_for_rendering(client, [job])[0]


def wait_for_rendering(client: "Client", jobs: Sequence[str]) -> list[JobView]:
    """Wait until no more pictures of these jobs, which have ended, will come."""
    done = list[JobView]()
    with progress_line() as line:
        task = line.add_task("looking for pictures", total=None)

        def waiting(error: Unreachable) -> None:
            line.update(task, description=f"waiting for the server: {error.message}")

        for job in jobs:
            while (found := client.jobs.get(job, waiting=waiting)).samples.waiting:
                has = f"; {len(done)} of {counted(len(jobs), 'job')} have theirs" if len(jobs) > 1 else ""
                line.update(task, description=f"waiting for a node without training work to render pictures{has}")
                threading.Event().wait(AGAIN_S)
            done.append(found)
    return done


def progress_line() -> Progress:
    return Progress(PlainColumn("{task.description}"), console=err)


def show_progress(line: Progress, task: object, job: JobSummary) -> None:
    line.update(task, description=progress_words(job, err.width))  # type: ignore[arg-type]


def progress_words(job: JobSummary, width: int) -> str:
    """Return how far a job is, in one line of at most `width` cells; what matters least is left out first."""
    spent = cost_alone(job.cost_usd, job.cost_lacks) if job.attempts or job.cost_usd else ""
    if job.step and job.cost_usd and not job.cost_lacks:
        spent += f" ({usd(job.cost_usd / job.step)}/step)"
    what = printable(job.phase or job.state)
    pieces = {
        "done": job.steps_done,
        "left": f"{clock(job.eta_s)} left" if job.eta_s is not None else "",
        "safe": f"safe {job.committed_step}" if job.phase else "",
        "what": what,
        "spent": spent,
        "bar": " " * BAR_CELLS_MIN,
        "where": f"on {printable(job.node_name)}" if job.phase and job.node_name else "",
        "loss": f"loss {format_number(job.loss)}" if job.loss is not None else "",
    }
    shown: dict[str, str] = {}
    for name, words in pieces.items():  # the first ones matter most
        if words and _cells({**shown, name: words}) <= width:
            shown[name] = words
    if "bar" in shown:
        cells = min(width - _cells(shown) + BAR_CELLS_MIN, BAR_CELLS_MAX)
        shown["bar"] = bar(job.step / job.steps if job.steps else 0.0, cells)
    line = (" " * GAP).join(shown[name] for name in ORDER if name in shown)
    return line.replace(f"{what}  on ", f"{what} on ", 1)


def _cells(shown: dict[str, str]) -> int:
    return sum(map(cell_len, shown.values())) + GAP * max(0, len(shown) - 1)


def bar(share: float, cells: int) -> str:
    full = round(cells * min(max(share, 0.0), 1.0))
    return "━" * full + "─" * (cells - full)


def tell_end(job: JobSummary) -> None:
    say(f"{job.id} {job.state}: {job.because}")
