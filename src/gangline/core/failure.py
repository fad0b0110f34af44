"""What the end of an attempt means for its job: one table, from which retry and the user's sentence follow."""

from dataclasses import dataclass
from typing import Literal

from gangline.core.contract import FailureKind as TrainerFailureKind
from gangline.core.job import AttemptState, Job, JobState

NodeFailureKind = Literal["download failed", "upload failed", "no result"]
FailureKind = TrainerFailureKind | NodeFailureKind


@dataclass(frozen=True, slots=True)
class Meaning:
    """`ends_job`: another node would fail alike. `says`: how it begins the sentence that the user reads."""

    ends_job: bool
    says: str


MEANING: dict[str, Meaning] = {
    "bad data": Meaning(ends_job=True, says="the input is bad"),
    "diverged": Meaning(ends_job=True, says="training diverged"),
    "out of memory": Meaning(ends_job=False, says="out of memory"),
    "disk full": Meaning(ends_job=False, says="the node's disk is full"),
    "crashed": Meaning(ends_job=False, says="the trainer crashed"),
    "download failed": Meaning(ends_job=False, says="an input could not be downloaded"),
    "upload failed": Meaning(ends_job=False, says="a result could not be uploaded"),
    "no result": Meaning(ends_job=False, says="the trainer ended without a result"),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of the attempt and of its job."""

    attempt: AttemptState
    job: JobState
    attempts_failed: int
    because: str


def after_failure(job: Job, kind: FailureKind, words: str) -> Verdict:
    meaning = MEANING[kind]
    failed = job.attempts_failed + 1
    because = f"{meaning.says}: {words}" if words else meaning.says
    if meaning.ends_job:
        return Verdict("failed", "failed", failed, because)
    if failed >= job.attempts_max:
        return Verdict("failed", "failed", failed, f"{because} (failed {failed} times, the most that it may)")
    return Verdict("failed", "queued", failed, f"to be tried again ({failed} of {job.attempts_max} failed): {because}")


def after_interruption(job: Job, node: str, *, released: bool) -> Verdict:
    """A node that is gone, or had notice to go: never a failure of the job."""
    if released:
        return Verdict("released", "queued", job.attempts_failed, f"{node} was told to stop and handed it back")
    return Verdict("interrupted", "queued", job.attempts_failed, f"{node} fell silent")
