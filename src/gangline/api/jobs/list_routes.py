"""The route that lists jobs: a page, or all of them as JSON lines."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import to_json

from gangline.api.answers.accept import quality
from gangline.api.answers.paging import next_link
from gangline.api.jobs.filters import Filtered
from gangline.api.jobs.lines import JSON_LINES
from gangline.api.lanes import USERS, UserRoute, json_response
from gangline.api.who import Now, ThisDeployment, Viewer, ViewerOf
from gangline.core.jobs.lists.cursor import CURSOR_MAX
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.views import JobPage
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import PAGE_MAX, page_of_jobs

router = APIRouter(prefix="/v1", tags=["users"], route_class=UserRoute)

PAGE = 50
PAGE_OF_LINES = 200
LISTED: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {JSON_LINES: {"schema": {"type": "string"}}},
        "description": "A page; as JSON lines a JobSummary for each job.",
        "headers": {"Link": {"description": 'The next page, `rel="next"` (RFC 8288).', "schema": {"type": "string"}}},
    }
}


@router.get("/jobs", responses=LISTED)
def list_jobs(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    viewer: Viewer,
    asked: Filtered,
    limit: Annotated[int | None, Query(ge=1, le=PAGE_MAX)] = None,
    cursor: Annotated[str | None, Query(max_length=CURSOR_MAX)] = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> JobPage:
    """List the project's jobs, newest first: those that meet every filter, and are in one of the states if several are given.

    `named` is a name, an id, or what an id begins or ends with. `search` is a text that the name, the id, a prompt, the base or a label
    of a job contains, in capitals or not; a page of a search compares up to 200 jobs, so it may have none and a next one. `since` and
    `until` are about the submission. A page has `limit` jobs, by
    default 50; one of several filters may have fewer, or none, before the last. `next` is the `cursor` of the next page, and the header
    `Link` its address. With `Accept: application/jsonl` the answer has all jobs, or the first `limit`, each on a line of its own.
    """
    filters = asked.read(viewer)
    if _wants_lines(accept):
        first = page_of_jobs(deployment, project, filters, now, limit=limit or PAGE_OF_LINES, cursor=cursor)
        return _as_lines(_List(deployment, project, filters), first, limit)  # type: ignore[return-value] # in a lane, a response is the answer as it is
    return _as_page(request, page_of_jobs(deployment, project, filters, now, limit=limit or PAGE, cursor=cursor))  # type: ignore[return-value]


def _wants_lines(accept: str | None) -> bool:
    """Return whether the client would rather have JSON lines than JSON, which it gets if it likes both alike."""
    return accept is not None and quality(accept, JSON_LINES) > quality(accept, "application/json")


def _as_page(request: Request, page: JobPage) -> Response:
    answer = json_response(page)
    answer.headers["Vary"] = "Accept"
    if page.next:
        asked = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        answer.headers["Link"] = next_link([*asked, ("cursor", page.next)])
    return answer


@dataclass(frozen=True, slots=True)
class _List:
    deployment: Deployment
    project: str
    filters: JobFilters

    def page(self, cursor: str) -> JobPage:
        now_ms = self.deployment.store.now_ms()
        return page_of_jobs(self.deployment, self.project, self.filters, now_ms, limit=PAGE_OF_LINES, cursor=cursor)


def _as_lines(asked: _List, first: JobPage, limit: int | None) -> Response:
    return StreamingResponse(_lines(asked, first, limit), media_type=JSON_LINES, headers={"Vary": "Accept"})


async def _lines(asked: _List, page: JobPage, limit: int | None) -> AsyncIterator[bytes]:
    """Yield the jobs of this page and all after it, at most `limit`; a page at a time is in memory."""
    left = limit
    while True:
        listed = page.jobs if left is None else page.jobs[:left]
        if listed:
            yield b"".join(to_json(job, inf_nan_mode="null") + b"\n" for job in listed)
        left = None if left is None else left - len(listed)
        following = page.next
        if following is None or left == 0:
            return
        page = await USERS.run(lambda cursor=following: asked.page(cursor))
