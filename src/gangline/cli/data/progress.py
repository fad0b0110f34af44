"""A bar for what takes long, and an end to it that loses nothing."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from gangline.cli.columns import PlainColumn
from gangline.cli.output import EXIT_INTERRUPTED, duration, err, say


@contextmanager
def said_again() -> Iterator[None]:
    """On Ctrl-C exit at once, without waiting for downloads or pieces in progress: the same command continues from the
    finished ones."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; finished pieces are kept, and the same command continues from there")
        sys.stdout.flush()
        os._exit(EXIT_INTERRUPTED)


@contextmanager
def progress(what: str) -> Iterator[Callable[[float, int, int, str], None]]:
    """Show a progress bar on a terminal. It is called with the finished share, the count, how many of these an earlier
    run finished, and a remark."""
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        PlainColumn("{task.fields[count]} " + what),
        PlainColumn("{task.fields[rate]}"),
        PlainColumn("{task.fields[left]}"),
        PlainColumn("{task.fields[remark]}"),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        bar: TaskID = shown.add_task(what, total=1.0, count=0, rate="", left="", remark="")
        begun: list[float] = []

        def move(share: float, count: int, before: int, remark: str) -> None:
            begun.append(share)
            now, elapsed_s = share - begun[0], shown.tasks[0].elapsed or 0.0
            rate = f"{(count - before) / elapsed_s:.0f} a second" if now > 0 else ""
            left = f"{duration((1 - share) / now * elapsed_s)} left" if now > 0 else ""
            shown.update(bar, completed=share, count=count, rate=rate, left=left, remark=remark)

        yield move
