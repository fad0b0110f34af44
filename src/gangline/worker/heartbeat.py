"""Send the heartbeats of an attempt: each renews the lease, and its answer may ask to stop, whatever else the node is waiting for."""

from gangline.core.errors import Unreachable
from gangline.core.runs.contract import Progress
from gangline.core.specs.fields import STEPS_MAX
from gangline.core.specs.kinds import KINDS
from gangline.ports.server import Beat, Stale
from gangline.worker.attempt import LiveAttempt
from gangline.worker.move import LeaseLost

MEMORY_GB_MAX = 10**6


class Heartbeat:
    """The heartbeat of an attempt, from its claim, when the first beat is due, to its last upload.

    The beat after the one of the claim, and after the one of the first step, is due at a random moment of the interval: jobs that began
    together do not all report together.
    """

    def __init__(self, live: LiveAttempt) -> None:
        self._live = live
        self.due_s = live.clock.now_s
        self._is_first = True
        self._told_steps = 0

    def beat_if_due(self) -> None:
        """Send a heartbeat if one is due; the first training step makes one due at once. Raise `LeaseLost`."""
        self._look_for_first_step()
        if self._live.clock.now_s >= self.due_s:
            self._beat()

    def _look_for_first_step(self) -> None:
        live = self._live
        if live.run and live.first_step_s is None and live.run.progress().loss is not None:
            live.first_step_s = self.due_s = live.clock.now_s
            self._is_first = True

    def _beat(self) -> None:
        """Renew the lease. If the server does not answer, work continues: if the lease was lost meanwhile, its next answer says so."""
        live = self._live
        share = live.edges.rng.random() if self._is_first else 1.0
        self.due_s, self._is_first = live.clock.now_s + live.joined.heartbeat_interval_s * share, False
        beat = self._state()
        try:
            answer = live.edges.server.beat(live.hold, beat)
        except Unreachable:
            return
        if isinstance(answer, Stale):
            raise LeaseLost
        self._told_steps = beat.steps or self._told_steps
        live.save_wanted = answer.save
        if answer.finish:
            live.ask_to_finish()
        if answer.stop:
            live.ask_to_stop()

    def _state(self) -> Beat:
        live = self._live
        gauges = live.edges.gauges(live.clock.now_s)
        if live.run is None:
            return Beat(phase=live.phase, step=live.from_step, gauges=gauges)
        progress = live.run.progress()
        return Beat(
            phase=live.phase if live.phase == "uploading" else progress.phase,
            step=max(progress.step, live.from_step),
            steps=self._news_of_steps(progress),
            training_s=None if live.first_step_s is None else live.clock.now_s - live.first_step_s,
            loss=progress.loss,
            seconds_per_step=progress.seconds_per_step,
            memory_bytes=self._memory_bytes(progress),
            gauges=gauges,
        )

    def _memory_bytes(self, progress: Progress) -> int | None:
        """Return the GPU memory that a trainer of ours holds; a command's metric of this name may be anything."""
        held_gb = progress.metrics.get("memory_gb")
        ours = KINDS[self._live.assignment.kind].ours
        return round(held_gb * 1e9) if ours and held_gb is not None and 0 <= held_gb < MEMORY_GB_MAX else None

    def _news_of_steps(self, progress: Progress) -> int:
        """Return how many steps a command says that it has, until the server knows; the others' are in their specs."""
        steps = 0 if KINDS[self._live.assignment.kind].ours else min(progress.steps, STEPS_MAX)
        return steps if steps != self._told_steps else 0
