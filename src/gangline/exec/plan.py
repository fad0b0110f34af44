"""The inputs, the tools and the summary of a run of a command."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangline.core.command.layout import Rules
from gangline.core.command.lineage import CommittedCheckpoint
from gangline.exec.run_prefix import RunPrefix
from gangline.ports.command import StartCommand
from gangline.ports.notifier import Notifier
from gangline.ports.results import ResultFiles
from gangline.ports.workspace import Workspace

EXIT_OVERTAKEN = 77
EXIT_INTERRUPTED = 130
NICE = 10
"""How far the upload threads lower their priority below the command (setpriority(2))."""


class Stopped(BaseException):
    """Raised in the main thread by a signal before the command starts; a BaseException, so that no handler of errors keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlan:
    """What the user asked for. Checkpoints of the steps in `pins` are kept for good. `keep_after_end` is how many others stay after the
    command has finished; None keeps those that are there. `grace_s` is how long the command may take to stop."""

    command: tuple[str, ...]
    rules: Rules = field(default_factory=Rules)
    keep: int = 2
    keep_after_end: int | None = None
    pins: frozenset[int] = frozenset()
    grace_s: float = 90.0
    stop_signal: int = signal.SIGTERM
    usd_per_hour: float | None = None
    any_script: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a run works with. `notice` returns why this machine is about to be preempted, or "". `download` fetches the data until its
    argument returns True, and returns the number of bytes. `show` receives what the command prints and appends it to `log`. `environment`
    is the command's environment. `safe` is called with each checkpoint that is in the store, before older ones are deleted; who gives it
    reports checkpoints and results."""

    prefix: RunPrefix
    workspace: Workspace
    files: ResultFiles
    start: StartCommand
    notifier: Notifier
    notice: Callable[[], str]
    download: Callable[[Callable[[], bool]], int]
    show: Callable[[int, bytes], None]
    log: Path
    say: Callable[[str], None]
    status: Callable[[str], None]
    host: str
    environment: Mapping[str, str]
    now_s: Callable[[], float]
    now_ms: Callable[[], int]
    safe: Callable[[CommittedCheckpoint], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a run. Seconds and cost cover all runs; checkpoints and bytes cover this one."""

    run: int
    runs: int
    exit_code: int
    because: str
    restored_from: str | None
    restored_step: int | None
    checkpoints: int
    step: int | None
    bytes_uploaded: int
    bytes_downloaded: int
    seconds: float
    seconds_lost: float
    cost_usd: float | None
    results: str | None
