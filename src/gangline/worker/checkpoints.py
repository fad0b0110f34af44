"""Decide when a trainer must save a checkpoint, and upload its checkpoints to the server."""

import math
from dataclasses import replace

from gangline.core.errors import GanglineError
from gangline.core.fleet.choice import History, interruptions_per_hour
from gangline.core.policy import Policy
from gangline.core.runs.daly import between_s
from gangline.core.runs.saving import SaveCost, Saving, SavingTerms, choose_saving, has_changed_much, saving_terms
from gangline.core.specs.kinds import KINDS
from gangline.ports.server import Commit, Committed
from gangline.ports.trainer import Run, Saved
from gangline.worker.attempt import LiveAttempt
from gangline.worker.edges import NEWS, Activity, together
from gangline.worker.move import Move, upload_all
from gangline.worker.shipping import Shipping
from gangline.worker.streaming import Streaming

SAVE_ANSWER_S_MAX = 60.0
"""Seconds to wait for a checkpoint that was asked for, before the loop continues without it."""


class Checkpoints:
    """The checkpoints of one attempt, from the step that it resumes from. Its trainer may be started more than once.

    A command saves when its owner had it written to: it is never asked to, and all that it saves is uploaded at once.
    """

    def __init__(self, live: LiveAttempt, shipping: Shipping) -> None:
        self._live = live
        self._shipping = shipping
        self._is_ours = KINDS[live.assignment.kind].ours
        self._streaming = Streaming(live)
        self._shipped_step = live.from_step
        self._asked_s = -math.inf
        self._asked_as_wanted = False
        self._in_memory: bool | None = None
        self._first_share = live.edges.rng.random()
        self._terms = _terms_of(live)
        self._cost = SaveCost()
        self._told: Saving | None = None
        self._upload_due_s = -math.inf
        self._is_answered = False

    def ship(self, run: Run) -> Activity[int]:
        """Upload checkpoints until the trainer has ended, and those that it left; return its exit code.

        Asking for one comes before uploading: the checkpoint that was asked for is the one uploaded next, so it is no older than its own
        upload.
        """
        while (code := run.exit_code()) is None:
            self._stream(run)
            if self._live.clock.now_s >= self._save_due_s(run):
                yield from self._have_saved(run)
            yield from self._ship_new(run)
            yield min(self._save_due_s(run), self._held_back_until_s(run))
        self._live.phase = "uploading"
        # Saved after the last look, usually by a trainer that was asked to stop; and what was held back.
        yield from self._ship_new(run, all_of_them=True)
        return code

    def _save_due_s(self, run: Run) -> float:
        """Return when to ask for a checkpoint: at once if the job's owner wants one, else as often as `choose_saving` says.

        The first is due at a random moment of the first interval, so that jobs that began together do not all save and upload together.
        """
        live, progress = self._live, run.progress()
        if not self._is_ours or live.first_step_s is None or live.stopping or progress.phase != "training":
            return NEWS
        if live.save_wanted and not self._asked_as_wanted:
            return live.clock.now_s
        every_s = self._choose(run).every_s
        return max(self._asked_s + every_s, live.first_step_s + every_s * self._first_share)

    def _choose(self, run: Run) -> Saving:
        cost = replace(self._cost, held_up_s=run.progress().save_s or 0.0)
        return choose_saving(self._terms, cost)

    def _have_saved(self, run: Run) -> Activity[None]:
        """Ask for a checkpoint of this moment, once the previous one is uploaded. A kill then costs one and a half uploads, on average.

        If the trainer saves none in time, continue without.
        """
        clock = self._live.clock
        before, self._asked_s, self._asked_as_wanted = _newest_step(run), clock.now_s, self._live.save_wanted
        self._upload_due_s = -math.inf  # what is asked for is as far apart as the policy says
        until_s = clock.now_s + SAVE_ANSWER_S_MAX
        run.ask_to_save()
        self._live.awaits_save = True
        while _newest_step(run) == before and run.exit_code() is None and clock.now_s < until_s:
            self._stream(run)
            yield until_s
        self._live.awaits_save = False
        self._is_answered = _newest_step(run) != before

    def _ship_new(self, run: Run, *, all_of_them: bool = False) -> Activity[None]:
        """Upload and commit the newest complete checkpoint that is not held back, and before it the best one, which is kept. Others are
        skipped.

        One that is held back waits for its time, or is overtaken by the next.
        """
        while new := [saved for saved in run.checkpoints() if saved.manifest.step > self._shipped_step]:
            best = [saved for saved in new if saved.manifest.best]
            free = [saved for saved in new if all_of_them or not self._is_held_back(saved.manifest.step)]
            if not (best or free):
                for overtaken in new[:-1]:
                    self._live.edges.host.discard(overtaken.folder)
                return
            yield from self._ship(run, (best or free)[-1])

    def _stream(self, run: Run) -> None:
        """Upload what is complete of the checkpoint that is being written, unless it is held back."""
        self._streaming.look(run, lambda step: not self._is_held_back(step))

    def _is_held_back(self, step: int) -> bool:
        """Return whether a checkpoint is one of those that the trainer saves by time, and comes sooner than the policy lets it upload."""
        live = self._live
        wanted = live.stopping or live.save_wanted or self._terms.is_by_steps(step)
        return self._is_ours and not wanted and live.clock.now_s < self._upload_due_s

    def _held_back_until_s(self, run: Run) -> float:
        saved = _newest_step(run)
        return self._upload_due_s if saved > self._shipped_step and self._is_held_back(saved) else NEWS

    def _ship(self, run: Run, saved: Saved) -> Activity[None]:
        live, manifest = self._live, saved.manifest
        size = sum(file.bytes for file in manifest.files)
        if not self._is_answered:
            self._asked_s = live.clock.now_s  # the trainer saved by itself: the next one is due as long after it
        self._is_answered = False
        self._upload_due_s = live.clock.now_s + self._terms.upload_pause_s(size)
        try:
            yield from self._upload(run, saved)
            self._cost = SaveCost(upload_s=live.clock.now_s - self._asked_s, bytes=size)
            yield from self._commit(run, saved)
        except GanglineError:
            pass  # the upload failed for good: the next checkpoint is another chance
        self._shipped_step = manifest.step
        self._tell_place(saved)
        live.edges.host.drop_resumed(run.directory)
        for old in run.checkpoints():
            if old.manifest.step < manifest.step:
                live.edges.host.discard(old.folder)

    def _upload(self, run: Run, saved: Saved) -> Activity[None]:
        """Upload all files: beside the parts that stream, those whose parts are not announced; then ask for what is still missing of the
        others, of which nearly always nothing is.

        Another program's hashes may disagree, of the parts and of the whole, and no store would see it: those files are hashed again.
        """
        live, parts = self._live, run.parts(saved.folder)
        streamed, announced = {file.path for file in parts}, parts if self._is_ours else ()
        moves = [Move(file, saved.folder / file.path, file.path) for file in saved.manifest.files]

        def upload(some: list[Move]) -> Activity[None]:
            here = (live.edges, live.clock, live.hold)
            return upload_all(*here, "checkpoints", some, step=saved.manifest.step, announced=announced)

        others = [move for move in moves if move.name not in streamed]
        yield from together(self._streaming.finish(run, saved), upload(others))
        yield from upload([move for move in moves if move.name in streamed])

    def _tell_place(self, saved: Saved) -> None:
        """Say in the node's log where the run's checkpoints lie, and again when that changes; its own log says why."""
        if saved.in_memory != self._in_memory:
            self._live.news.append(f"its checkpoints lie {'in memory' if saved.in_memory else 'on disk'}")
        self._in_memory = saved.in_memory

    def _commit(self, run: Run, saved: Saved) -> Activity[None]:
        """Send all metrics up to a checkpoint, then commit it: a later attempt that resumes from it does not measure those steps again."""
        live = self._live
        yield from self._shipping.send_metrics_of_now(run)
        saving = self._choose(run) if self._is_ours else None
        request = Commit(manifest=saved.manifest.to_json(), saving=saving)
        answer = yield from live.insistently(lambda: live.edges.server.commit(live.hold, request))
        if not isinstance(answer, Committed):
            return
        self._live.save_wanted = self._asked_as_wanted = (
            False  # if this was not what was wanted, the next heartbeat says so
        )
        if answer.between_s:
            self._terms = replace(self._terms, between_s=answer.between_s)
        if saving and has_changed_much(self._told, saving):
            self._told = saving
            self._live.news.append(saving.sentence)
            self._shipping.note(run, saving.sentence)
        if answer.render:
            run.ask_to_render(now=answer.now)


def _newest_step(run: Run) -> int:
    saved = run.checkpoints()
    return saved[-1].manifest.step if saved else 0


def _terms_of(live: LiveAttempt) -> SavingTerms:
    """Return what the server lets this run decide by. An older server says nothing: then the offer is taken for one that was never tried,
    and nothing is held back, as it may be what pictures are made of."""
    policy = Policy(save_interval_s=live.joined.save_interval_s)
    unknown = between_s(per_node_hour=interruptions_per_hour(History()), nodes=1)
    given = live.assignment.saving or replace(saving_terms(policy, unknown), gb_per_hour=math.inf)
    return given.share(live.share_of_node)
