"""Two threads beside a command: `Watcher` finds its checkpoints and must be quick; `RunMonitor` watches the store and may have to wait."""

from collections.abc import Callable
from dataclasses import replace
from threading import Event

from gangline.core.command.candidate import CheckpointCandidate
from gangline.core.command.layout import Rules, holds_state, is_result, lacks
from gangline.core.command.version import UNTOUCHED, is_late
from gangline.core.errors import GanglineError
from gangline.exec.checkpoint_uploader import CheckpointUploader
from gangline.exec.error_reporter import ErrorReporter
from gangline.exec.plan import Tools
from gangline.ports.command import Command
from gangline.ports.workspace import Taken

LOOK_S = 0.1
PAUSE_S = 0.005
"""A look follows each notification, but at most one every `PAUSE_S` and at least one every `LOOK_S`."""
PUZZLED_S, PUZZLED_LONG_S = 10.0, 60.0
"""Seconds until the user is warned that something is not recognised as a checkpoint: if it holds training state, and if only its name looks
like one."""
REFUSED_S = 10.0
"""Seconds until a checkpoint that could not be held is tried again: a full disk may have room by then."""
MONITOR_S = 15.0
LOG_EVERY_S = 60.0
LOG_BYTES_MAX = 8 << 20


class Watcher:
    """Takes each checkpoint of `command` as soon as it is complete and passes it to `put`, with the `after_ms` of the scan that found it.
    `lacks_newest` is True if the last complete one could not be taken; `left_out` has those that were incomplete when the command ended."""

    def __init__(
        self,
        rules: Rules,
        tools: Tools,
        command: Command,
        after_ms: Callable[[], int],
        put: Callable[[Taken, int], None],
        reporter: ErrorReporter,
    ) -> None:
        self.lacks_newest = False
        self.left_out: list[str] = []
        self._rules = rules
        self._workspace = tools.workspace
        self._now_s = tools.now_s
        self._command = command
        self._after_ms = after_ms
        self._put = put
        self._reporter = reporter
        self._lacking: dict[tuple[str, str], float] = {}
        self._refused_s: dict[str, float] = {}

    def watch(self, over: Event) -> None:
        while not over.wait(PAUSE_S):
            self._workspace.wait(LOOK_S)
            self._reporter(self.look)

    def look(self, *, ended: bool = False, well: bool = False) -> None:
        """Scan the folder once. `ended`: the command runs no more; `well`: it exited with 0 or `EXIT_STOPPED`."""
        after_ms, self.left_out = self._after_ms(), []
        for candidate in self._workspace.look(self._now_s(), ended=ended, well=well):
            self._reporter(lambda candidate=candidate: self._look_at(candidate, after_ms, ended=ended))

    def _look_at(self, candidate: CheckpointCandidate, after_ms: int, *, ended: bool) -> None:
        rules = self._rules
        # The number of processes costs a look through /proc, so it is asked only for what one process would have completed.
        why = lacks(rules, candidate) or lacks(replace(rules, processes=self._command.processes), candidate)
        if not why:
            if ended or self._now_s() >= self._refused_s.get(candidate.name, 0.0):
                self._take(candidate, after_ms)
            return
        if why == UNTOUCHED:
            return
        left_out = ended and not is_result(rules, candidate)
        self.left_out += [candidate.title] if left_out else []
        if left_out and _is_half(candidate):
            self._reporter.warn(f"{candidate.title} is incomplete, so it is not uploaded: {why}")
        else:
            self._wonder(candidate, why)

    def _take(self, candidate: CheckpointCandidate, after_ms: int) -> None:
        try:
            taken = self._workspace.take(candidate)
        except OSError as error:
            self.lacks_newest, self._refused_s[candidate.name] = True, self._now_s() + REFUSED_S
            self._reporter.warn(f"{candidate.title} cannot be kept for the upload: {error.strerror}")
            return
        if taken:
            self.lacks_newest = False
            self._put(taken, after_ms)

    def _wonder(self, candidate: CheckpointCandidate, why: str) -> None:
        """Warn once about each candidate that looks like a checkpoint but stays incomplete: it may have another layout."""
        since_s = self._lacking.setdefault((candidate.name, why), self._now_s())
        puzzled_s = PUZZLED_S if holds_state(candidate) else PUZZLED_LONG_S
        if candidate.settled and candidate.fresh is None and self._now_s() - since_s >= puzzled_s:
            self._reporter.warn(
                f"{candidate.title} looks like a checkpoint, but {why}; --layout or --complete-when can describe it"
            )


def _is_half(candidate: CheckpointCandidate) -> bool:
    """Return whether it is an incomplete checkpoint; one that was uploaded and then gained a file is not."""
    return not is_late(candidate)


class RunMonitor:
    """Checks whether another run has overtaken this one, and uploads what the command prints. `away`: the store did not answer last
    time."""

    def __init__(
        self, tools: Tools, uploader: CheckpointUploader, run: str, after_ms: Callable[[], int], reporter: ErrorReporter
    ) -> None:
        self.away = False
        self._prefix = tools.prefix
        self._log = tools.log
        self._say = tools.say
        self._uploader = uploader
        self._run = run
        self._after_ms = after_ms
        self._reporter = reporter
        self._sent = 0
        self._sent_ms: int | None = None

    def watch(self, over: Event) -> None:
        while not over.wait(MONITOR_S):
            self._reporter(self._look)

    def send_log(self) -> None:
        """Upload the new output. An empty log is uploaded too: it is the sign that this run is alive."""
        while True:
            with self._log.open("rb") as log:
                log.seek(self._sent)
                content = log.read(LOG_BYTES_MAX)
            self._sent_ms = self._after_ms()
            self._prefix.log(self._run, self._sent_ms, content)
            self._sent += len(content)
            if len(content) < LOG_BYTES_MAX:
                return

    def _look(self) -> None:
        try:
            self._uploader.look_for_newer()
            if self._sent_ms is None or self._after_ms() - self._sent_ms >= LOG_EVERY_S * 1000:
                self.send_log()
        except GanglineError as error:
            if not self.away:
                self._say(f"{error.message}; the command continues, and its checkpoints are uploaded later")
            self.away = True
        else:
            if self.away:
                self._say("the object store answers again")
            self.away = False
