"""Say in one sentence how a job stands: what it took, what interruptions cost, why it waits, or what to do after a failure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gangline.core.job import Attempt, JobState
from gangline.core.jobs.failure import FailureKind
from gangline.core.jobs.story.held_out import HeldOutChange
from gangline.core.money.cost import CostPart, Lost, lost, time_cost_micro_usd
from gangline.core.words import counted, duration_words, usd_words

REASON_MAX = 240
"""A longer reason, in characters, is cut: a failure may quote a trainer's last output."""
WAITED_SHARE, WAITED_MS = 0.1, 60_000
"""The time that a job was without a node is named if it is more than this share of all its time, and longer than this."""
SMALL_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

REMEDIES: Mapping[FailureKind, str] = {
    "bad data": "Correct that input and submit the job again",
    "diverged": "Clone the job with a lower learning rate",
    "no gradient": "Look at what the settings train, and at the learning rate",
    "out of memory": "Clone the job with a smaller batch or resolution, or let it need more GPU memory",
    "disk full": "Free disk space on the nodes, or submit the job to another pool",
    "gpu error": "Retry the job",
    "crashed": "Its log has the trainer's last output",
    "no result": "Its log has the trainer's last output",
    "download failed": "Check that the source can be reached, and retry the job",
    "upload failed": "Check that the object store can be reached, and retry the job",
    "no progress": "Its log shows where it stopped",
    "kills its hosts": "Let the job need more memory, or look at what its log says last",
}
"""What the owner can do about a job that has failed, by the kind of its last failure. Other kinds never end a job."""
RETRY = "Look at the reason, and retry the job"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStanding:
    """How a job stands. `step` and `committed_step` are as in its summary, `phase` is what its node is doing, `busy_ms` how long nodes have
    had it, `failure` the kind of its last failure, `since_ms` when it came into its state. `silent_ms` is how long
    nothing was heard from its node, which loses the job after `lease_s`. `lost_micro_usd` is what the interruptions of
    `lost` cost."""

    state: JobState
    because: str
    steps: int
    step: int
    committed_step: int
    phase: str | None
    node_name: str | None
    eta_s: float | None
    submitted_ms: int
    since_ms: int
    ended_ms: int | None
    busy_ms: int
    micro_usd: float
    cost_lacks: tuple[CostPart, ...]
    lost: Lost
    lost_micro_usd: int
    failure: str = ""
    silent_ms: int = 0
    lease_s: float = 0.0
    held_out: HeldOutChange | None = None


def interruptions_of(attempts: Sequence[Attempt], paused: frozenset[str]) -> Lost:
    """Return what interruptions cost a job, given its attempts in order. Those of `paused` ended as the job's owner paused it: how long the
    job stood still then is not lost."""
    return lost([replace(attempt, state="canceled") if attempt.id in paused else attempt for attempt in attempts])


def lost_micro_usd(
    attempts: Sequence[Attempt], paused: frozenset[str], expenses: Mapping[tuple[str, str], int], now_ms: int
) -> int:
    """Return what was paid for time that interruptions lost: steps that were done again, and what the next attempt took to begin.

    `expenses` has the sums of the ledger by attempt and cause. A live attempt has none: its beginning costs what it would if it ended now.
    """
    total = 0
    for before, after in pairwise(attempts):
        if before.state not in ("interrupted", "released") or before.id in paused:
            continue
        total += expenses.get((before.id, "redone steps"), 0)
        if after.state == "live":
            to_ms = now_ms if after.training_ms is None else after.training_ms
            price = after.price_micro_usd_per_hour
            total += time_cost_micro_usd(price_micro_usd_per_hour=price, from_ms=after.started_ms, to_ms=to_ms)
        else:
            total += expenses.get((after.id, "download"), 0)
    return total


def verdict(job: JobStanding, now_ms: int) -> str:
    """Return the sentence. After a failure a second one says what to do."""
    match job.state:
        case "queued":
            return f"{_queued(job, now_ms)}."
        case "running":
            doing = _silent(job) if job.silent_ms else _running(job)
            return f"{doing}{_interruptions(job, ' so far')}."
        case "paused":
            where = f", {_at_step(job.committed_step, job.steps)}" if job.committed_step else ""
            return f"{_said('Paused', f' for {_since(job, now_ms)}{where}', job.because)}."
        case "succeeded":
            early = f" {_at_step(job.step, job.steps)}" if job.step < job.steps else ""
            learned = f"; held-out loss {job.held_out.in_words}" if job.held_out else ""
            return f"Succeeded{early}{_took(job, 'in')}{learned}{_interruptions(job)}."
        case "canceled":
            return f"{_said('Canceled', _reached(job) + _took(job, 'after'), job.because)}."
        case "failed":
            remedy = next((says for kind, says in REMEDIES.items() if kind == job.failure), RETRY)
            return f"{_said('Failed', _reached(job) + _took(job, 'after'), job.because)}. {remedy}."


def _said(state: str, what: str, because: str) -> str:
    """Return what became of a job, and why. Many reasons begin with the word: "canceled by its owner"."""
    reason = _cut(because)
    by = reason.removeprefix(f"{state.lower()} by ")
    return f"{state}{what}: {reason}" if by == reason else f"{state} by {by}{what}"


def _queued(job: JobStanding, now_ms: int) -> str:
    waited = f"Queued for {_since(job, now_ms)}"
    because = _cut(job.because)
    return f"{waited}; it {because}" if because.startswith("waits ") else f"{waited}; {because}"


def _running(job: JobStanding) -> str:
    doing = (job.phase or "running").capitalize()
    where = f" on {job.node_name}" if job.node_name else ""
    step = f", step {_of(job.step, job.steps)}" if job.step else ""
    left = f", about {_roughly(job.eta_s)} left" if job.eta_s is not None else ""
    return f"{doing}{where}{step}{left}"


def _silent(job: JobStanding) -> str:
    """Return since when nothing was heard from the node, to five seconds, and what it did then."""
    silence_s = 5 * (job.silent_ms // 5000)
    at = f", step {_of(job.step, job.steps)}" if job.step else ""
    ends = f"after {duration_words(job.lease_s)} the job goes back to the queue"
    return f"Nothing heard from {job.node_name or 'its node'} for {duration_words(silence_s)}; it was {job.phase or 'running'}{at}; {ends}"


def _took(job: JobStanding, preposition: str) -> str:
    """Return how long a job took from its submission to its end, and what it cost."""
    whole_ms = (job.submitted_ms if job.ended_ms is None else job.ended_ms) - job.submitted_ms
    waited_ms = whole_ms - job.busy_ms
    apart = f" ({duration_words(waited_ms / 1000)} of it without a node)"
    waited = apart if job.busy_ms and waited_ms > max(WAITED_MS, WAITED_SHARE * whole_ms) else ""
    spent = f" for {usd_words(job.micro_usd)}" if job.busy_ms and "node time" not in job.cost_lacks else ""
    return f" {preposition} {duration_words(whole_ms / 1000)}{waited}{spent}"


def _interruptions(job: JobStanding, so_far: str = "") -> str:
    count = job.lost.interruptions
    if not count:
        return ""
    number = SMALL_NUMBERS[count] if count < len(SMALL_NUMBERS) else str(count)
    priced = "node time" not in job.cost_lacks
    costs = f"{duration_words(job.lost.ms / 1000)}{f' and {usd_words(job.lost_micro_usd)}' if priced else ''}"
    return f"; {number} interruption{'s' * (count != 1)} cost {costs}{so_far}"


def _reached(job: JobStanding) -> str:
    return f" {_at_step(job.step, job.steps)}" if job.step else ""


def _at_step(step: int, steps: int) -> str:
    return f"at step {_of(step, steps)}"


def _of(step: int, steps: int) -> str:
    return f"{step} of {steps}" if steps else str(step)


def _since(job: JobStanding, now_ms: int) -> str:
    """Return how long a job has been in its state, to the minute: an answer that changed each second would have to be sent each time."""
    minutes = max(0, now_ms - job.since_ms) // 60_000
    if minutes >= 60:
        return duration_words(60 * minutes)
    return f"{minutes} min" if minutes else "less than a minute"


def _roughly(seconds: float) -> str:
    """Return a duration that is a forecast: to ten seconds, to the minute after two minutes."""
    if seconds < 120:
        return counted(max(10, 10 * round(seconds / 10)), "second")
    if seconds < 7200:
        return f"{round(seconds / 60)} min"
    return duration_words(seconds)


def _cut(because: str) -> str:
    """Return a reason for the middle of a sentence: without its full stop, and not too long."""
    said = because.strip().removesuffix(".")
    return said if len(said) <= REASON_MAX else f"{said[: REASON_MAX - 1].rstrip()}…"
