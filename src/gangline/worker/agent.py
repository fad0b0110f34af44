"""The agent: it joins, claims jobs for its free slots and works on them, until it is asked to stop. `step` never blocks."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from gangline.core.errors import Denied, GanglineError, Unreachable, UserError
from gangline.core.jobs.retry import RETRY_S_MAX, retry_s
from gangline.core.runs.proof import unfit
from gangline.ports.server import Assignment, Join, Joined, Notice, NoWork
from gangline.worker.edges import Edges
from gangline.worker.move import LeaseLost
from gangline.worker.slots import Slots
from gangline.worker.work import AttemptWork

PROVE_EVERY_S = 0.2
"""Seconds between two checks whether the probe has finished."""
REFUSED_S_MAX = 60.0
"""The longest pause of a refused node before it asks again, in seconds."""


class Agent:
    """The agent of one node.

    `notice` returns the provider's words that the machine is about to be taken away, or "": the agent then stops as if asked to.
    `identity` returns a token of the provider's that proves which machine this is, or "" where there is none; it may raise `Unreachable`.
    `patient` says that nobody watches: if the server refuses the node, it says why and asks again until the reason is gone.
    `news` has lines for people about what happened since they were last taken; those of `welcome` are added once it has joined. `failed`
    says why the node is unusable, else "": a node that fails its probe still joins, so that the operator sees it, and then stops.
    """

    def __init__(
        self,
        edges: Edges,
        join: Join,
        *,
        patient: bool = False,
        notice: Callable[[], str] = lambda: "",
        identity: Callable[[], str] = lambda: "",
        news: list[str] | None = None,
        welcome: Sequence[str] = (),
    ) -> None:
        self.stopped = False
        self.failed = ""
        self.news = [] if news is None else news
        self._welcome = [*welcome]
        self._patient = patient
        self._notice = notice
        self._identity = identity
        self._untold = ""
        self._tell_s = -math.inf
        self._edges = edges
        self._join = join
        self._proven = False
        self._joined: Joined | None = None
        self._works: list[AttemptWork] = []
        self._slots = Slots(join.slots)
        self._stopping = False
        self._next_s = 0.0
        self._tries = 0
        self._waits_for = ""
        self._locked_out = ""

    def ask_to_stop(self) -> None:
        """Release all jobs at their newest steps, leave, and become `stopped`. Safe in a signal handler."""
        self._stopping = True

    @property
    def is_busy(self) -> bool:
        """Return whether the agent has a job."""
        return bool(self._works)

    @property
    def hurries(self) -> bool:
        """Return whether a checkpoint is being written, of which each part is to be uploaded as soon as it is there."""
        return any(work.hurries for work in self._works)

    @property
    def due_s(self) -> float:
        """The latest moment of the next step, unless an edge has news before."""
        due_s = [work.due_s for work in self._works]
        if self._stopping:
            return min([*due_s, self._tell_s] if self._untold else due_s, default=-math.inf)
        return min([*due_s, self._next_s] if self._has_room else due_s)

    @property
    def _has_room(self) -> bool:
        """Return whether a slot is free for another job."""
        return sum(work.assignment.slots for work in self._works) < self._join.slots

    def step(self, now_s: float) -> None:
        """Do one step. Raise the server's refusal to let the node join, unless the agent is `patient`."""
        if not self._stopping and (because := self._notice()):
            self._heed(because)
        # Looked at before the works' steps: a slot that becomes free in this step is filled in the next.
        has_room = self._has_room
        for work in self._works:
            self._step_work(work, now_s)
        if any(work.ended for work in self._works):
            self._works = [work for work in self._works if not work.ended]
            self._next_s = self._next_s if self._tries else now_s
        elif self._untold and self._joined and now_s >= self._tell_s:
            self._tell(now_s)
        elif self._stopping and not self._works:
            self._leave()
        elif not self._stopping and has_room and now_s >= self._next_s:
            self._ask(now_s)

    def _heed(self, because: str) -> None:
        """Hand everything back: trainers are asked to save first, then the notice is reported."""
        self.news.append(f"{because}; saving, and handing back all jobs")
        self._untold = because
        self._stopping = True

    def _tell(self, now_s: float) -> None:
        try:
            self._edges.server.notice(Notice(because=self._untold))
        except Unreachable:
            self._tell_s = now_s + retry_s(self._tries, self._edges.rng)
            self._tries += 1
            return
        except Denied:
            self._forget()
        except GanglineError:
            pass  # an older server has no such route: it sees that the node leaves
        self._untold = ""

    def _step_work(self, work: AttemptWork, now_s: float) -> None:
        if self._stopping:
            work.ask_to_stop()
        try:
            work.step(now_s)
        except LeaseLost:
            self.news.append(f"{work.assignment.job}: the lease is lost; stopped and cleaned up")
        except Denied:
            self._forget()
        except GanglineError as error:
            self.news.append(f"{work.assignment.job}: abandoned: {error.message}")
        self.news += [f"{work.assignment.job}: {each}" for each in work.take_news()]

    def _forget(self) -> None:
        """Abandon all jobs, as their leases were this node's, which the server no longer knows."""
        self._joined = None
        self.news.append("the server no longer knows this node; joining again")
        for work in self._works:
            work.abandon()

    def _ask(self, now_s: float) -> None:
        if not self._proven and not self._prove():
            self._next_s = now_s + PROVE_EVERY_S
            return
        try:
            self._edges.trainer.prepare()
        except OSError as error:
            why = f"no trainer can be started here: {error.strerror or error}"
            self._retry(now_s, f"{why}; trying again", waits_for=why, most_s=REFUSED_S_MAX)
            return
        try:
            self._joined = self._joined or self._do_join()
            if not self.stopped:
                self._do_claim(self._joined, now_s)
            self._tries, self._waits_for = 0, ""
        except Unreachable as error:
            self._retry(now_s, f"{error.message}; trying again", waits_for="an answer")
        except UserError as error:
            if not self._patient:
                raise
            self._joined = None
            hint = f" ({error.hint})" if error.hint else ""
            self._retry(now_s, f"{error.message}{hint}; trying again", waits_for=error.message, most_s=REFUSED_S_MAX)

    def _retry(self, now_s: float, news: str, *, waits_for: str, most_s: float = RETRY_S_MAX) -> None:
        """Ask again later. The reason is said once, and again when it changes."""
        if waits_for != self._waits_for:
            self.news.append(news)
        self._waits_for = waits_for
        self._next_s = now_s + retry_s(self._tries, self._edges.rng, most_s=most_s)
        self._tries += 1

    def _prove(self) -> bool:
        """Return whether the probe has finished; its findings become part of the request to join."""
        proof, join = self._edges.trainer.prove(), self._join
        if proof is None:
            return False
        problems, measured = {**join.problems, **proof.problems}, {**join.measured, **proof.measured}
        self._join = replace(join, kinds=proof.kinds, problems=problems, measured=measured)
        self._proven = True
        return True

    def _do_join(self) -> Joined:
        # Such a token soon expires: each request to join has one of its own.
        joined = self._edges.server.join(replace(self._join, identity=self._identity()))
        self.failed = unfit(self._join.kinds, self._join.problems)
        self.stopped = bool(self.failed)
        self.news += [f"joined as {self._join.name} ({joined.node})", *self._welcome]
        self._welcome = []
        return joined

    def _do_claim(self, joined: Joined, now_s: float) -> None:
        try:
            answer = self._edges.server.claim(self._edges.gauges(now_s))
        except Denied:
            self._forget()
            return
        locked_out = answer.because if isinstance(answer, NoWork) and answer.locked_out else ""
        if locked_out not in ("", self._locked_out):
            self.news.append(f"no work for now: {locked_out}")
        self._locked_out = locked_out
        if isinstance(answer, Assignment):
            self.news.append(f"{answer.job}: {answer.name}")
            self._works.append(AttemptWork(self._edges, answer, joined, self._slots, now_s))
        else:
            self._next_s = now_s + joined.claim_interval_s

    def _leave(self) -> None:
        if self._joined is not None:
            try:
                self._edges.server.leave()
            except (Unreachable, Denied):
                self.news.append("the server could not be informed that this node leaves; it will notice by itself")
        self.stopped = True
