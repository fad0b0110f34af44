"""Remember the jobs of a pool. Slurm drops ended jobs after some minutes, and does not say who canceled one."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from gangline.adapters.pools.slurm.answers import ENDINGS, ENTERED, SlurmJob, waiting_words
from gangline.ports.pool import Instance

STOPPED, FORGOTTEN = "it was stopped", "Slurm no longer lists its job"
ENDED_KEPT_S = 600
SAYS_NO_MORE = frozenset({"COMPLETED", "FAILED"})
"""States that leave open how the job's script ended."""


@dataclass(slots=True)
class _Known:
    """A job as it was last seen. `gone_s` is when its end was noticed, of the monotonic clock, and `ended` why. `missing` says that the
    last list was without it, and that the database had no word of it."""

    job: SlurmJob
    missing: bool = False
    ended: str = ""
    gone_s: float | None = None


class SeenJobs:
    """The jobs that one driver has submitted or seen. A driver that starts without this memory words some ends less exactly."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, _Known] = {}
        self._submitted: dict[str, str] = {}  # the job by its name, until the list shows it
        self._stopped: set[str] = set()

    def submit(self, name: str, job: str) -> None:
        with self._lock:
            self._submitted[name] = job

    def stop(self, job: str) -> None:
        with self._lock:
            self._stopped.add(job)

    def has_name(self, name: str) -> bool:
        with self._lock:
            return name in self._submitted or any(each.job.name == name for each in self._known.values())

    def has(self, job: str) -> bool:
        with self._lock:
            return job in self._known or job in self._submitted.values()

    def vanished(self, listed: Iterable[SlurmJob]) -> list[str]:
        """Return the jobs that were running or waiting when they were last seen, and are not listed."""
        there = {job.id for job in listed}
        with self._lock:
            return [job for job, known in self._known.items() if known.gone_s is None and job not in there]

    def unexplained(self, listed: Iterable[SlurmJob]) -> list[str]:
        """Return the listed jobs of which it is open how they ended."""
        with self._lock:
            return [job.id for job in listed if job.state in SAYS_NO_MORE and not self._is_gone(job.id)]

    def note(
        self, listed: Iterable[SlurmJob], exits: Mapping[str, str], recorded: Mapping[str, SlurmJob]
    ) -> list[Instance]:
        """Note what Slurm lists, how scripts ended, and what the database has of the jobs that vanished. Return all instances."""
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        there = {job.id: job for job in listed}
        with self._lock:
            for job in there.values():
                self._submitted.pop(job.name, None)
                self._note_listed(job, exits.get(job.id, ""), now_s)
            for job, known in self._known.items():
                if job not in there and known.gone_s is None:
                    self._note_vanished(known, recorded.get(job), now_s, now_ms)
            self._forget(there, now_s)
            return [_instance(known) for _, known in sorted(self._known.items(), key=lambda each: int(each[0]))]

    def _is_gone(self, job: str) -> bool:
        return job in self._known and self._known[job].gone_s is not None

    def _note_listed(self, job: SlurmJob, exit_words: str, now_s: float) -> None:
        known = self._known.setdefault(job.id, _Known(job))
        known.job, known.missing = job, False
        if not job.has_ended:  # also if it was missing from a list and is back
            known.gone_s, known.ended = None, ""
        elif known.gone_s is None:
            known.gone_s, known.ended = now_s, self._why(job, exit_words)

    def _note_vanished(self, known: _Known, recorded: SlurmJob | None, now_s: float, now_ms: int) -> None:
        """Note the end of a job that Slurm has dropped: as its database has it, else as of now. Without a word of the database, which may
        not answer, one list is not enough."""
        known.missing, before = recorded is None, known.missing
        if (recorded and not recorded.has_ended) or (known.missing and not before):
            return
        job = known.job
        to_ms = (recorded.to_ms if recorded else None) or now_ms
        from_ms = (recorded.from_ms if recorded else None) or (to_ms if job.state in ENTERED else job.from_ms)
        known.job = replace(job, state=recorded.state if recorded else "", from_ms=from_ms, to_ms=to_ms)
        known.gone_s, known.ended = now_s, self._why(known.job, "")

    def _why(self, job: SlurmJob, exit_words: str) -> str:
        if job.state in ("CANCELLED", "") and job.id in self._stopped:
            return STOPPED
        because = exit_words or ENDINGS.get(job.state, FORGOTTEN)
        return f"{because} on {job.node}" if job.node and job.state else because

    def _forget(self, there: Mapping[str, SlurmJob], now_s: float) -> None:
        for job, known in list(self._known.items()):
            if job not in there and known.gone_s is not None and now_s - known.gone_s > ENDED_KEPT_S:
                del self._known[job]
                self._stopped.discard(job)


def _instance(known: _Known) -> Instance:
    job, runs = known.job, known.gone_s is None
    return Instance(
        id=job.id,
        name=job.name,
        billed_from_ms=None if job.state in ENTERED else job.from_ms,
        billed_to_ms=None if runs else job.to_ms,
        ended=known.ended,
        progress=waiting_words(job) if runs else "",
    )
