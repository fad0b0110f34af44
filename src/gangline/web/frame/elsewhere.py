"""Take an operator to the project of the job or experiment that a link is to: it is one of all, and a session looks at one project.

Others are told nothing of what their project does not have.
"""

import re

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from gangline.api.sessions.cookie import session_of
from gangline.api.who import deployment_of
from gangline.core.errors import Denied, NotFound
from gangline.ports.store import Row
from gangline.service.access.access import DEFAULT_PROJECT, recognize
from gangline.service.access.sessions import choose_project
from gangline.service.deployment import Deployment
from gangline.service.experiments.loading import experiment_rows
from gangline.web.frame.visitor import screen_address

SCREEN = re.compile(r"/(jobs|experiments)/([^/]+)(?:/.*)?")
OWN_LINKS = ("same-origin", "none")
"""Where a request comes from that the page's own link or the browser's reader made (Fetch Metadata). No other site moves an operator."""


def move_to_project(request: Request) -> Response | NotFound | None:
    """Choose the project that has what this screen is about, for an operator whose session looks at another one, and return the way to it.

    Return an error that names the project where a link of another site asked, and None for everybody else.
    """
    named, session, deployment = SCREEN.fullmatch(request.url.path), session_of(request.headers), deployment_of(request)
    if named is None or not session or request.method != "GET":
        return None
    try:
        identity = recognize(deployment, session, "viewer", deployment.store.now_ms())
    except Denied:
        return None
    if identity.project is not None:
        return None
    found = _found(deployment, *named.groups())
    if found is None or found["project"] == (identity.chosen or DEFAULT_PROJECT):
        return None
    if request.headers.get("sec-fetch-site") not in OWN_LINKS:
        return NotFound(f"{found['id']} is of the project {found['project']}", hint="choose that project, then open it")
    choose_project(deployment, session, identity, found["project"])
    return RedirectResponse(screen_address(request), status_code=303)


def _found(deployment: Deployment, kind: str, name: str) -> Row | None:
    if kind == "experiments":
        return next(iter(experiment_rows(deployment, [name])), None)
    rows = deployment.store.load("job", id=name)
    return rows[0] if rows and rows[0]["removed_ms"] is None else None
