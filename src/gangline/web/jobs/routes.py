"""The list of jobs: its page, more of it, its stream, and what is done to several at once."""

import re
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from gangline.api.jobs.filters import FilterTexts
from gangline.api.lanes import USERS, json_response
from gangline.api.who import NUMBER_MAX, Member, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.errors import BadInput, GanglineError, NotFound
from gangline.core.jobs.lists.cursor import CURSOR_MAX, read_cursor, write_cursor
from gangline.core.jobs.lists.filters import JobFilters, ListPosition
from gangline.core.specs.kinds import SUBMITTED
from gangline.core.views import JobPage
from gangline.core.words import counted
from gangline.service.deployment import Deployment
from gangline.service.jobs import query, steer, wishes
from gangline.service.jobs.lists.curves import curves
from gangline.service.jobs.lists.page import COUNTED_MAX, counts_by_state, page_of_jobs
from gangline.service.pictures.last import last_pictures
from gangline.service.retention import removal
from gangline.web.frame.forms import SentFields
from gangline.web.frame.labels import line_of_texts
from gangline.web.frame.rendering import digest_of_html
from gangline.web.frame.routes import call_job, like, page_router, part, screen, to_be_continued, toast
from gangline.web.frame.visitor import Looking, LookingLater
from gangline.web.jobs.filters import STATES, AskedFilters, as_pairs
from gangline.web.jobs.listed import FIRST, JobsScreen, counted_jobs, whole_list
from gangline.web.live.following import Following

router = page_router()
MORE = 100
ACTED_MAX = 500
CURVES_MAX = 60
PLACE = re.compile(r"(\d{1,15})\.([0-9A-Za-z-]{1,200})", re.ASCII)
"""A place in the list: when a job was submitted, and its id."""
STEERS: dict[str, Callable[..., Any]] = {"pause": steer.pause, "resume": steer.resume, "cancel": steer.cancel}
"""What is done to jobs from the list and says who did it, each by the use case that does it to one."""
WISHES: dict[str, Callable[..., Any]] = {
    "finish": wishes.ask_to_finish,
    "save": wishes.ask_to_save,
    "sample": wishes.ask_for_samples,
}
"""What is asked of jobs from the list, likewise."""
DONE = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "canceled",
    "finish": "asked to finish",
    "save": "asked to save",
    "sample": "asked for pictures",
    "delete": "deleted",
}
DELETE_S = 1.5
"""How long jobs are deleted before the answer, as a thread that all users share does it: the page then asks for the others."""


@router.get("/", **like("GET /v1/jobs"))
def show_jobs(deployment: ThisDeployment, look: Looking, asked: AskedFilters) -> Response:
    """Show the newest jobs that the filters let through."""
    filters = asked.read(look.identity)
    page = page_of_jobs(deployment, look.project, filters, look.now_ms, limit=FIRST)
    counts, more, may = counts_by_state(deployment, look.project), _next(asked, filters, page), look.may("member")
    first = whole_list(page.jobs, more, may=may) + counted_jobs(counts, asked.state) if asked.search else ""
    return screen(
        look,
        "jobs/list.html",
        page=page,
        asked=asked,
        labels=line_of_texts(asked.label),
        filters=as_pairs(asked),
        may=may,
        next=more,
        # A search loads what is further down at once: the stream does not begin it again.
        shown=digest_of_html(first) if first else "",
        states=STATES,
        counts=counts,
        most=COUNTED_MAX,
        kinds=[each.name for each in SUBMITTED],
    )


@router.get("/jobs", **like("GET /v1/jobs"))
def lead_to_jobs(request: Request, look: Looking) -> Response:
    """Lead to the list: an address of a job that was cut short is of all of them."""
    return RedirectResponse(f"/?{request.url.query}" if request.url.query else "/", status_code=303)


@router.get("/jobs/more", **like("GET /v1/jobs"))
def show_more_jobs(
    deployment: ThisDeployment,
    look: Looking,
    asked: AskedFilters,
    below: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
) -> Response:
    """Show the jobs below the last that is shown: its time and id, as the page's script knows them, or nothing if none is."""
    filters = asked.read(look.identity)
    cursor = write_cursor(_position(below), filters) if below else None
    page = page_of_jobs(deployment, look.project, filters, look.now_ms, limit=MORE, cursor=cursor)
    return part("jobs/rows.html", page=page, may=look.may("member"), next=_next(asked, filters, page))


@router.get("/jobs/curves", **like("GET /v1/jobs"))
def show_curves(
    deployment: ThisDeployment,
    project: ViewerOf,
    job: Annotated[tuple[str, ...], Query(max_length=CURVES_MAX)] = (),
) -> Response:
    """Return what the list shows of these jobs beside their figures, of those that have some: `losses` at equal distances for a small
    curve, and the address of the last `picture`, "" if there is none."""
    losses, pictures = curves(deployment, project, job), last_pictures(deployment, project, job)
    return json_response(
        {
            each: {
                "losses": losses.get(each, ()),
                "picture": f"/v1/jobs/{each}/pictures/{pictures[each]}/thumbnail" if each in pictures else "",
            }
            for each in {**losses, **pictures}
        }
    )


@router.post("/jobs/actions", **like("POST /v1/jobs/{job}/pause", "DELETE /v1/jobs/{job}"))
def act_on_jobs(deployment: ThisDeployment, now: Now, project: MemberOf, member: Member, sent: SentFields) -> Response:
    """Do one thing to each of the selected jobs. What one of them refuses is said, and the others are done.

    Of many to delete, an answer has deleted some: it says how many, and the page sends the form again with that number, `before`. Those
    that are gone by then may still be in it.
    """
    action, jobs = sent.text("action"), tuple(dict.fromkeys(sent.texts("job")))
    before = round(sent.number("before") or 0)
    if action not in DONE or len(jobs) > ACTED_MAX or not 0 <= before <= NUMBER_MAX:
        raise BadInput(f"at most {ACTED_MAX} jobs can be selected, and something must be done to them")
    refused, done = list[GanglineError](), before
    for number, job in enumerate(jobs, 1):
        name = ""
        try:
            name = query.owned(deployment, project, job)["name"]
            _act(deployment, action, job, now, member.id)
            done += 1
        except GanglineError as error:
            call_job(error, job, name)
            if not (before and isinstance(error, NotFound)):
                refused.append(error)
        left = len(jobs) - number
        if action == "delete" and left and done > before and deployment.store.now_ms() - now > DELETE_S * 1000:
            text = f"{done:,} of {done + left:,} jobs deleted. Keep this page open."
            return to_be_continued(text, "/jobs/actions", {"action": action, "before": str(done)}, form="bulk")
    if refused and not done:
        raise refused[0]
    why = f"; {counted(len(refused), 'job')} not: {refused[0].message}" if refused else ""
    return toast(f"{counted(done, 'job')} {DONE[action]}{why}")


def _act(deployment: Deployment, action: str, job: str, now_ms: int, member: str) -> None:
    if action == "delete":
        removal.remove(deployment, job, now_ms)
    elif action in STEERS:
        STEERS[action](deployment, job, now_ms, by=member)
    else:
        WISHES[action](deployment, job, now_ms)


@router.get("/live/jobs", **like("GET /v1/jobs"))
async def follow_jobs(
    following: Following, deployment: ThisDeployment, look: LookingLater, asked: AskedFilters
) -> Response:
    """Follow the list. The stream ends with the key of its session."""
    seen = await USERS.run(look.get)
    filters = await USERS.run(lambda: asked.read(seen.identity))
    may = seen.may("member")
    return await following.follow(
        seen,
        ("jobs", seen.project, may, filters, asked),
        lambda: JobsScreen(seen.project, filters, may=may, more=lambda below: _more(asked, below)),
    )


def _next(asked: FilterTexts, filters: JobFilters, page: JobPage) -> str:
    """Return the address of what stands below a page; empty if nothing does."""
    return _more(asked, read_cursor(page.next, filters) if page.next else None)


def _more(asked: FilterTexts, below: ListPosition | None) -> str:
    """Return the address of the jobs below this position; empty without one.

    By the time it is asked for, the last row of the page may be another one: the page's script then names that. Not where a text is
    searched for: what was compared ends below what was found.
    """
    if below is None:
        return ""
    pairs = [*as_pairs(asked), ("below", f"{below.at_ms}.{below.id}")]
    return f"/jobs/more?{urlencode(pairs)}"


def _position(text: str) -> ListPosition:
    found = PLACE.fullmatch(text)
    if found is None:
        raise BadInput("this is not a place in a list of jobs", hint="load the page again")
    return ListPosition(int(found[1]), found[2])
