"""Who does the pieces of a large work: processes of this box, or a Ray cluster. Each piece is one call that says what came of it."""

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from gangline.core.errors import BadInput, Unreachable
from gangline.posix import die_with_parent

Task = TypeVar("Task")
Result = TypeVar("Result")

RETRIES = 3
"""Of a piece whose node vanished; what a piece raises ends all."""


class Engine(Protocol):
    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """What came of each, as they end. What one raises ends all."""
        ...


class Processes:
    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        count = min(self.count, len(tasks))
        if count <= 1:
            yield from map(work, tasks)
            return
        spawn = multiprocessing.get_context("spawn")  # Lance's threads do not live through a fork
        pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=_die_with, initargs=(os.getpid(),))
        ended = False
        try:
            futures = [pool.submit(work, task) for task in tasks]
            for future in as_completed(futures):
                yield future.result()
            ended = True
        except BrokenProcessPool:
            raise Unreachable(
                "a process of the conversion was ended from outside, perhaps for want of memory",
                hint="say the same again with fewer --processes: what is done stays done",
            ) from None
        finally:
            for process in [] if ended else list((pool._processes or {}).values()):
                process.kill()  # what it was at is done anew
            pool.shutdown(cancel_futures=True)


class Ray:
    """`address` of a cluster, whose nodes have Gangline installed and reach both places; empty: one on this box for the time being."""

    def __init__(self, address: str = "", *, processes: int | None = None) -> None:
        self.address = address
        self.processes = processes

    def run(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        try:
            import ray
            from ray.exceptions import RayTaskError
        except ModuleNotFoundError:
            raise BadInput("Ray is not installed", hint="pip install 'ray>=2.40'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"include_dashboard": False, "num_cpus": self.processes} if not self.address else {}
        ray.init(address=self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
        try:
            one = ray.remote(max_retries=RETRIES)(_done)
            waiting = [one.remote(work, task) for task in tasks]
            while waiting:
                done, waiting = ray.wait(waiting)
                yield from ray.get(done)
        except RayTaskError as error:
            raise error.cause from None
        finally:
            ray.shutdown()


def _done(work: Callable[[Task], Result], task: Task) -> Result:
    return work(task)


def _die_with(parent: int) -> None:
    """This process ends with its parent, however that ends; Ctrl-C is the parent's to hear."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
