"""What a run of a command is asked for, works with, and tells at its end."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangline.core.command.layout import Rules
from gangline.exec.run_prefix import RunPrefix
from gangline.ports.command import StartCommand
from gangline.ports.notifier import Notifier
from gangline.ports.results import ResultFiles
from gangline.ports.workspace import Workspace

EXIT_OVERTAKEN = 77
EXIT_INTERRUPTED = 130
NICE = 10
"""How far what sends stands back for the command (setpriority(2))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecPlan:
    """`pins` are steps whose checkpoints are kept for good. `keep_after_end`: how many others stay once the command has come to its end;
    None: those that are there. `grace_s` is how long the command may take to stop."""

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
    """`notice` says why this machine is about to be taken back, once somebody has told so. `bring` fetches the data, until it
    is `stopped`, and says how many bytes it were. `show` gets what the command prints, and keeps it in `log`. `environment`: what the
    command finds set."""

    prefix: RunPrefix
    workspace: Workspace
    files: ResultFiles
    start: StartCommand
    notifier: Notifier
    notice: Callable[[], str]
    bring: Callable[[Callable[[], bool]], int]
    show: Callable[[int, bytes], None]
    log: Path
    say: Callable[[str], None]
    status: Callable[[str], None]
    host: str
    environment: Mapping[str, str]
    now_s: Callable[[], float]
    now_ms: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Seconds and cost are of all runs; checkpoints and bytes of this one."""

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
