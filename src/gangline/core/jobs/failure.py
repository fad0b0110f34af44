"""Decide what the end of an attempt means: one table, from which retry, ban, strike and the user's sentence follow.

Blame needs contrast. A single try cannot show whether the input or the node is bad, or whether the job kills its hosts: that is decided
over the job's past attempts. Whether a machine is to blame is decided in `gangline.core.fleet.trust`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gangline.core.job import Attempt, AttemptEnd, Job, JobState
from gangline.core.policy import Policy
from gangline.core.runs.contract import TrainerFailureKind
from gangline.core.words import times_in_words

NodeFailureKind = Literal["upload failed", "no result", "gpu error"]
ServerFailureKind = Literal["no progress", "too slow", "throttled", "crowded", "spilled", "outpaced", "kills its hosts"]
ReportedKind = Literal[TrainerFailureKind, NodeFailureKind]
"""The kinds of failure that a node may report for its attempt."""
FailureKind = Literal[ReportedKind, ServerFailureKind]
"""All kinds of failure: a closed list, which docs/reference/events.md and the OpenAPI document repeat."""
Blame = Literal["job", "node", "network", "unknown"]

STRIKE = 4
"""Quarters in a strike: strikes are counted in quarters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """The consequences of a kind of failure. `says` begins the recorded reason, `sentence` explains the kind to users.

    `counts` says that it uses up one of the job's attempts, `ban` that the machine may not try the job again, `confirm` that the job fails
    once a second machine reports the same. `strike` is the number of quarters of a strike against the machine. `pauses`: no machine is
    tried until the job is resumed.
    """

    says: str
    sentence: str
    blame: Blame
    counts: bool = True
    ban: bool = True
    strike: int = 0
    confirm: bool = False
    pauses: bool = False


MEANING: dict[FailureKind, Meaning] = {
    "bad data": Meaning(
        says="the input is bad",
        sentence="The trainer cannot use an input: the job fails once a second machine says the same.",
        blame="job",
        confirm=True,
        strike=STRIKE,
    ),
    "diverged": Meaning(
        says="training diverged",
        sentence="The loss or the gradient became infinite or NaN: the job fails once a second machine sees the same.",
        blame="job",
        confirm=True,
        strike=STRIKE,
    ),
    "no gradient": Meaning(
        says="nothing was learned",
        sentence="The gradient was exactly 0 for many steps in a row: the job fails once a second machine sees the same.",
        blame="job",
        confirm=True,
        strike=STRIKE,
    ),
    "out of memory": Meaning(
        says="out of memory",
        sentence="The GPU or the machine has too little memory: once a second machine of the class says the same, the job asks for more.",
        blame="node",
        strike=STRIKE,
    ),
    "disk full": Meaning(
        says="the node's disk is full",
        sentence="The disk of the node is full: the job is tried on another machine.",
        blame="node",
        strike=STRIKE,
    ),
    "gpu error": Meaning(
        says="the GPU failed",
        sentence="The GPU broke while the job ran on it: the job is tried on another machine.",
        blame="node",
        strike=STRIKE,
    ),
    "crashed": Meaning(
        says="the trainer crashed",
        sentence="The trainer ended with an error that does not tell whose fault it is: the job is tried on another machine.",
        blame="unknown",
        strike=STRIKE // 2,
    ),
    "no result": Meaning(
        says="the trainer ended without a result",
        sentence="The trainer ended as if it had succeeded, but left no file: the job is tried on another machine.",
        blame="unknown",
        strike=STRIKE // 2,
    ),
    "download failed": Meaning(
        says="an input could not be downloaded",
        sentence="The node could not download an input, the base or a data set: the job is tried again, there or elsewhere.",
        blame="network",
        ban=False,
        strike=1,
    ),
    "upload failed": Meaning(
        says="a result could not be uploaded",
        sentence="The node could not upload a result: the job is tried again, there or elsewhere.",
        blame="network",
        ban=False,
        strike=1,
    ),
    "other numerics": Meaning(
        says="the node computes with other numerics",
        sentence="The node would end with other bits, which a job with `exact = required` refuses: it waits for a node like the first.",
        blame="job",
        counts=False,
    ),
    "other format": Meaning(
        says="its checkpoint has the format of an older Gangline",
        sentence="An older version of Gangline, which the reason names, wrote the job's checkpoint: the job is paused and keeps it, so "
        "that a node of that version can finish the job once it is resumed.",
        blame="job",
        counts=False,
        ban=False,
        pauses=True,
    ),
    "too old": Meaning(
        says="the node has an older Gangline than this job",
        sentence="The node has an older Gangline, which does not know a setting of the job: another node takes it.",
        blame="node",
        counts=False,
    ),
    "no progress": Meaning(
        says="no progress",
        sentence="The attempt made no progress for longer than the policy allows: the server ended it, and the job is tried elsewhere.",
        blame="node",
        strike=STRIKE,
    ),
    "too slow": Meaning(
        says="too slow beside its peers",
        sentence="The machine was much slower than its peers at the same work: it handed the job back, and the job resumes elsewhere.",
        blame="node",
        counts=False,
        strike=STRIKE,
    ),
    "throttled": Meaning(
        says="its card is throttled",
        sentence="Heat or too little power held the clocks of the card down, and it was slower than its peers: the job resumes elsewhere.",
        blame="node",
        counts=False,
        strike=1,
    ),
    "crowded": Meaning(
        says="the memory of its card is full",
        sentence="The driver moved a part of the job to slow memory of the machine, and others of the class hold it all: it resumes there.",
        blame="node",
        counts=False,
    ),
    "spilled": Meaning(
        says="its GPU memory spilled into the machine's",
        sentence="The job needs more GPU memory than the card has, and the driver let it: from now on the job asks for a larger card.",
        blame="job",
        counts=False,
        ban=False,
    ),
    "outpaced": Meaning(
        says="a faster machine takes over",
        sentence="Another machine does the same work for less: the node handed the job back, and the job resumes there.",
        blame="node",
        counts=False,
        ban=False,
    ),
    "kills its hosts": Meaning(
        says="the job seems to kill its hosts",
        sentence="Several machines in a row fell silent with the job and left no checkpoint: that counts as one failure of the job.",
        blame="job",
        ban=False,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The new state of the attempt and its job, and the effects on the machine.

    The job waits `wait_s` before its next try, and needs `gpu_memory_gb` of GPU memory from now on.
    """

    attempt: AttemptEnd
    job: JobState
    attempts_failed: int
    because: str
    kind: FailureKind | Literal[""] = ""
    ban: bool = False
    strike: int = 0
    wait_s: float = 0
    gpu_memory_gb: float = 0


def succeeded(job: Job, node: str, early: str = "") -> Verdict:
    """`early` says at which step, if its owner had asked to finish it there."""
    return Verdict(
        attempt="succeeded", job="succeeded", attempts_failed=job.attempts_failed, because=f"finished on {node}{early}"
    )


def canceled(job: Job, because: str) -> Verdict:
    return Verdict(attempt="canceled", job="canceled", attempts_failed=job.attempts_failed, because=because)


def failure_sentence(kind: FailureKind, words: str) -> str:
    """Return the reason that a user reads for a failure of this kind."""
    return f"{MEANING[kind].says}: {words}" if words else MEANING[kind].says


def after_failure(
    job: Job, attempt: Attempt, past: Sequence[Attempt], kind: FailureKind, words: str, policy: Policy
) -> Verdict:
    """Decide what follows from the failure of `attempt`. `past` are the job's earlier attempts, in any order."""
    meaning = MEANING[kind]
    because = failure_sentence(kind, words)
    failed = job.attempts_failed + meaning.counts
    verdict = Verdict(
        attempt="failed" if meaning.counts else "released",
        job="paused" if meaning.pauses else "queued",
        attempts_failed=failed,
        because=because,
        kind=kind,
        ban=meaning.ban and policy.bans,
        strike=meaning.strike,
        wait_s=wait_s(failed, policy) if meaning.counts else 0,
        gpu_memory_gb=job.gpu_memory_gb,
    )
    others = [before for before in past if before.kind == kind and before.machine != attempt.machine]
    if meaning.confirm:
        return _confirmed(verdict, attempt, past, others)
    if kind == "out of memory" and any(before.gpu == attempt.gpu for before in others):
        verdict = _needs_more(verdict, attempt)
    if meaning.counts and failed >= job.attempts_max:
        return replace(
            verdict,
            job="failed",
            because=f"{because} (the job has failed {times_in_words(failed)}, which is its limit)",
        )
    if meaning.counts:
        return replace(verdict, because=f"to be tried again ({failed} of {job.attempts_max} failed): {verdict.because}")
    return verdict


def _confirmed(verdict: Verdict, attempt: Attempt, past: Sequence[Attempt], others: list[Attempt]) -> Verdict:
    # If there is only one machine, no other can confirm: its second failure counts as the confirmation.
    again = any(before.kind == verdict.kind for before in past if before.machine == attempt.machine)
    if others or again:
        who = "a second machine" if others else "the only machine here, twice"
        return replace(verdict, job="failed", strike=0, because=f"{verdict.because} (so says {who})")
    return replace(verdict, wait_s=0, because=f"a second machine is to confirm: {verdict.because}")


def _needs_more(verdict: Verdict, attempt: Attempt) -> Verdict:
    """Raise the job's need of memory, as two machines of a class had too little, and do not blame the machine."""
    # One more than this machine has, so that no machine of its size takes the job again.
    need = max(verdict.gpu_memory_gb, attempt.gpu_memory_gb + 1)
    because = f"{verdict.because}; on a second {attempt.gpu or 'machine'} too, so it needs {need:g} GB or more"
    return replace(verdict, strike=0, gpu_memory_gb=need, because=because)


def after_interruption(
    job: Job, attempt: Attempt, past: Sequence[Attempt], node: str, policy: Policy, *, released: bool = False
) -> Verdict:
    """Decide what follows when a node disappeared or was preempted: the job has not failed, unless it seems to kill its hosts.

    `past` are the job's earlier attempts, the newest first.
    """
    if released:
        return Verdict(
            attempt="released",
            job="queued",
            attempts_failed=job.attempts_failed,
            because=f"{node} was asked to stop and handed the job back",
            gpu_memory_gb=job.gpu_memory_gb,
        )
    silent = f"{node} fell silent"
    machines = _lost_in_a_row(attempt, past)
    if len(machines) >= policy.interruptions_blamed:
        words = f"{len(machines)} machines in a row fell silent and none stored a checkpoint"
        return replace(after_failure(job, attempt, past, "kills its hosts", words, policy), attempt="interrupted")
    return Verdict(
        attempt="interrupted",
        job="queued",
        attempts_failed=job.attempts_failed,
        because=silent,
        gpu_memory_gb=job.gpu_memory_gb,
    )


def _lost_in_a_row(attempt: Attempt, past: Sequence[Attempt]) -> set[str]:
    """Return the machines that were lost in a row since the job last made progress, or was last blamed for such a row."""
    machines: set[str] = set()
    for lost in (attempt, *past):
        if lost.advanced or lost.kind or lost.state not in ("live", "interrupted"):
            break
        machines.add(lost.machine)
    return machines


def wait_s(failed: int, policy: Policy) -> float:
    """Return the seconds to wait before try number `failed` + 1: they double each time, up to a bound."""
    # The limit of 30 keeps the power of a large count within the range of a float.
    return min(policy.retry_max_s, policy.retry_first_s * 2 ** (min(failed, 30) - 1)) if failed else 0
