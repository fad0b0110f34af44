"""What a message for people is made of: the facts of a project, with what is known of their jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.money.cost import CostPart
from gangline.core.notices.kinds import NoticeKind
from gangline.core.words import listed, usd_words


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeJob:
    """A job as its messages name it. `took_s` is the time of all its attempts, None without one; `machines` are those that had it. `step`
    is the last one that is done, of `steps` (0: unknown). `cost_usd` is the known part of its cost, without the parts in `cost_lacks`;
    `failure` is the kind of its last failure, or empty."""

    id: str
    name: str
    took_s: float | None = None
    machines: int = 0
    interruptions: int = 0
    step: int = 0
    steps: int = 0
    cost_usd: float = 0.0
    cost_lacks: tuple[CostPart, ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeFact:
    """A fact of one job. `because` is the reason that its event has."""

    kind: NoticeKind
    because: str
    job: NoticeJob


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeBudget:
    """The money of a project now, in US dollars; `budget_usd` is None if there is no limit. `waiting` counts its queued jobs."""

    project: str
    budget_usd: float | None
    spent_usd: float
    reserved_usd: float
    waiting: int


def cost_sentence(amount: float, lacks: Sequence[CostPart], what: str = "It") -> str:
    """Return a sentence on a cost. A part whose price is not known is named, and never counted as nothing.

    >>> cost_sentence(0.42, ())
    'It cost $0.42.'
    >>> cost_sentence(0.42, ("storage", "egress"))
    'It cost $0.42 (no price is set for storage and egress).'
    >>> cost_sentence(0, ("node time",))
    'What it cost is unknown: no price is set for node time.'
    """
    if not lacks:
        return f"{what} cost {usd_words(amount * 1e6)}."
    if "node time" not in lacks or amount:
        return f"{what} cost {usd_words(amount * 1e6)} (no price is set for {listed(lacks)})."
    subject = "it" if what == "It" else what.replace("These", "these", 1)
    return f"What {subject} cost is unknown: no price is set for {listed(lacks)}."
