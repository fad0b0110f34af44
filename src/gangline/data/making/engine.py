"""Run the pieces of a large job in processes of this machine, or on a Ray cluster. Each piece is one call that returns its result."""

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from gangline.core.errors import BadInput, Unreachable
from gangline.data.place import first_line
from gangline.posix import die_with_parent

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

RETRIES = 3
"""Retries of a piece whose node vanished; an error that a piece raises ends the whole run."""
ANSWER_S = 5.0
FOUND_BY_RAY = ("", "local", "auto")


class Engine(Protocol):
    """A way to run tasks in parallel."""

    def run(self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
        """Yield the result of each task as it ends. An error of one task ends all."""
        ...


class Processes:
    """At most `count` processes of this machine."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
        count = min(self.count, len(tasks))
        if count <= 1:
            yield from map(work, tasks)
            return
        spawn = multiprocessing.get_context("spawn")  # Lance's threads do not survive a fork
        pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=_die_with, initargs=(os.getpid(),))
        ended = False
        try:
            futures = [pool.submit(work, task) for task in tasks]
            for future in as_completed(futures):
                yield future.result()
            ended = True
        except BrokenProcessPool:
            raise Unreachable(
                "a process of the conversion was killed, perhaps because memory ran out",
                hint="repeat the command with fewer --processes; finished work is kept",
            ) from None
        finally:
            for process in [] if ended else list((pool._processes or {}).values()):
                process.kill()  # its piece will be made again
            pool.shutdown(cancel_futures=True)


class Ray:
    """The Ray cluster at `address`, whose nodes have Gangline installed and reach both places; by default a temporary one on this machine.
    With `on_gpus`, each task gets a GPU if the cluster has any."""

    def __init__(self, address: str = "", *, processes: int | None = None, on_gpus: bool = False) -> None:
        self.address = address
        self.processes = processes
        self.on_gpus = on_gpus

    def run(self, work: Callable[[_Task], _Result], tasks: Sequence[_Task]) -> Iterator[_Result]:
        _knock(self.address)
        try:
            import ray
            from ray.exceptions import RayError, RayTaskError
        except ModuleNotFoundError:
            raise BadInput("Ray is not installed", hint="pip install 'ray>=2.40'") from None
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"include_dashboard": False, "num_cpus": self.processes} if not self.address else {}
        try:
            ray.init(address=self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError) as error:
            raise Unreachable(
                f"no Ray cluster can be used at {self.address or 'this box'}: {first_line(error)}",
                hint="`ray status` shows whether one runs; it needs the same version of Ray as this machine",
            ) from error
        try:
            gpus = 1 if self.on_gpus and ray.cluster_resources().get("GPU") else 0
            one = ray.remote(max_retries=RETRIES, num_gpus=gpus)(_done)
            waiting = [one.remote(work, task) for task in tasks]
            while waiting:
                done, waiting = ray.wait(waiting)
                yield from ray.get(done)
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            if not isinstance(cause, RayError):
                raise cause from None
            raise Unreachable(
                f"Ray failed: {first_line(cause)}", hint="repeat the command; finished work is kept"
            ) from cause
        finally:
            ray.shutdown()


def _knock(address: str) -> None:
    """Raise `Unreachable` if nothing answers at the address: Ray itself would retry for minutes."""
    if address in FOUND_BY_RAY:
        return
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        raise BadInput(f"{address} is not an address of a Ray cluster", hint="for example 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise Unreachable(
            f"nothing answers at {address}: {why}",
            hint="start a Ray cluster there, or omit --ray-address to use one on this machine",
        ) from None


def _done(work: Callable[[_Task], _Result], task: _Task) -> _Result:
    return work(task)


def _die_with(parent: int) -> None:
    """End this process when its parent ends for any reason. Ctrl-C is left to the parent."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The parent may have ended before the call took effect.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
