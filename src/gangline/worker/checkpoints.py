"""Decide when a trainer must save a checkpoint, and upload its checkpoints to the server."""

import math

from gangline.core.errors import GanglineError
from gangline.ports.server import Commit, Committed
from gangline.ports.trainer import Run, Saved
from gangline.worker.attempt import LiveAttempt
from gangline.worker.edges import NEWS, Activity
from gangline.worker.move import Move, upload_all
from gangline.worker.shipping import Shipping
from gangline.worker.streaming import Streaming

SAVE_SHARE_MAX = 0.01
"""The largest share of the time that saving, which holds up training, may take."""
SAVE_ANSWER_S_MAX = 60.0
"""Seconds to wait for a checkpoint that was asked for, before the loop continues without it."""


class Checkpoints:
    """The checkpoints of one attempt, from the step that it resumes from. Its trainer may be started more than once."""

    def __init__(self, live: LiveAttempt, shipping: Shipping) -> None:
        self._live = live
        self._shipping = shipping
        self._streaming = Streaming(live)
        self._shipped_step = live.from_step
        self._asked_s = -math.inf
        self._asked_as_wanted = False
        self._in_memory: bool | None = None
        self._first_share = live.edges.rng.random()

    def ship(self, run: Run) -> Activity[int]:
        """Upload checkpoints until the trainer has ended, and those that it left; return its exit code.

        Asking for one comes before uploading: the checkpoint that was asked for is the one uploaded next, so it is no older than its own
        upload.
        """
        while (code := run.exit_code()) is None:
            self._streaming.look(run)
            if self._live.clock.now_s >= self._save_due_s(run):
                yield from self._have_saved(run)
            yield from self._ship_new(run)
            yield self._save_due_s(run)
        self._live.phase = "uploading"
        yield from self._ship_new(run)  # saved after the last look, usually by a trainer that was asked to stop
        return code

    def _save_due_s(self, run: Run) -> float:
        """Return when to ask for a checkpoint: at once if the job's owner wants one, else at most so often that saving takes
        `SAVE_SHARE_MAX` of the time.

        The first is due at a random moment of the first interval, so that jobs that began together do not all save and upload together.
        """
        live, progress = self._live, run.progress()
        if live.first_step_s is None or live.stopping or progress.phase != "training":
            return NEWS
        if live.save_wanted and not self._asked_as_wanted:
            return live.clock.now_s
        held_up_s = progress.save_s or 0.0
        interval_s = max(live.joined.save_interval_s, held_up_s / SAVE_SHARE_MAX)
        return max(self._asked_s + interval_s, live.first_step_s + interval_s * self._first_share)

    def _have_saved(self, run: Run) -> Activity[None]:
        """Ask for a checkpoint of this moment, once the previous one is uploaded. A kill then costs one and a half uploads, on average.

        If the trainer saves none in time, continue without.
        """
        clock = self._live.clock
        before, self._asked_s, self._asked_as_wanted = _newest_step(run), clock.now_s, self._live.save_wanted
        until_s = clock.now_s + SAVE_ANSWER_S_MAX
        run.ask_to_save()
        while _newest_step(run) == before and run.exit_code() is None and clock.now_s < until_s:
            self._streaming.look(run)
            yield until_s

    def _ship_new(self, run: Run) -> Activity[None]:
        """Upload and commit the newest complete checkpoint, and before it the best one, which is kept. Others are skipped."""
        while new := [saved for saved in run.checkpoints() if saved.manifest.step > self._shipped_step]:
            yield from self._ship(run, ([saved for saved in new if saved.manifest.best] or new)[-1])

    def _ship(self, run: Run, saved: Saved) -> Activity[None]:
        live, manifest = self._live, saved.manifest
        moves = [Move(file, saved.folder / file.path, file.path) for file in manifest.files]
        try:
            yield from self._streaming.settle()
            yield from upload_all(
                live.edges,
                live.clock,
                live.hold,
                "checkpoints",
                moves,
                step=manifest.step,
                announced=run.parts(saved.folder),
            )
            yield from self._commit(run, saved)
        except GanglineError:
            pass  # the upload failed for good: the next checkpoint is another chance
        self._shipped_step = manifest.step
        self._tell_place(saved)
        live.edges.host.drop_resumed(run.directory)
        for old in run.checkpoints():
            if old.manifest.step < manifest.step:
                live.edges.host.discard(old.folder)

    def _tell_place(self, saved: Saved) -> None:
        """Say in the node's log where the run's checkpoints lie, and again when that changes; its own log says why."""
        if saved.in_memory != self._in_memory:
            self._live.news.append(f"its checkpoints lie {'in memory' if saved.in_memory else 'on disk'}")
        self._in_memory = saved.in_memory

    def _commit(self, run: Run, saved: Saved) -> Activity[None]:
        """Send all metrics up to a checkpoint, then commit it: a later attempt that resumes from it does not measure those steps again."""
        live = self._live
        yield from self._shipping.send_metrics_of_now(run)
        request = Commit(manifest=saved.manifest.to_json())
        answer = yield from live.insistently(lambda: live.edges.server.commit(live.hold, request))
        if not isinstance(answer, Committed):
            return
        self._live.save_wanted = self._asked_as_wanted = (
            False  # if this was not what was wanted, the next heartbeat says so
        )
        if answer.render:
            run.ask_to_render(now=answer.now)


def _newest_step(run: Run) -> int:
    saved = run.checkpoints()
    return saved[-1].manifest.step if saved else 0
