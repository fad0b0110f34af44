"""Load what a message for people needs: jobs, their cost, the budget and a picture."""

from collections.abc import Sequence
from typing import Protocol

from gangline.core.errors import NotFound, Unreachable
from gangline.core.job import ENDED
from gangline.core.notices.digest import END_KINDS, message_of
from gangline.core.notices.facts import NoticeBudget, NoticeFact, NoticeJob
from gangline.core.notices.kinds import NoticeKind
from gangline.core.notices.message import NoticeMessage, NoticePicture
from gangline.core.notices.pacing import pictures_until_ms
from gangline.core.notices.pictures import PICTURE_BYTES_MAX, picture_shown, picture_type
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.summaries import summaries
from gangline.service.jobs.query import summary_of
from gangline.service.money.bill import load_purse

PICTURED: tuple[NoticeKind, ...] = ("succeeded", "rendered")
"""These show what the job has learned."""
PART = 1_000
"""The costs of this many jobs are loaded together."""


class MessageFact(Protocol):
    """A fact for one endpoint; `name` is that of its job."""

    @property
    def notice(self) -> NoticeKind: ...
    @property
    def at_ms(self) -> int: ...
    @property
    def job(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def because(self) -> str: ...


def load_message(deployment: Deployment, project: str, facts: Sequence[MessageFact], now_ms: int) -> NoticeMessage:
    """Return the message about these facts, which are in their order and at least one. One about a job that has just been deleted has only
    its name."""
    jobs = {_subject(fact): NoticeJob(id=_subject(fact), name=fact.name) for fact in facts}
    if len(facts) == 1 and facts[0].job:
        jobs[facts[0].job] = _job(deployment, project, facts[0], now_ms)
    else:
        jobs |= _with_costs(deployment, project, [fact for fact in facts if fact.notice in END_KINDS], now_ms)
    told = [NoticeFact(kind=fact.notice, because=fact.because, job=jobs[_subject(fact)]) for fact in facts]
    over_budget = any(fact.notice == "over_budget" for fact in facts)
    pictured = len(facts) == 1 and facts[0].notice in PICTURED
    return message_of(
        told,
        budget=_budget(deployment, project) if over_budget else None,
        picture=_picture(deployment, facts[0].job) if pictured else None,
    )


def _subject(fact: MessageFact) -> str:
    """Return what a fact is about: the id of its job, or whose costs crossed a threshold."""
    return fact.job or fact.name


def send_after_ms(deployment: Deployment, facts: Sequence[MessageFact], now_ms: int) -> int:
    """Return when a message about these facts may go: a job that has just succeeded waits a while for the pictures of its result, unless it
    is one of many."""
    if len(facts) != 1 or facts[0].notice != "succeeded":
        return now_ms
    rendering = bool(deployment.store.load("open_samples", parent=facts[0].job))
    return pictures_until_ms(facts[0].at_ms, now_ms, rendering=rendering)


def _job(deployment: Deployment, project: str, fact: MessageFact, now_ms: int) -> NoticeJob:
    """Return a job, with what it took if it has ended."""
    try:
        found = summary_of(deployment, project, fact.job, now_ms)
    except NotFound:
        return NoticeJob(id=fact.job, name=fact.name)
    if found.state not in ENDED:
        return NoticeJob(id=fact.job, name=found.name)
    attempts = deployment.store.load("attempts", job=fact.job)
    took_ms = sum((row["ended_ms"] or now_ms) - row["started_ms"] for row in attempts)
    return NoticeJob(
        id=fact.job,
        name=found.name,
        took_s=took_ms / 1000 if attempts else None,
        machines=len({row["machine"] for row in attempts}),
        interruptions=found.interruptions,
        step=found.step,
        steps=found.steps,
        cost_usd=found.cost_usd,
        cost_lacks=found.cost_lacks,
        failure=next((row["kind"] for row in reversed(attempts) if row["kind"]), ""),
    )


def _with_costs(
    deployment: Deployment, project: str, ended: Sequence[MessageFact], now_ms: int
) -> dict[str, NoticeJob]:
    """Return these jobs as a digest needs them, by their ids."""
    names = {fact.job: fact.name for fact in ended}
    ids = list(names)
    return {
        found.id: NoticeJob(id=found.id, name=names[found.id], cost_usd=found.cost_usd, cost_lacks=found.cost_lacks)
        for first in range(0, len(ids), PART)
        for found in summaries(deployment, project, ids[first : first + PART], now_ms)
    }


def _budget(deployment: Deployment, project: str) -> NoticeBudget:
    purse = load_purse(deployment, project)
    return NoticeBudget(
        project=project,
        budget_usd=None if purse.budget is None else purse.budget / 1e6,
        spent_usd=purse.spent / 1e6,
        reserved_usd=purse.reserved / 1e6,
        waiting=deployment.store.load("count_queued", project=project)[0]["jobs"],
    )


def _picture(deployment: Deployment, job: str) -> NoticePicture | None:
    """Return a picture of what the job has learned. None without one, or if it cannot be read now: no message waits for it."""
    files = {row["path"]: row for row in deployment.store.load("artifacts", job=job)}
    path = picture_shown({path: row["bytes"] for path, row in files.items()})
    if path is None:
        return None
    try:
        content = deployment.objects.read(files[path]["key"])
    except (NotFound, Unreachable):
        return None
    kind = picture_type(content)
    if kind is None or len(content) > PICTURE_BYTES_MAX:
        return None
    return NoticePicture(name=path.rpartition("/")[2], content=content, media_type=kind)
