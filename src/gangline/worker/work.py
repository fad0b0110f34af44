"""One attempt on this node, from its claim to its end: a few activities that never block, and a heartbeat beside them."""

import math
from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import TypeVar

from gangline.core.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_LEFT_OUT, EXIT_STOPPED, Phase
from gangline.core.errors import GanglineError, Unreachable
from gangline.core.files import File
from gangline.core.metrics import POINTS_MAX
from gangline.core.retry import retry_s
from gangline.ports.server import (
    Assignment,
    Beat,
    Commit,
    Committed,
    Done,
    Failed,
    Folder,
    Joined,
    Keep,
    Log,
    Outcome,
    Points,
    Refused,
    Released,
    Show,
    Stale,
    Succeeded,
)
from gangline.ports.trainer import Made, Pictures, Run, Saved
from gangline.worker.diary import Diary
from gangline.worker.edges import NEWS, Activity, Clock, Edges, wait
from gangline.worker.fetch import fetch_checkpoint, fetch_inputs, fetch_left_out
from gangline.worker.move import AttemptFailed, LeaseLost, Move, held, upload_all

T = TypeVar("T")

ACTIVITY_ENDED = -1.0
REFUSED_TRIES_MAX = 4
REFUSED_PAUSE_S = 5.0
SAVE_SHARE_MAX = 0.01
SAVE_ANSWER_S_MAX = 60.0
LOG_EVERY_S = 2.0
LOG_PIECE_BYTES = 64 * 1024
LAST_WORDS_BYTES = 2000
METRICS_EVERY_S = 10.0
HAND_IN_S = 20.0


class Work:
    """Call `step` again and again until `ended`. The lease may be lost at any moment: then the trainer is killed, and that is all."""

    def __init__(self, edges: Edges, assignment: Assignment, joined: Joined, now_s: float) -> None:
        self.assignment = assignment
        self.ended = False
        self._edges = edges
        self._hold = assignment.hold
        self._clock = Clock(now_s)
        self._joined = joined
        self._next_beat_s = now_s
        self._phase: Phase = "starting"
        self._from_step = 0
        self._first_step_s: float | None = None
        self._stop_s: float | None = None
        self._directory: Path | None = None
        self._run: Run | None = None
        self._shipped_step = 0
        self._asked_s = -math.inf
        self._logged_bytes = 0
        self._shown: dict[int, Pictures] = {}
        self._beside = 0
        self._left_out: tuple[str, ...] = ()
        self._known = {offered.key for offered in assignment.prepared}
        self._diary = Diary()
        self._metrics_due_s = now_s
        self._over = False
        self._activities: dict[Activity[None], float] = {self._main(): now_s}

    def step(self, now_s: float) -> None:
        self._clock.now_s = now_s
        try:
            if not self._over:
                self._go_on()
        except BaseException:
            self._over = True
            raise
        finally:
            if self._over:
                self._clean_up()

    def _go_on(self) -> None:
        self._look_for_first_step()
        if self._clock.now_s >= self._next_beat_s:
            self._beat()
        for activity in list(self._activities):
            until_s = next(activity, ACTIVITY_ENDED)
            if until_s is ACTIVITY_ENDED:
                del self._activities[activity]
            else:
                self._activities[activity] = until_s
        self._over = not self._activities

    @property
    def due_s(self) -> float:
        """When it is to be stepped at the latest, if no edge has news before."""
        return min(self._next_beat_s, *self._activities.values()) if not self._over else self._clock.now_s

    def ask_to_stop(self) -> None:
        """Save, hand over what was made, release the job; what is still being fetched is not needed. Asking again is no error."""
        if self._run and not self._stopping:
            self._run.ask_to_stop()
        if self._stop_s is None:
            self._stop_s = self._clock.now_s

    @property
    def _stopping(self) -> bool:
        return self._stop_s is not None

    def _look_for_first_step(self) -> None:
        if self._run and self._first_step_s is None and self._run.progress().loss is not None:
            self._first_step_s = self._next_beat_s = self._clock.now_s

    def _beat(self) -> None:
        """From the first second to the last upload. A server that is away is no reason to stop working."""
        self._next_beat_s = self._clock.now_s + self._joined.heartbeat_interval_s
        try:
            answer = self._edges.server.beat(self._hold, self._state())
        except Unreachable:
            return
        if isinstance(answer, Stale):
            raise LeaseLost
        if answer.stop:
            self.ask_to_stop()

    def _state(self) -> Beat:
        if self._run is None:
            return Beat(phase=self._phase, step=self._from_step)
        progress = self._run.progress()
        return Beat(
            phase=self._phase if self._phase == "uploading" else progress.phase,
            step=max(progress.step, self._from_step),
            training_s=None if self._first_step_s is None else self._clock.now_s - self._first_step_s,
            loss=progress.loss,
            seconds_per_step=progress.seconds_per_step,
        )

    def _main(self) -> Activity[None]:
        try:
            outcome = yield from self._attempt()
        except AttemptFailed as failure:
            outcome = Failed(kind=failure.kind, because=failure.because)
        except OSError as error:
            outcome = Failed(kind="disk full" if error.errno == ENOSPC else "crashed", because=str(error))
        except GanglineError as error:
            outcome = Failed(kind="crashed", because=error.message)
        answer = yield from self._finish(outcome)
        if isinstance(answer, Refused):
            yield from self._finish(Failed(kind="upload failed", because=answer.because))

    def _finish(self, outcome: Outcome) -> Activity[Done | Refused]:
        return self._insistently(lambda: self._edges.server.finish(self._hold, outcome))

    def _insistently(self, ask: Callable[[], T | Stale | Refused]) -> Activity[T | Refused]:
        """What was just uploaded may not be there for everybody yet: a refusal is asked about again, a few times."""
        for _ in range(REFUSED_TRIES_MAX - 1):
            answer = yield from held(self._edges, self._clock, ask)
            if not isinstance(answer, Refused):
                return answer
            yield from wait(self._clock, REFUSED_PAUSE_S)
        return (yield from held(self._edges, self._clock, ask))

    def _attempt(self) -> Activity[Outcome]:
        directory = self._directory = self._edges.host.lay_out(self._hold.attempt, self.assignment.spec)
        fetching = self._fetch(directory)
        while True:
            self._phase = "downloading"
            yield from _unless(lambda: self._stopping, fetching)
            if self._stopping:
                self._edges.transfer.stop()
                return Released()
            self._run = run = self._edges.trainer.start(self.assignment.kind, directory)
            code = yield from self._supervise(run)
            if code != EXIT_LEFT_OUT or not self._left_out:
                return (yield from self._outcome(run, code))
            fetching = self._fetch_left_out(directory)

    def _supervise(self, run: Run) -> Activity[int]:
        """A trainer until all that it left but its result is shipped; its exit code."""
        beside = (self._ship_log(run), self._ship_metrics(run), self._ship_pictures(run), self._ship_prepared(run))
        for activity in beside:
            self._activities[self._counted(activity)] = self._clock.now_s
            self._beside += 1
        while (code := run.exit_code()) is None:
            if self._clock.now_s >= self._save_due_s(run):
                yield from self._have_saved(run)
            yield from self._ship_newest(run)
            yield self._save_due_s(run)
        self._phase = "uploading"
        yield from self._ship_newest(run)
        while self._beside:
            yield self._clock.now_s  # until the activities beside this one are done
        return code

    def _fetch_left_out(self, directory: Path) -> Activity[None]:
        parts, self._left_out = self._left_out, ()
        yield from fetch_left_out(self._edges, self._clock, self.assignment, directory, parts)

    def _fetch(self, directory: Path) -> Activity[None]:
        self._left_out = yield from fetch_inputs(self._edges, self._clock, self.assignment, directory)
        self._from_step = yield from fetch_checkpoint(self._edges, self._clock, self.assignment, directory)
        self._shipped_step = self._from_step
        self._diary = Diary(self._from_step)

    def _outcome(self, run: Run, code: int) -> Activity[Outcome]:
        if code == EXIT_DONE:
            return (yield from self._ship_result(run))
        if code == EXIT_STOPPED:
            return Released()
        said = run.failure()
        if code == EXIT_BAD_INPUT:
            return Failed(kind="bad data", because=said.because if said else self._last_words(run))
        if said:
            return Failed(kind=said.kind, because=said.because)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return Failed(kind="crashed", because=f"{how}; its last words: {self._last_words(run)}")

    def _save_due_s(self, run: Run) -> float:
        """When to ask for a checkpoint: not so often that saving takes more than its share of the time."""
        progress = run.progress()
        if self._first_step_s is None or self._stopping or progress.phase != "training":
            return NEWS
        held_up_s = progress.save_s or 0.0
        return max(self._asked_s, self._first_step_s) + max(self._joined.save_interval_s, held_up_s / SAVE_SHARE_MAX)

    def _have_saved(self, run: Run) -> Activity[None]:
        """A checkpoint of this moment: as the one before has gone up, what goes up next is no older than its own upload. A kill
        then costs one upload and a half, on average. A trainer that makes none in time does without."""
        before, self._asked_s = _newest_step(run), self._clock.now_s
        until_s = self._clock.now_s + SAVE_ANSWER_S_MAX
        run.ask_to_save()
        while _newest_step(run) == before and run.exit_code() is None and self._clock.now_s < until_s:
            yield until_s

    def _ship_newest(self, run: Run) -> Activity[None]:
        """Upload and commit the newest complete checkpoint. Those that it has overtaken are not worth the way."""
        saved = run.checkpoints()
        if not saved or saved[-1].manifest.step <= self._shipped_step:
            return
        newest = saved[-1]
        moves = [Move(file, newest.folder / file.path, file.path) for file in newest.manifest.files]
        try:
            yield from upload_all(self._edges, self._clock, self._hold, "checkpoints", moves, step=newest.manifest.step)
            yield from self._commit(run, newest)
        except GanglineError:
            pass  # the store does not take it; the next checkpoint is another chance
        self._shipped_step = newest.manifest.step
        for old in saved[:-1]:
            self._edges.host.discard(old.folder)

    def _commit(self, run: Run, saved: Saved) -> Activity[None]:
        """What was measured up to there goes first: nobody measures those steps again."""
        self._diary.take(run.take_readings(), ended=False)
        yield from self._hand_in_metrics(run)
        request = Commit(manifest=saved.manifest.to_json())
        answer = yield from self._insistently(lambda: self._edges.server.commit(self._hold, request))
        if isinstance(answer, Committed) and answer.render and self._run:
            self._run.ask_to_render()

    def _ship_result(self, run: Run) -> Activity[Outcome]:
        while (result := run.result()) is None:
            yield self._clock.now_s
        if not result.output:
            raise AttemptFailed("no result", "its output folder is empty")
        shown = {file.path for pictures in self._shown.values() for file in pictures.files}
        samples = tuple(file for file in result.samples if file.path not in shown)
        folders: tuple[tuple[Folder, tuple[File, ...]], ...] = (("output", result.output), ("samples", samples))
        for folder, files in folders:
            try:
                yield from self._upload(run, folder, files)
            except GanglineError as error:
                raise AttemptFailed("upload failed", error.message) from None
        return Succeeded(output=result.output, samples=samples)

    def _upload(self, run: Run, folder: Folder, files: tuple[File, ...]) -> Activity[None]:
        moves = [Move(file, run.directory / folder / file.path, file.path) for file in files]
        return upload_all(self._edges, self._clock, self._hold, folder, moves)

    def _counted(self, activity: Activity[None]) -> Activity[None]:
        yield from activity
        self._beside -= 1

    def _ship_pictures(self, run: Run) -> Activity[None]:
        """What the trainer renders between its steps, as it comes. What the store does not take goes with the result."""
        tried = set[int]()
        while True:
            ended = run.exit_code() is not None
            new = next((pictures for pictures in run.pictures() if pictures.step not in tried), None)
            if new:
                tried.add(new.step)
                yield from self._show(run, new)
            elif ended:
                return
            else:
                yield NEWS

    def _show(self, run: Run, pictures: Pictures) -> Activity[None]:
        request = Show(step=pictures.step, files=pictures.files)
        try:
            yield from self._upload(run, "samples", pictures.files)
        except GanglineError:
            return
        answer = yield from self._insistently(lambda: self._edges.server.show(self._hold, request))
        if isinstance(answer, Done):
            self._shown[pictures.step] = pictures

    def _ship_prepared(self, run: Run) -> Activity[None]:
        """What the trainer made before its first step, for other jobs."""
        ended = False
        while not ended:
            ended = run.exit_code() is not None
            for made in run.prepared():
                if made.manifest.key not in self._known:
                    self._known.add(made.manifest.key)
                    yield from _unless(self._has_no_time, self._keep(run, made))
            if not ended:
                yield NEWS

    def _keep(self, run: Run, made: Made) -> Activity[None]:
        files = tuple(replace(file, path=f"{made.manifest.key}/{file.path}") for file in made.manifest.files)
        request = Keep(manifest=made.manifest.to_json())
        try:
            yield from self._upload(run, "prepared", files)
            yield from self._insistently(lambda: self._edges.server.keep_prepared(self._hold, request))
        except GanglineError:
            pass  # the store does not take it; other jobs make it themselves

    def _has_no_time(self) -> bool:
        """Where a node is to stop, what it prepared is the work that it leaves behind; once it has trained, its checkpoint is."""
        trained = self._first_step_s is not None
        return self._stop_s is not None and (trained or self._clock.now_s > self._stop_s + HAND_IN_S)

    def _ship_log(self, run: Run) -> Activity[None]:
        """What the trainer prints, every few seconds, and all of it once it has ended."""
        while True:
            ended = run.exit_code() is not None
            piece = _whole_lines(run.printed(self._logged_bytes, LOG_PIECE_BYTES))
            if piece:
                yield from self._send_log(run, piece)
            elif ended:
                break
            else:
                yield NEWS

    def _send_log(self, run: Run, piece: bytes) -> Activity[None]:
        request = Log(first_byte=self._logged_bytes, text=piece.decode(errors="replace"))
        yield from held(self._edges, self._clock, lambda: self._edges.server.log(self._hold, request))
        self._logged_bytes += len(piece)
        pause_ends_s = self._clock.now_s + LOG_EVERY_S
        while self._clock.now_s < pause_ends_s and run.exit_code() is None:
            yield pause_ends_s

    def _ship_metrics(self, run: Run) -> Activity[None]:
        """What the trainer measures, a batch every ten seconds, and the rest of it once it has ended."""
        ended = False
        while not ended:
            ended = run.exit_code() is not None
            self._diary.take(run.take_readings(), ended=ended)
            if ended or self._clock.now_s >= self._metrics_due_s:
                yield from self._hand_in_metrics(run)
            if not ended:
                yield self._metrics_due_s if self._diary.points else NEWS

    def _hand_in_metrics(self, run: Run) -> Activity[None]:
        """All points of now. A server that is away gets them later, and fewer where that is long."""
        tries = 0
        while batch := tuple(self._diary.points[:POINTS_MAX]):
            try:
                answer = self._edges.server.metrics(self._hold, Points(points=batch))
            except Unreachable:
                yield from wait(self._clock, retry_s(tries, self._edges.rng))
                self._diary.take(run.take_readings(), ended=False)
                tries += 1
                continue
            if isinstance(answer, Stale):
                raise LeaseLost
            self._diary.sent(len(batch))
            self._metrics_due_s = self._clock.now_s + METRICS_EVERY_S

    def _last_words(self, run: Run) -> str:
        lines = run.printed(max(0, self._logged_bytes - LAST_WORDS_BYTES), LAST_WORDS_BYTES).decode(errors="replace")
        return lines.strip().splitlines()[-1] if lines.strip() else "none"

    def _clean_up(self) -> None:
        """Nothing of the run stays on the node: no process, no photo. What moves its files is stopped, and waited for: else it
        would write into a folder that has just been wiped. To be called until it has `ended`."""
        self._activities.clear()
        if self._run:
            self._run.kill()
        self._edges.transfer.stop()
        if self._edges.transfer.idle:
            if self._directory:
                self._edges.host.discard(self._directory)
            self._edges.host.make_room(0)
            self.ended = True


def _newest_step(run: Run) -> int:
    saved = run.checkpoints()
    return saved[-1].manifest.step if saved else 0


def _unless(over: Callable[[], bool], activity: Activity[None]) -> Activity[None]:
    """As far as it comes before it is `over`."""
    for until_s in activity:
        if over():
            return
        yield until_s


def _whole_lines(piece: bytes) -> bytes:
    """Up to its last line end, so that no character is cut in two; all of it where it has none."""
    return piece[: piece.rfind(b"\n") + 1] or piece
