"""Who looks at the page: the role and the project of the session, and what is shown around every screen."""

from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import quote

from fastapi import Depends, Request
from markupsafe import Markup

from gangline.api.lanes import Later
from gangline.api.sessions.cookie import csrf_token, session_of
from gangline.api.who import ViewerLater, ViewerReachLater, deployment_of
from gangline.core.access import KeyRole, permits
from gangline.service.access.access import DEFAULT_PROJECT, Identity
from gangline.service.access.projects import projects
from gangline.service.deployment import Deployment

THEMES = ("light", "dark")
THEME_COOKIE = "gangline_theme"
SHOWN_PROJECTS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One look at the page: of a session with this `identity`, at this `project`, at `now_ms`. `screen` is the address that is open.

    The identity has `chosen` what the page shows that asks: another page of an operator may have chosen another project since.
    `projects` are those that an operator may choose. `replay` names the simulated scenario that is shown; nothing can be changed in it.
    """

    identity: Identity
    project: str
    projects: tuple[str, ...]
    csrf: str
    theme: str
    now_ms: int
    screen: str
    replay: str = ""

    @property
    def role(self) -> KeyRole:
        return self.identity.role  # type: ignore[return-value] # a session is of a key

    def may(self, needed: KeyRole) -> bool:
        """Return whether the session may do what needs this role."""
        return not self.replay and permits(self.role, needed)

    def sees(self, needed: KeyRole) -> bool:
        """Return whether the session may read what needs this role."""
        return permits(self.role, needed)

    @property
    def reach(self) -> str:
        """What the page sends as `Gangline-Project`, so that it stays with the project that it names; empty if none was chosen."""
        return self.identity.project or self.identity.chosen or ""

    def stream(self, address: str, shown: str = "") -> Markup:
        """Return the attributes of the element whose screen follows the stream at an address; none in a replay, which stands still.

        With `shown`, the digest of what the stream would send first, it does not send that again.
        """
        known = Markup(' data-shown="{}"').format(shown) if shown else Markup("")
        return Markup("") if self.replay else Markup('hx-sse:connect="{}" hx-swap="none"').format(address) + known


def sign_in_address(request: Request) -> str:
    """Return the address of the sign-in that comes back to the screen that was asked for."""
    screen = screen_address(request)
    return "/sign-in" if screen == "/" else f"/sign-in?next={quote(screen, safe='')}"


async def _look(request: Request, viewer: ViewerLater, reach: ViewerReachLater) -> Later[Visit]:
    deployment, session, theme = deployment_of(request), session_of(request.headers), request.cookies.get(THEME_COOKIE)

    def find() -> Visit:
        identity, reached = viewer.get(), reach.get()
        return Visit(
            identity=replace(identity, chosen=reached) if identity.project is None else identity,
            project=reached or DEFAULT_PROJECT,
            projects=_projects(deployment) if identity.project is None else (),
            csrf=csrf_token(session) if session else "",
            theme=theme if theme in THEMES else "",
            now_ms=deployment.store.now_ms(),
            screen=screen_address(request),
            replay=request.app.state.replay,
        )

    return Later(find)


def _projects(deployment: Deployment) -> tuple[str, ...]:
    return tuple(each.project for each in projects(deployment)[:SHOWN_PROJECTS_MAX])


def screen_address(request: Request) -> str:
    """Return the address of the screen that is asked for, without the host."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


Looking = Annotated[Visit, Depends(_look)]
LookingLater = Annotated[Later[Visit], Depends(_look)]
