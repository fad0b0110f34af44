"""One attempt on this node, from its claim to its end: activities that never block, each resumed at each step.

    activity     what it does                                           what starts it            what follows its end
    -----------  -----------------------------------------------------  ------------------------  -------------------------------------
    heartbeat    renew the lease, learn that the node must stop         the claim                 none: it beats until the clean-up
    course       download, train, upload the result, finish             the claim                 the clean-up: the run leaves no trace
    checkpoints  ask for them, upload and commit the newest             each start of a trainer   a part of the course: its next part
    log          send what the trainer prints                           each start of a trainer   when all of these have ended, the
    metrics      send what it measures                                  each start of a trainer   course continues: with the result and
    pictures     upload what it renders between its steps               each start of a trainer   the finish, or with the inputs that
    prepared     upload what it prepared, for other jobs                each start of a trainer   were left out and another start

In each step the heartbeat comes first: whatever the others do, the lease is renewed before. Then comes the course, then the rest in the
order of the table: always the same order, so that a simulated run can be repeated. A lost lease ends all of them at once, whichever learns
of it.
"""

from dataclasses import replace
from errno import ENOSPC
from pathlib import Path

from gangline.core.display import as_words
from gangline.core.errors import GanglineError
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_LEFT_OUT, EXIT_STOPPED
from gangline.core.specs.command import SILENT_S
from gangline.core.specs.kinds import reads_buckets, wants_network, wants_packages
from gangline.ports.server import Assignment, Done, Failed, Joined, Outcome, Refused, Released
from gangline.ports.trainer import Installing, Run, RunAccess
from gangline.worker.activities import Activities
from gangline.worker.attempt import LiveAttempt
from gangline.worker.checkpoints import Checkpoints
from gangline.worker.edges import Activity, Clock, Edges, unless
from gangline.worker.fetch import fetch_checkpoint, fetch_inputs, fetch_left_out, placing
from gangline.worker.heartbeat import Heartbeat
from gangline.worker.move import AttemptFailed
from gangline.worker.shipping import Shipping
from gangline.worker.slots import Slots


class AttemptWork:
    """The work on one attempt: call `step` until `ended`.

    If the lease is lost, at any moment, the trainer is killed and nothing more is sent.
    """

    def __init__(self, edges: Edges, assignment: Assignment, joined: Joined, slots: Slots, now_s: float) -> None:
        self.assignment = assignment
        self.ended = False
        own = replace(edges, transfer=edges.transfer.apart())
        share = assignment.slots / slots.count
        self._live = LiveAttempt(
            edges=own, clock=Clock(now_s), assignment=assignment, joined=joined, share_of_node=share
        )
        self._slots = slots
        self._taken: tuple[int, ...] = ()
        self._heartbeat = Heartbeat(self._live)
        self._activities = Activities(self._live.clock)
        self._activities.begin(self._course())
        self._directory: Path | None = None
        self._installing: Installing | None = None
        self._over = False

    def step(self, now_s: float) -> None:
        self._live.clock.now_s = now_s
        try:
            if not self._over:
                self._heartbeat.beat_if_due()
                self._activities.go_on()
                self._over = self._activities.all_ended
        # Whatever was raised, the clean-up below must run, or the trainer would outlive its attempt.
        except BaseException:
            self._over = True
            raise
        finally:
            if self._over:
                self._clean_up()

    @property
    def due_s(self) -> float:
        """The latest moment of the next step, unless an edge has news before."""
        return self._live.clock.now_s if self._over else min(self._heartbeat.due_s, self._activities.due_s)

    @property
    def hurries(self) -> bool:
        """Return whether the trainer writes what is to be uploaded at once."""
        return self._live.awaits_save and not self._over

    def take_news(self) -> list[str]:
        """Return sentences for the node's log, each once."""
        taken, self._live.news = self._live.news, []
        return taken

    def ask_to_stop(self) -> None:
        """Ask to save, upload the trainer's output and release the job; downloads are abandoned. Repeated calls change nothing."""
        self._live.ask_to_stop()

    def abandon(self) -> None:
        """Kill the trainer and send nothing more, as the server does not know this node any longer."""
        self._over = True
        self._clean_up()

    # The course

    def _course(self) -> Activity[None]:
        """Run the attempt and report its outcome, whatever went wrong: else the server would learn of it only when the lease expires."""
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
        live = self._live
        said = replace(outcome, because=as_words(outcome.because)) if isinstance(outcome, Failed) else outcome
        return live.insistently(lambda: live.edges.server.finish(live.hold, said))

    def _attempt(self) -> Activity[Outcome]:
        """Train until the trainer ends; start it once more if it needs parts that were left out of its inputs."""
        live = self._live
        directory = self._directory = live.edges.host.lay_out(live.hold.attempt, live.assignment.spec)
        left_out = yield from self._unless_stopping(self._fetch(directory))
        shipping = Shipping(live)  # only now is it known from which step the attempt resumes
        checkpoints = Checkpoints(live, shipping)
        yield from unless(lambda: live.stopping, self._take_slots())
        access = yield from self._access(directory, shipping)
        while left_out is not None and access:
            run = live.run = live.edges.trainer.start(live.assignment.kind, directory, self._taken, access)
            directory = self._directory = run.directory
            if live.finishing:
                run.ask_to_finish()
            code = yield from self._supervise(run, shipping, checkpoints)
            run.kill()  # what it started and left would still write, while its result is read
            if code != EXIT_LEFT_OUT or not left_out:
                return (yield from _outcome(run, code, shipping))
            left_out = yield from self._unless_stopping(self._fetch_left_out(directory, left_out))
        return Released()

    def _unless_stopping(self, fetching: Activity[tuple[str, ...]]) -> Activity[tuple[str, ...] | None]:
        """Return which parts of the base are still missing, or None if the node must stop, as nobody needs them then."""
        live = self._live
        live.phase = "downloading"
        lacking = yield from unless(lambda: live.stopping, fetching)
        if live.stopping:
            live.edges.transfer.stop()
            return None
        return lacking

    def _take_slots(self) -> Activity[None]:
        """Wait until the slots are free: the server gives a job as soon as a lease has ended, and its run may not be removed yet."""
        while not self._taken:
            self._taken = self._slots.take(self._live.assignment.slots) or ()
            if not self._taken:
                yield self._live.clock.now_s

    def _access(self, directory: Path, shipping: Shipping) -> Activity[RunAccess | None]:
        """Return what the run may use, once its virtual environment is made; None if the node must stop. Raise `AttemptFailed`."""
        live, spec = self._live, self._live.assignment.spec
        access = RunAccess(network=wants_network(spec), buckets=reads_buckets(spec), secrets=live.assignment.secrets)
        if wants_packages(spec) and not live.stopping:
            made = self._installing = live.edges.trainer.install(directory)
            yield from unless(lambda: live.stopping, self._install(made, shipping))
            access = replace(access, environment=made.place)
        return None if live.stopping else access

    def _install(self, made: Installing, shipping: Shipping) -> Activity[None]:
        """Send what the installation prints until it has ended. Raise `AttemptFailed` if it fails or prints nothing for too long."""
        silent_s: float = self._live.assignment.spec.get("silent_s", SILENT_S)

        def hangs() -> bool:
            if made.waits:
                shipping.hear()
            return shipping.silent_for_s > silent_s

        yield from unless(hangs, shipping.ship_log(made))
        code = made.exit_code()
        if code:
            raise AttemptFailed("crashed", f"the requirements cannot be installed: {shipping.last_words(made)}")
        if code is None:
            said = f"the installation of the requirements has printed nothing for {silent_s:.0f} s"
            raise AttemptFailed("crashed", said)

    def _fetch(self, directory: Path) -> Activity[tuple[str, ...]]:
        live = self._live
        left_out = yield from placing(fetch_inputs(live.edges, live.clock, live.assignment, directory))
        live.from_step = yield from fetch_checkpoint(live.edges, live.clock, live.assignment, directory)
        return left_out

    def _fetch_left_out(self, directory: Path, parts: tuple[str, ...]) -> Activity[tuple[str, ...]]:
        live = self._live
        live.edges.host.take_back(directory)
        yield from placing(fetch_left_out(live.edges, live.clock, live.assignment, directory, parts))
        return ()

    def _supervise(self, run: Run, shipping: Shipping, checkpoints: Checkpoints) -> Activity[int]:
        """Upload everything but the result of a trainer; return its exit code.

        The attempt may finish only after that: finishing ends the lease, and without a lease the server accepts nothing more.
        """
        loops = shipping.loops(run)
        self._activities.begin(*loops)
        code = yield from checkpoints.ship(run)
        while self._activities.any_running(loops):
            yield self._live.clock.now_s
        return code

    def _clean_up(self) -> None:
        """Remove the run from the node, its processes and its photos. Call it until it sets `ended`.

        Transfers are stopped and waited for before: else one would write into a folder that was just deleted.
        """
        self._activities.drop()
        live = self._live
        if live.run:
            live.run.kill()
        if self._installing:
            self._installing.release()
        live.edges.transfer.stop()
        if live.edges.transfer.idle:
            if self._directory:
                live.edges.host.remove_run(self._directory)
            live.edges.host.make_room(0)
            self._slots.give_back(self._taken)
            self.ended = True


def _outcome(run: Run, code: int, shipping: Shipping) -> Activity[Outcome]:
    if code == EXIT_DONE:
        return (yield from shipping.ship_result(run))
    if code == EXIT_STOPPED:
        return Released()
    said = run.failure()
    if code == EXIT_BAD_INPUT:
        return Failed(kind="bad data", because=said.because if said else shipping.last_words(run))
    if said:
        return Failed(kind=said.kind, because=said.because)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Failed(kind="crashed", because=f"{how}; its last output: {shipping.last_words(run)}")
