"""What a check of a pool asks the server: how far it is, what was rented for it, and to give that back."""

import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from gangline.cli.output import duration, say
from gangline.core.errors import UserError
from gangline.core.fleet.check import STAGES, CheckedJob, CheckLimits, CheckSight, CheckStage, left_of
from gangline.core.fleet.nodes import NodeBill, NodeDetail
from gangline.core.fleet.pools import InstanceView

if TYPE_CHECKING:
    from gangline.compose.client import Client


@dataclass(slots=True)
class PoolCheck:
    """One check, and all that it has rented: each rental with its newest node. It waits `gone_s` seconds at most for that to go."""

    client: "Client"
    pool: str
    limits: CheckLimits
    look_every_s: float = 1.0
    gone_s: float = 600.0
    offers: frozenset[str] = frozenset()
    here_before: frozenset[str] = frozenset()
    job: str = ""
    submitted_ms: int = 0
    began_s: float = field(default_factory=time.monotonic)
    rented: dict[str, NodeDetail] = field(default_factory=dict)
    rented_s: dict[str, float] = field(default_factory=dict)
    refused_s: float | None = None
    stages: dict[CheckStage, float] = field(default_factory=dict)
    because: str = ""
    left: list[InstanceView] = field(default_factory=list)
    bills: list[NodeBill] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    def wait(self) -> None:
        """Wait until the next look."""
        Event().wait(self.look_every_s)

    def look(self) -> CheckSight:
        """Look at the job, the node that it has, and the provider's refusals."""
        job = self.client.jobs.get(self.job)
        node = self._newest(job.attempts[-1].node if job.attempts else "")
        pool = self.client.pools.get(self.pool)
        if pool.refused_ms is not None and pool.refused_ms >= self.submitted_ms and self.refused_s is None:
            self.refused_s = time.monotonic()
        summary = job.summary
        return CheckSight(
            elapsed_s=self.elapsed_s,
            job=CheckedJob(
                state=summary.state,
                because=summary.because,
                phase=summary.phase,
                step=summary.step,
                committed_step=summary.committed_step,
                node=job.attempts[-1].node_name if job.attempts else "",
            ),
            node=node,
            spent_usd=self._spent_usd(),
            refused="" if self.refused_s is None else pool.refused,
            refused_s=0.0 if self.refused_s is None else time.monotonic() - self.refused_s,
        )

    def _newest(self, works: str) -> NodeDetail | None:
        """Look again at what was rented, and at what came since without a job of others. Return the node that `works`, else the newest.

        One that was seen while the provider was asked for it, and then refused, was none.
        """
        came = [
            node.id
            for node in self.client.nodes.list()
            if node.pool == self.pool
            and node.id not in self.here_before
            and all(each.job == self.job for each in node.jobs)
        ]
        known = [detail.id for detail in self.rented.values()]
        mine = [works] if works and works not in self.here_before else []
        for node in dict.fromkeys([*known, *came, *mine]):
            self._note(self.client.nodes.get(node))
        rented = list(self.were_rented().values())
        return next((each for each in rented if each.id == works), rented[-1] if rented else None)

    def _note(self, detail: NodeDetail) -> None:
        if detail.rental:
            self.rented_s.setdefault(detail.rental, time.monotonic())
            known = self.rented.get(detail.rental)
            if known is None or detail.since_ms >= known.since_ms:
                self.rented[detail.rental] = detail

    def were_rented(self) -> dict[str, NodeDetail]:
        """Return the newest node of each rental that the provider did not refuse, by rental."""
        return {rental: node for rental, node in self.rented.items() if not node.refused}

    def _spent_usd(self) -> float:
        now_s = time.monotonic()
        rented = self.were_rented().items()
        return sum(node.price_usd_per_hour * (now_s - self.rented_s[rental]) / 3600 for rental, node in rented)

    def drain(self) -> list[NodeDetail]:
        """Cancel the job and give back what was rented for it. Return the nodes that are not gone yet."""
        if self.client.jobs.get(self.job).summary.ended_ms is None:
            with suppress(UserError):  # it ended at this moment
                self.client.jobs.cancel(self.job)
        self.look()
        here = [node for node in self.rented.values() if node.state != "gone"]
        for node in here:
            if node.state != "draining":
                with suppress(UserError):  # it went at this moment
                    self.client.nodes.drain(node.id, stop=True)
        return here

    def list_left(self) -> list[InstanceView]:
        """Ask the provider itself what is left of what was rented."""
        self.left = left_of(list(self.client.pools.instances(self.pool)), self.rented)
        return self.left

    def tell(self, stage: CheckStage, more: str = "") -> None:
        if stage not in self.stages:
            self.stages[stage] = self.elapsed_s
            self.say_now(STAGES[stage] + (f" ({more})" if more else ""))

    def say_now(self, sentence: str) -> None:
        """Say what happened, and how long after the job was submitted."""
        say(f"{duration(self.elapsed_s):>12}  {sentence}")
