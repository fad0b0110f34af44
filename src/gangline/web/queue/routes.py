"""The queue's screen, its stream, and what is done to all jobs of a group."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Response

from gangline.api.lanes import USERS
from gangline.api.who import NUMBER_MAX, Member, MemberReach, Now, ThisDeployment
from gangline.core.errors import BadInput, GanglineError, NotFound
from gangline.core.words import counted
from gangline.service.jobs import query, steer
from gangline.service.jobs.placing.groups import QueueGroupState, jobs_of_group
from gangline.web.frame.forms import SentFields
from gangline.web.frame.routes import like, page_router, screen, toast
from gangline.web.frame.scope import Scope, ScopeLater
from gangline.web.frame.visitor import Looking, LookingLater, Visit
from gangline.web.live.following import Following
from gangline.web.queue.followed import QueueScreen, QueueSeen, shown_queue
from gangline.web.queue.helps import help_step

router = page_router()
ACTED_MAX = 5000
ACTED_S = 3.0
"""How long jobs of a group are acted on before the answer: a thread that all users share does it."""
ACTIONS: dict[str, tuple[QueueGroupState, Callable[..., Any], str]] = {
    "pause": ("queued", steer.pause, "paused"),
    "resume": ("paused", steer.resume, "waiting again"),
    "cancel": ("queued", steer.cancel, "canceled"),
}
"""What is done to the jobs of a group: to those in which state, by which use case, and how it is said."""
After = Annotated[int, Query(ge=0, le=NUMBER_MAX)]


@router.get("/queue", **like("GET /v1/queue"))
def queue_screen(deployment: ThisDeployment, now: Now, look: Looking, scope: Scope, after: After = 0) -> Response:
    """Show who waits, why, and what would help."""
    seen = _seen(look, scope, after)
    shown = shown_queue(deployment, seen, now)
    return screen(look, "queue/screen.html", shown=shown, seen=seen, step=help_step)


@router.get("/live/queue", **like("GET /v1/queue"))
async def follow_queue(following: Following, look: LookingLater, scope: ScopeLater, after: After = 0) -> Response:
    """Follow the queue."""
    looking, project = await USERS.run(lambda: (look.get(), scope.get()))
    seen = _seen(looking, project, after)
    return await following.follow(looking, ("queue", seen), lambda: QueueScreen(seen))


@router.post(
    "/queue/actions", **like("POST /v1/jobs/{job}/pause", "POST /v1/jobs/{job}/resume", "POST /v1/jobs/{job}/cancel")
)
def act_on_group(
    deployment: ThisDeployment, now: Now, reach: MemberReach, member: Member, sent: SentFields
) -> Response:
    """Do one thing to all jobs of the group of a job. What one of them refuses is said, and the others are done."""
    job = sent.text("job")
    if sent.text("action") not in ACTIONS:
        raise BadInput("something must be done to the jobs", hint="load the page again")
    state, act, done = ACTIONS[sent.text("action")]
    _check_reach(deployment, job, reach)
    jobs = jobs_of_group(deployment, job, state, now, ACTED_MAX)
    acted, refused = 0, list[GanglineError]()
    for each in jobs:
        acted += 1
        try:
            act(deployment, each, now, by=member.id)
        except GanglineError as error:
            refused.append(error)
        if deployment.store.now_ms() - now > ACTED_S * 1000:
            break
    more = "; press again for the others" if acted < len(jobs) or len(jobs) == ACTED_MAX else ""
    why = f"; {counted(len(refused), 'job')} not: {refused[0]}" if refused else ""
    return toast(f"{counted(acted - len(refused), 'job')} {done}{why}{more}")


def _check_reach(deployment: ThisDeployment, job: str, reach: str | None) -> None:
    """Raise `NotFound` if there is no such job in the project (None: in any)."""
    if reach is not None:
        query.owned(deployment, reach, job)
    elif not deployment.store.load("job", id=job):
        raise NotFound(f"there is no job {job}", hint="load the page again")


def _seen(look: Visit, project: str | None, after: int) -> QueueSeen:
    return QueueSeen(project=project, after=after, member=look.may("member"), operator=look.may("operator"))
