"""Start a trainer as a process of its own session, with a small environment: no token, no key, no user's settings.

When the agent dies the kernel kills the trainer too (PR_SET_PDEATHSIG), so a node never trains without a lease to renew.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from gangline.adapters.host.trainer.enclosures import Bare, Enclosure
from gangline.adapters.host.trainer.in_memory import MemoryOfRuns
from gangline.adapters.host.trainer.run import LOG, ProcessRun
from gangline.core.errors import BadInput
from gangline.posix import die_with_parent

PASSED_ON = (
    "CUDA_VISIBLE_DEVICES",
    "LANG",
    "LD_LIBRARY_PATH",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PATH",
    "PYTHONPATH",
    "TMPDIR",
)


def start_program(
    command: Sequence[str],
    directory: Path,
    *,
    below: Path | None = None,
    enclosure: Enclosure | None = None,
    memory: MemoryOfRuns | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
    told: Any = None,
) -> ProcessRun:
    """Start any program that keeps the contract in `directory`; its working directory is `below`, else that. Its environment has `more`,
    and names its folder in `memory`, if it can have one.

    Its standard input has `told` as JSON: what no other process may see, and what must not change how an enclosure starts. Raises
    `BadInput` if it cannot be started.
    """
    enclosure = enclosure or Bare()
    (directory / LOG).touch()
    place = enclosure.take(directory)
    in_memory = memory.enter(directory, place, enclosure) if memory else None
    given = {**more, **in_memory.environment} if in_memory else more
    with (place / LOG).open("ab") as log, _holding(told) as stdin:
        try:
            process = start_process(
                command, enclosure, below=below or place, home=place, stdin=stdin, log=log, more=given
            )
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadInput(
                f"{command[0]} cannot be started: {why}", hint="check that it is installed, and in PATH"
            ) from None
    return ProcessRun(process, place, enclosure, in_memory.folder if in_memory else None)


@contextmanager
def _holding(told: Any) -> Iterator[int]:
    """Yield a file in memory with this as JSON, at its beginning; without anything, what is empty."""
    if told is None:
        yield subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("told", os.MFD_CLOEXEC), "w+") as file:
        json.dump(told, file)
        file.flush()
        file.seek(0)
        yield file.fileno()


def start_process(
    command: Sequence[str],
    enclosure: Enclosure,
    *,
    below: str | Path,
    home: str | Path,
    stdin: int,
    log: IO[bytes] | int,
    more: Mapping[str, str] = MappingProxyType({}),
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        enclosure.wrap(command, below),
        cwd=below,
        env={**_environment(home), **more},
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=pass_fds,
        start_new_session=True,
        preexec_fn=partial(_begin, enclosure.holds_back),  # noqa: PLW1509 - it makes two system calls
        **enclosure.identity(),
    )


def _begin(holds_back: frozenset[int]) -> None:
    die_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, holds_back)


def _environment(home: str | Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in PASSED_ON}
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}
    return {"OMP_NUM_THREADS": "1"} | kept | quiet | {"HOME": str(home)}
