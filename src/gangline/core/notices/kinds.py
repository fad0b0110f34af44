"""List the kinds of notices that an endpoint may choose, and say which events each one reports.

The kind of an event alone does not say what it means to its owner: a `failed` event whose job is `queued` after it is tried again.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gangline.core.events import EventKind

NoticeKind = Literal[
    "submitted",
    "fetched",
    "claimed",
    "committed",
    "rejected",
    "rendered",
    "succeeded",
    "failed",
    "attempt_failed",
    "interrupted",
    "canceled",
    "paused",
    "resumed",
    "slowed",
    "over_budget",
    "delivered",
    "not_delivered",
    "not_done",
    "cleaned_up",
    "cost_threshold",
]
ProjectEventKind = Literal["cost threshold"]
"""An event of no job."""
EventPair = tuple[EventKind | ProjectEventKind, str]
"""A kind of event, and the state of its job after it; an empty state stands for every state."""


@dataclass(frozen=True, slots=True)
class NoticeMeaning:
    """`says` is the kind's sentence for people; it reports the `events`."""

    says: str
    events: tuple[EventPair, ...]


NOTICES: dict[NoticeKind, NoticeMeaning] = {
    "submitted": NoticeMeaning("A job was submitted.", (("submitted", ""),)),
    "fetched": NoticeMeaning("The photos that a job named by their address were fetched.", (("fetched", ""),)),
    "claimed": NoticeMeaning("A node took a job: an attempt begins.", (("claimed", ""),)),
    "committed": NoticeMeaning("A checkpoint of a job is stored.", (("committed", ""),)),
    "rejected": NoticeMeaning("A checkpoint of a job was found damaged.", (("rejected", ""),)),
    "rendered": NoticeMeaning("Sample images of a job are ready.", (("rendered", ""),)),
    "succeeded": NoticeMeaning("A job succeeded: its results are ready.", (("succeeded", ""),)),
    "failed": NoticeMeaning(
        "A job failed and is not tried again.",
        (("failed", "failed"), ("interrupted", "failed"), ("released", "failed")),
    ),
    "attempt_failed": NoticeMeaning("An attempt failed; its job is tried again.", (("failed", "queued"),)),
    "interrupted": NoticeMeaning(
        "A node fell silent or handed its job back; the job waits for another one.",
        (("interrupted", "queued"), ("released", "queued")),
    ),
    "canceled": NoticeMeaning("A job was canceled.", (("canceled", ""),)),
    "paused": NoticeMeaning(
        "A job was paused: it waits until it is resumed.",
        (("paused", ""), ("failed", "paused"), ("interrupted", "paused"), ("released", "paused")),
    ),
    "resumed": NoticeMeaning("A paused job was resumed.", (("queued", ""),)),
    "slowed": NoticeMeaning(
        "A job trains slower than its card could: it is throttled, or the job's memory spilled.", (("slowed", ""),)
    ),
    "over_budget": NoticeMeaning(
        "A running job was stopped because the budget of its project is used up.", (("over budget", ""),)
    ),
    "delivered": NoticeMeaning("The results of a job were copied to where it asked for them.", (("delivered", ""),)),
    "not_delivered": NoticeMeaning(
        "The results of a job could not be copied to where it asked for them.", (("not delivered", ""),)
    ),
    "not_done": NoticeMeaning("A job ended before something that its owner had asked for.", (("not done", ""),)),
    "cleaned_up": NoticeMeaning(
        "Checkpoints, log or previews of a job that ended long ago were deleted.", (("cleaned up", ""),)
    ),
    "cost_threshold": NoticeMeaning(
        "Costs crossed a threshold of the operator, or are expected to.", (("cost threshold", ""),)
    ),
}
FOR_PEOPLE: tuple[NoticeKind, ...] = ("succeeded", "failed", "over_budget", "not_delivered", "cost_threshold")
"""What an endpoint for people reports by default: what ended, and what needs them."""
FOR_WEBHOOKS: tuple[NoticeKind, ...] = (
    "submitted",
    "claimed",
    "succeeded",
    "failed",
    "attempt_failed",
    "interrupted",
    "canceled",
    "paused",
    "resumed",
    "slowed",
    "over_budget",
    "delivered",
    "not_delivered",
    "cost_threshold",
)
"""What a webhook reports by default: every change of a job's state and thresholds, but not the many checkpoints and samples."""

_KINDS: dict[EventPair, NoticeKind] = {pair: kind for kind, notice in NOTICES.items() for pair in notice.events}


def notice_kind(kind: EventKind | ProjectEventKind, state: str) -> NoticeKind | None:
    """Return the kind of notice that reports an event after which its job is in this state; None if none does. The state of events that an
    older version recorded is empty."""
    return _KINDS.get((kind, "")) or _KINDS.get((kind, state))


def events_of(kinds: Iterable[NoticeKind]) -> list[EventPair]:
    """Return the events that these kinds report, each once: the inverse of `notice_kind`, for a join in SQL."""
    return [pair for kind in dict.fromkeys(kinds) for pair in NOTICES[kind].events]


def webhook_type(kind: NoticeKind) -> str:
    """Return the `type` of a webhook's payload, in the form of the Standard Webhooks specification."""
    return "cost.threshold" if kind == "cost_threshold" else f"job.{kind}"
