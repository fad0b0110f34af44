"""Who is asking, and about which project or lease: the dependencies of every route."""

from functools import cache
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Query, Request

from gangline.core.access import Role
from gangline.ports.server import Hold
from gangline.service.access import DEFAULT_PROJECT, Identity, identify, note_use
from gangline.service.deployment import Deployment
from gangline.service.projects import reach

NUMBER_MAX = 10**15


def deployment(request: Request) -> Deployment:
    return cast(Deployment, request.app.state.deployment)


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


@cache
def _has_role(needed: Role):
    def identity(request: Request) -> Identity:
        at = deployment(request)
        now_ms = at.store.now_ms()
        found = identify(at, _bearer(request), needed, now_ms)
        note_use(at, found, now_ms)
        return found

    return identity


@cache
def _reach(needed: Role):
    def projects(
        request: Request,
        identity: Annotated[Identity, Depends(_has_role(needed))],
        gangline_project: Annotated[str | None, Header(max_length=40)] = None,
    ) -> str | None:
        """`Gangline-Project` is for operators to say; all others have one project."""
        return reach(deployment(request), identity, gangline_project)

    return projects


def _project(needed: Role):
    def project(reached: Annotated[str | None, Depends(_reach(needed))]) -> str:
        return reached or DEFAULT_PROJECT

    return project


def _node(identity: Annotated[Identity, Depends(_has_role("node"))]) -> str:
    assert identity.node is not None, "a node's token names its node"
    return identity.node


def _pool(identity: Annotated[Identity, Depends(_has_role("join"))]) -> str:
    assert identity.pool is not None, "a join token names its pool"
    return identity.pool


def _hold(
    attempt: Annotated[str, Path(max_length=100)],
    fencing: Annotated[int, Query(ge=0, le=NUMBER_MAX)],
    rank: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
) -> Hold:
    return Hold(attempt=attempt, rank=rank, fencing=fencing)


def _now(request: Request) -> int:
    return deployment(request).store.now_ms()


At = Annotated[Deployment, Depends(deployment)]
Now = Annotated[int, Depends(_now)]
ViewerOf = Annotated[str, Depends(_project("viewer"))]
MemberOf = Annotated[str, Depends(_project("member"))]
AdminOf = Annotated[str, Depends(_project("admin"))]
AdminReach = Annotated[str | None, Depends(_reach("admin"))]
Viewer = Annotated[Identity, Depends(_has_role("viewer"))]
Admin = Annotated[Identity, Depends(_has_role("admin"))]
Operator = Annotated[Identity, Depends(_has_role("operator"))]
PoolToJoin = Annotated[str, Depends(_pool)]
NodeId = Annotated[str, Depends(_node)]
Held = Annotated[Hold, Depends(_hold)]
