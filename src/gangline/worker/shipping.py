"""Send what a trainer makes besides checkpoints to the server: its log, metrics, pictures, prepared files, and at last its result.

Each of the four loops first asks whether the trainer has ended, and then what there is. In the other order, what the trainer wrote between
the two questions would be lost: the loop would end without having seen it.
"""

from dataclasses import replace

from gangline.core.errors import GanglineError, Unreachable
from gangline.core.files import File
from gangline.core.jobs.retry import retry_s
from gangline.core.runs.metrics import POINTS_MAX
from gangline.ports.server import RESULTS_MAX, Done, Folder, Keep, Log, Outcome, Points, Show, Stale, Succeeded
from gangline.ports.trainer import Installing, Made, Pictures, Run
from gangline.worker.attempt import LiveAttempt
from gangline.worker.edges import NEWS, Activity, unless, wait
from gangline.worker.metrics_buffer import MetricsBuffer
from gangline.worker.move import AttemptFailed, LeaseLost, held

Printing = Run | Installing
LOG_EVERY_S = 2.0
LOG_PIECE_BYTES = 64 * 1024
LAST_WORDS_BYTES = 2000
"""The end of the log, in bytes, in which the reason of a crash is looked for."""
METRICS_EVERY_S = 10.0
UPLOAD_PREPARED_S = 20.0
"""Seconds that a node which was asked to stop before its first step spends on uploading prepared files."""


class Shipping:
    """Sends the output of one attempt, from the step that it resumes from.

    Its trainer may be started more than once, and nothing is sent twice.
    """

    def __init__(self, live: LiveAttempt) -> None:
        self._live = live
        self._logged_bytes = 0
        self._noted = set[str]()
        self._spoke_s = live.clock.now_s
        self._metrics_buffer = MetricsBuffer(live.from_step)
        self._metrics_due_s = live.clock.now_s
        self._shown: dict[int, Pictures] = {}
        self._known = {offered.key for offered in live.assignment.prepared}

    def loops(self, run: Run) -> tuple[Activity[None], ...]:
        """Return the activities that run beside the trainer. Each ends when the trainer has ended and everything of its kind is sent."""
        return self.ship_log(run), self._ship_metrics(run), self._ship_pictures(run), self._ship_prepared(run)

    # The log

    def ship_log(self, run: Printing) -> Activity[None]:
        """Send what the trainer, or an installation, prints, every few seconds, and all the rest once it has ended."""
        while True:
            ended = run.exit_code() is not None
            piece = _whole_lines(run.printed(self._logged_bytes, LOG_PIECE_BYTES))
            if piece:
                self.hear()
                yield from self._send_log(run, piece)
            elif ended:
                break
            else:
                yield NEWS

    def _send_log(self, run: Printing, piece: bytes) -> Activity[None]:
        live = self._live
        request = Log(first_byte=self._logged_bytes, text=piece.decode(errors="replace"))
        yield from held(live.edges, live.clock, lambda: live.edges.server.log(live.hold, request))
        self._logged_bytes += len(piece)
        pause_ends_s = live.clock.now_s + LOG_EVERY_S
        while live.clock.now_s < pause_ends_s and run.exit_code() is None:
            yield pause_ends_s

    def hear(self) -> None:
        """Count the seconds of silence from now on."""
        self._spoke_s = self._live.clock.now_s

    @property
    def silent_for_s(self) -> float:
        """Return for how many seconds nothing was printed."""
        return self._live.clock.now_s - self._spoke_s

    def note(self, run: Run, line: str) -> None:
        """Add a line of the node to what the trainer printed."""
        self._noted.add(line)
        run.note(line)

    def last_words(self, run: Printing) -> str:
        """Return the last line that the trainer itself printed."""
        text = run.printed(max(0, self._logged_bytes - LAST_WORDS_BYTES), LAST_WORDS_BYTES).decode(errors="replace")
        lines = [line for line in text.strip().splitlines() if line.strip() and line not in self._noted]
        return lines[-1] if lines else "none"

    # Metrics

    def _ship_metrics(self, run: Run) -> Activity[None]:
        """Send what the trainer measures, in a batch every ten seconds, and all the rest once it has ended."""
        ended = False
        while not ended:
            ended = run.exit_code() is not None
            self._metrics_buffer.take(run.take_readings(), ended=ended)
            if ended or self._live.clock.now_s >= self._metrics_due_s:
                yield from self._send_metrics(run)
            if not ended:
                yield self._metrics_due_s if self._metrics_buffer.points else NEWS

    def send_metrics_of_now(self, run: Run) -> Activity[None]:
        """Send all metrics measured up to now, although no batch is due."""
        self._metrics_buffer.take(run.take_readings(), ended=False)
        yield from self._send_metrics(run)

    def _send_metrics(self, run: Run) -> Activity[None]:
        """Send all points that are ready. If the server does not answer, they are kept, and thinned out if that takes long."""
        live, tries = self._live, 0
        while batch := tuple(self._metrics_buffer.points[:POINTS_MAX]):
            try:
                answer = live.edges.server.metrics(live.hold, Points(points=batch))
            except Unreachable:
                yield from wait(live.clock, retry_s(tries, live.edges.rng))
                self._metrics_buffer.take(run.take_readings(), ended=False)
                tries += 1
                continue
            if isinstance(answer, Stale):
                raise LeaseLost
            self._metrics_buffer.sent(len(batch))
            self._metrics_due_s = live.clock.now_s + METRICS_EVERY_S

    # Pictures

    def _ship_pictures(self, run: Run) -> Activity[None]:
        """Upload pictures that the trainer renders between its steps. Those that fail to upload go with the result."""
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
        live = self._live
        request = Show(step=pictures.step, files=pictures.files)
        try:
            yield from live.upload(run, "samples", pictures.files)
        except GanglineError:
            return
        answer = yield from live.insistently(lambda: live.edges.server.show(live.hold, request))
        if isinstance(answer, Done):
            self._shown[pictures.step] = pictures

    # Prepared files

    def _ship_prepared(self, run: Run) -> Activity[None]:
        """Upload what the trainer prepared before its first step, for other jobs."""
        ended = False
        while not ended:
            ended = run.exit_code() is not None
            for made in run.prepared():
                if made.manifest.key not in self._known:
                    self._known.add(made.manifest.key)  # marked before the try, as there is only one
                    yield from unless(self._has_no_time, self._keep(run, made))
            if not ended:
                yield NEWS

    def _keep(self, run: Run, made: Made) -> Activity[None]:
        live = self._live
        files = tuple(replace(file, path=f"{made.manifest.key}/{file.path}") for file in made.manifest.files)
        request = Keep(manifest=made.manifest.to_json())
        try:
            yield from live.upload(run, "prepared", files)
            yield from live.insistently(lambda: live.edges.server.keep_prepared(live.hold, request))
        except GanglineError:
            pass  # the upload failed: other jobs prepare it themselves

    def _has_no_time(self) -> bool:
        """Return whether to give up uploading prepared files, as the node must stop.

        Before its first step they are all the work that it leaves behind, so they get `UPLOAD_PREPARED_S`; after it, its checkpoint is.
        """
        live = self._live
        trained = live.first_step_s is not None
        return live.stop_s is not None and (trained or live.clock.now_s > live.stop_s + UPLOAD_PREPARED_S)

    # The result

    def ship_result(self, run: Run) -> Activity[Outcome]:
        """Upload the result of a trainer that succeeded, except for pictures that were uploaded before. Raise `AttemptFailed`."""
        while (result := run.result()) is None:
            yield self._live.clock.now_s
        if not result.output:
            raise AttemptFailed("no result", "its output folder is empty")
        if (count := len(result.output)) > RESULTS_MAX:  # the server would refuse all of it, each time
            because = f"it has {count:,} files, and a result may have {RESULTS_MAX:,}: pack them into one, with tar for example"
            raise AttemptFailed("upload failed", because)
        shown = {file.path for pictures in self._shown.values() for file in pictures.files}
        samples = tuple(file for file in result.samples if file.path not in shown)
        folders: tuple[tuple[Folder, tuple[File, ...]], ...] = (("output", result.output), ("samples", samples))
        for folder, files in folders:
            try:
                yield from self._live.upload(run, folder, files)
            except GanglineError as error:
                raise AttemptFailed("upload failed", error.message) from None
        may_end_early = self._live.finishing or self._live.assignment.spec.get("stop_when_worse")
        steps = run.progress().step if may_end_early else 0
        return Succeeded(output=result.output, samples=samples, steps=steps)


def _whole_lines(piece: bytes) -> bytes:
    """Return the text up to its last line end, so that no character is cut in two; all of it if it has none."""
    return piece[: piece.rfind(b"\n") + 1] or piece
