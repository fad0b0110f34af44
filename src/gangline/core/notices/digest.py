"""Write one message about many facts, instead of a flood of messages. Its length is bounded, however many facts there are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangline.core.money.cost import CostPart
from gangline.core.notices.facts import NoticeBudget, NoticeFact, cost_sentence
from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.message import NoticeMessage, NoticePicture
from gangline.core.notices.texts import (
    THRESHOLDS_COMMAND,
    URGENT,
    budget_message,
    listed_names,
    message_about,
    reason_of,
    sentence_of,
    shown_name,
)
from gangline.core.words import listed

FAILURES_EXPLAINED_MAX = 3
THRESHOLDS_EXPLAINED_MAX = 5
REASON_IN_DIGEST_MAX = 200
COUNTS_IN_TITLE_MAX = 3


@dataclass(frozen=True, slots=True)
class _Counted:
    """The words after a count of one, and of several; and before the names of its jobs."""

    one: str
    several: str
    heading: str


_COUNTED: Mapping[NoticeKind, _Counted] = {
    "over_budget": _Counted("job stopped at the budget", "jobs stopped at the budget", "Stopped at the budget"),
    "cost_threshold": _Counted("threshold of costs", "thresholds of costs", "Thresholds of the costs, too"),
    "failed": _Counted("job failed", "jobs failed", "Failed, too"),
    "not_delivered": _Counted("delivery failed", "deliveries failed", "Not delivered"),
    "succeeded": _Counted("job succeeded", "jobs succeeded", "Succeeded"),
    "canceled": _Counted("job was canceled", "jobs were canceled", "Canceled"),
    "paused": _Counted("job was paused", "jobs were paused", "Paused"),
    "attempt_failed": _Counted("attempt failed", "attempts failed", "Tried again"),
    "interrupted": _Counted("interruption", "interruptions", "Interrupted"),
    "slowed": _Counted("job is slowed by its card", "jobs are slowed by their cards", "Slowed by their cards"),
    "rejected": _Counted("damaged checkpoint", "damaged checkpoints", "Damaged checkpoints"),
    "not_done": _Counted("request was not done", "requests were not done", "Requests that were not done"),
    "delivered": _Counted("delivery", "deliveries", "Delivered"),
    "submitted": _Counted("job was queued", "jobs were queued", "Queued"),
    "resumed": _Counted("job was resumed", "jobs were resumed", "Resumed"),
    "fetched": _Counted("job has its photos", "jobs have their photos", "Photos fetched"),
    "claimed": _Counted("attempt began", "attempts began", "Taken by a node"),
    "committed": _Counted("checkpoint", "checkpoints", "Saved"),
    "rendered": _Counted("set of pictures", "sets of pictures", "New pictures"),
    "cleaned_up": _Counted("job had files deleted", "jobs had files deleted", "Files deleted"),
}
"""The most important kind comes first."""
END_KINDS: tuple[NoticeKind, ...] = ("succeeded", "failed", "canceled")
"""These are about jobs that have ended."""


def message_of(
    facts: Sequence[NoticeFact],
    *,
    budget: NoticeBudget | None = None,
    picture: NoticePicture | None = None,
) -> NoticeMessage:
    """Return the message about one fact, or about many as a digest. `facts` are in their order, and there is at least one."""
    kinds = {fact.kind for fact in facts}
    if len(facts) == 1:
        return message_about(facts[0], budget=budget, picture=picture)
    stopped = [fact.job.name for fact in facts if fact.kind == "over_budget"]
    of_budget = budget_message(budget, stopped) if budget is not None and stopped else None
    if of_budget is not None and kinds == {"over_budget"}:
        return of_budget
    lines = [*_names(facts), *_thresholds(facts), *_failures(facts)]
    if of_budget is not None:
        lines += [f"{of_budget.title}.", *of_budget.lines[1:]]
    command = THRESHOLDS_COMMAND if kinds == {"cost_threshold"} else "gangline jobs ls"
    return NoticeMessage(
        title=_title(facts),
        lines=(*lines, *_cost(facts)),
        command=command if of_budget is None else of_budget.command,
        urgent=any(kind in URGENT for kind in kinds),
    )


def _title(facts: Sequence[NoticeFact]) -> str:
    """Return the counts of the most important kinds."""
    counts = Counter(fact.kind for fact in facts)
    found = [
        f"{counts[kind]} {words.one if counts[kind] == 1 else words.several}"
        for kind, words in _COUNTED.items()
        if counts[kind]
    ]
    if len(found) > COUNTS_IN_TITLE_MAX:
        found = [*found[:COUNTS_IN_TITLE_MAX], "more"]
    return listed(found)


def _names(facts: Sequence[NoticeFact]) -> list[str]:
    """Return a line for each kind but those that have lines of their own."""
    lines: list[str] = []
    for kind, words in _COUNTED.items():
        names = [fact.job.name for fact in facts if fact.kind == kind]
        if names and kind not in ("failed", "over_budget", "cost_threshold"):
            lines.append(f"{words.heading}: {listed_names(names)}.")
    return lines


def _thresholds(facts: Sequence[NoticeFact]) -> list[str]:
    """Return a sentence about each of the newest crossings, and whose costs the others were."""
    crossed = [fact for fact in facts if fact.kind == "cost_threshold"]
    older, shown = crossed[:-THRESHOLDS_EXPLAINED_MAX], crossed[-THRESHOLDS_EXPLAINED_MAX:]
    lines = [sentence_of(fact.because, REASON_IN_DIGEST_MAX) for fact in shown if fact.because]
    if older:
        lines.append(f"{_COUNTED['cost_threshold'].heading}: {listed_names([fact.job.name for fact in older])}.")
    return lines


def _failures(facts: Sequence[NoticeFact]) -> list[str]:
    failed = [fact for fact in facts if fact.kind == "failed"]
    shown = failed[:FAILURES_EXPLAINED_MAX]
    lines = [f"{shown_name(fact.job.name)} failed: {reason_of(fact.because, REASON_IN_DIGEST_MAX)}" for fact in shown]
    more = [fact.job.name for fact in failed[FAILURES_EXPLAINED_MAX:]]
    return [*lines, f"{_COUNTED['failed'].heading}: {listed_names(more)}."] if more else lines


def _cost(facts: Sequence[NoticeFact]) -> list[str]:
    """Return what the jobs that ended cost in all."""
    ended = {fact.job.id: fact.job for fact in facts if fact.kind in END_KINDS}
    if not ended:
        return []
    lacks: tuple[CostPart, ...] = tuple(dict.fromkeys(part for job in ended.values() for part in job.cost_lacks))
    what = shown_name(next(iter(ended.values())).name) if len(ended) == 1 else f"These {len(ended)} jobs together"
    return [cost_sentence(sum(job.cost_usd for job in ended.values()), lacks, what)]
