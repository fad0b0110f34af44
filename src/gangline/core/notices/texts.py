"""Write a message for people about one fact: what happened, what it took, and what its reader may do next."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from gangline.core.display import printable
from gangline.core.jobs.failure import FailureKind
from gangline.core.notices.facts import NoticeBudget, NoticeFact, NoticeJob, cost_sentence
from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.message import NoticeMessage, NoticePicture
from gangline.core.words import counted, duration_words, listed, usd_words

NAME_SHOWN_MAX = 80
REASON_SHOWN_MAX = 600
"""Characters of a reason in a message; the job itself shows all of it."""
URGENT: tuple[NoticeKind, ...] = ("failed", "over_budget", "not_delivered")
"""Nothing more happens with these jobs until somebody acts."""

WHAT_TO_DO: Mapping[FailureKind, str] = {
    "bad data": "Correct the input that the reason names, or leave it out, and submit the job again.",
    "diverged": "Submit the job again with a lower learning rate.",
    "no gradient": "Check the learning rate, masks and precision: nothing that the job trains had a gradient.",
    "out of memory": "Ask for GPUs with more memory, or lower the resolution or the batch size.",
    "disk full": "Ask for nodes with larger disks, or train on fewer or smaller inputs.",
    "gpu error": "Several GPUs failed with it: its log shows what each one reported.",
    "crashed": "Its log ends with what the trainer printed last.",
    "no result": "Its log shows what the trainer did instead of writing its results.",
    "download failed": "Check that its inputs can still be downloaded, and retry it.",
    "upload failed": "Check that nodes can reach the object store, and retry it.",
    "no progress": "Its log ends with the last thing that the trainer did.",
    "kills its hosts": "Check how much memory it takes: a machine that runs out of memory falls silent.",
}
"""What the owner of a job may do about the failure that ended it."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How a kind of notice reads. `{name}` stands for the job; without `lines`, the reason is the only line."""

    title: str
    lines: Callable[[NoticeFact], tuple[str, ...]] | None = None
    command: str = ""


def message_about(
    fact: NoticeFact, *, budget: NoticeBudget | None = None, picture: NoticePicture | None = None
) -> NoticeMessage:
    """Return the message about one fact. `budget` is needed by a notice of a budget alone; `picture` shows what the job has learned."""
    if fact.kind == "over_budget" and budget is not None:
        return budget_message(budget, [fact.job.name])
    form = _FORMS[fact.kind]
    lines = form.lines(fact) if form.lines else _reason(fact)
    return NoticeMessage(
        title=form.title.format(name=shown_name(fact.job.name)),
        lines=tuple(line for line in lines if line),
        command=form.command.format(job=fact.job.id, folder=_folder_of(fact.job)),
        picture=picture,
        urgent=fact.kind in URGENT,
    )


def check_message(project: str, endpoint: str) -> NoticeMessage:
    """Return the message with which the owner of an endpoint tries whether messages arrive."""
    name = shown_name(endpoint)
    return NoticeMessage(
        title="Gangline can reach you",
        lines=(f"The endpoint {name} of the project {project} receives messages like this one.",),
        command="gangline notify ls",
    )


def budget_message(budget: NoticeBudget, stopped: list[str]) -> NoticeMessage:
    """Return the message that a project's budget is used up, and which jobs were stopped for it."""
    names = listed_names(stopped)
    were, they = ("were", "they") if len(set(stopped)) > 1 else ("was", "it")
    lines = [f"{names} {were} stopped; what {they} saved is kept."]
    if budget.budget_usd is None:
        lines.append("The project has no limit any more, so its jobs resume.")
        return NoticeMessage(title=f"The budget of {budget.project} was used up", lines=tuple(lines))
    reserved = f", and running jobs have reserved {usd_words(budget.reserved_usd * 1e6)}" if budget.reserved_usd else ""
    lines.append(f"{usd_words(budget.spent_usd * 1e6)} of {usd_words(budget.budget_usd * 1e6)} is spent{reserved}.")
    if budget.waiting:
        wait, resume = ("waits", "resumes") if budget.waiting == 1 else ("wait", "resume")
        lines.append(f"{counted(budget.waiting, 'job')} {wait} now, and {resume} once an operator raises the budget.")
    return NoticeMessage(
        title=f"The budget of {budget.project} is used up",
        lines=tuple(lines),
        command=f"gangline projects set {budget.project} --usd AMOUNT",
        urgent=True,
    )


def shown_name(name: str, most: int = NAME_SHOWN_MAX) -> str:
    """Return a name of bounded length that controls nothing: rows may be older than the check of names."""
    return shortened(printable(name).strip() or "a job without a name", most)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def listed_names(names: list[str], most: int = 5) -> str:
    """Return the first names, each once, and how many more there are.

    >>> listed_names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    different = list(dict.fromkeys(names))
    shown = [shown_name(name, NAME_SHOWN_MAX // 2) for name in different[:most]]
    more = len(different) - len(shown)
    return listed([*shown, f"{more} more"] if more else shown)


def reason_of(because: str, most: int = REASON_SHOWN_MAX) -> str:
    """Return a reason as a sentence of bounded length. Its first letter stays as it is: it may begin with a name."""
    reason = shortened(printable(because).strip(), most)
    return reason if not reason or reason[-1] in ".!?…" else f"{reason}."


def _reason(fact: NoticeFact) -> tuple[str, ...]:
    reason = reason_of(fact.because)
    return (f"Reason: {reason}",) if reason else ()


def sentence_of(because: str, most: int = REASON_SHOWN_MAX) -> str:
    """Return what an event says that is no reason. It begins with words of Gangline's own, so its first letter may become a capital."""
    said = reason_of(because, most)
    return said[:1].upper() + said[1:]


def _said(fact: NoticeFact) -> tuple[str, ...]:
    return (sentence_of(fact.because),)


def _about_success(fact: NoticeFact) -> tuple[str, ...]:
    job = fact.job
    early = f"It ended at step {job.step} of {job.steps}: {reason_of(fact.because)}" if job.step < job.steps else ""
    return (early, _what_it_took(job))


def _about_failure(fact: NoticeFact) -> tuple[str, ...]:
    job = fact.job
    advice = WHAT_TO_DO.get(cast(FailureKind, job.failure), "")
    again = f"`gangline jobs retry {job.id}` runs it again."
    return (*_reason(fact), advice, _what_it_took(job), again)


def _what_it_took(job: NoticeJob) -> str:
    """Return how long a job took, on how many machines, and what it cost."""
    if job.took_s is None:
        return "No machine ran it."
    machines = "one machine" if job.machines <= 1 else counted(job.machines, "machine")
    broken = f" ({counted(job.interruptions, 'interruption')})" if job.interruptions else ""
    took, cost = (
        f"It took {duration_words(job.took_s)} on {machines}{broken}",
        cost_sentence(job.cost_usd, job.cost_lacks),
    )
    return f"{took} and {cost.removeprefix('It ')}" if cost.startswith("It cost") else f"{took}. {cost}"


def _folder_of(job: NoticeJob) -> str:
    """Return a folder's name that is safe to type, whatever the job is called."""
    words = re.findall(r"[a-z0-9]+", job.name.lower())
    return "-".join(words)[:40].strip("-") or "results"


THRESHOLDS_COMMAND = "gangline costs thresholds ls"
_FETCH = "gangline artifacts {job} --to {folder}"
_SHOW = "gangline jobs show {job}"
_FORMS: Mapping[NoticeKind, _Form] = {
    "submitted": _Form("{name} is queued", lambda _: ("It waits for a node.",), _SHOW),
    "fetched": _Form("The photos of {name} are fetched", _said, _SHOW),
    "claimed": _Form("{name} has a node", None, _SHOW),
    "committed": _Form(
        "{name} saved a checkpoint", lambda fact: (f"It is safe up to {reason_of(fact.because)}",), _SHOW
    ),
    "rejected": _Form("A checkpoint of {name} was damaged", None, _SHOW),
    "rendered": _Form("{name} has new pictures", lambda _: (), "gangline samples {job} --to {folder}"),
    "succeeded": _Form("{name} is ready", _about_success, _FETCH),
    "failed": _Form("{name} failed", _about_failure, "gangline logs {job}"),
    "attempt_failed": _Form("{name} failed, and is tried again", None, "gangline logs {job}"),
    "interrupted": _Form("{name} was interrupted", lambda fact: (*_reason(fact), "It resumes on another node."), _SHOW),
    "canceled": _Form("{name} was canceled", None, _SHOW),
    "paused": _Form("{name} is paused", None, "gangline jobs resume {job}"),
    "resumed": _Form("{name} is queued again", lambda _: ("It waits for a node.",), _SHOW),
    "slowed": _Form("{name} is slower than its card could be", None, _SHOW),
    "over_budget": _Form("{name} was stopped: the budget is used up", None, "gangline budget"),
    "delivered": _Form("The results of {name} are delivered", _said, _SHOW),
    "not_delivered": _Form(
        "The results of {name} were not delivered",
        lambda fact: (*_reason(fact), "They are kept on the server, and can be downloaded from there."),
        _FETCH,
    ),
    "not_done": _Form("{name} ended before something was done", _said, _SHOW),
    "cleaned_up": _Form("Files of {name} were deleted", _said, _SHOW),
    "cost_threshold": _Form("A threshold of the costs of {name}", _said, THRESHOLDS_COMMAND),
}
