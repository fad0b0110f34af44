"""The state that all activities of an attempt share: its edges, the time, and its progress on this node."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from gangline.core.files import File
from gangline.core.runs.contract import Phase
from gangline.ports.server import Assignment, Folder, Hold, Joined, Refused, Stale
from gangline.ports.trainer import Run
from gangline.worker.edges import Activity, Clock, Edges, wait
from gangline.worker.move import Move, held, upload_all

T = TypeVar("T")

REFUSED_TRIES_MAX = 4
REFUSED_PAUSE_S = 5.0


@dataclass(slots=True, kw_only=True)
class LiveAttempt:
    """The state of a live attempt, which every activity may read.

    Only the course writes `phase`, `from_step` and `run`, only the heartbeat `first_step_s`, and only `ask_to_stop` `stop_s`. `run` is the
    newest trainer, also after it has ended. With `save_wanted` the job's owner wants a checkpoint: none was committed since the node heard
    of it; `finishing`: the owner wants the result of what there is. With `awaits_save` the trainer is writing a checkpoint that was asked
    for. `share_of_node` is the share of the node's slots. `news` are sentences for the node's log that were not taken yet.
    """

    edges: Edges
    clock: Clock
    assignment: Assignment
    joined: Joined
    share_of_node: float = 1.0
    phase: Phase = "starting"
    from_step: int = 0
    run: Run | None = None
    first_step_s: float | None = None
    stop_s: float | None = None
    save_wanted: bool = False
    finishing: bool = False
    awaits_save: bool = False
    news: list[str] = field(default_factory=list)

    @property
    def hold(self) -> Hold:
        return self.assignment.hold

    @property
    def stopping(self) -> bool:
        return self.stop_s is not None

    def ask_to_stop(self) -> None:
        """Ask the trainer to save and exit. Repeated calls change nothing; the time of the first one counts."""
        if self.stopping:
            return
        if self.run:
            self.run.ask_to_stop()
        self.stop_s = self.clock.now_s

    def ask_to_finish(self) -> None:
        """Ask the trainer to take no more steps and write its result; one that is not started yet is asked then."""
        self.finishing = True
        if self.run:
            self.run.ask_to_finish()

    def insistently(self, ask: Callable[[], T | Stale | Refused]) -> Activity[T | Refused]:
        """Repeat a refused request a few times: a file that was just uploaded may not be visible to every server yet."""
        for _ in range(REFUSED_TRIES_MAX - 1):
            answer = yield from held(self.edges, self.clock, ask)
            if not isinstance(answer, Refused):
                return answer
            yield from wait(self.clock, REFUSED_PAUSE_S)
        return (yield from held(self.edges, self.clock, ask))

    def upload(self, run: Run, folder: Folder, files: tuple[File, ...]) -> Activity[None]:
        """Upload files, given by their paths below a folder of the run."""
        moves = [Move(file, run.place(folder, file.path), file.path) for file in files]
        return upload_all(self.edges, self.clock, self.hold, folder, moves)
