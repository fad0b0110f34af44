"""Who is asking, and about which lease: the dependencies of every route."""

from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request

from gangline.ports.server import Hold
from gangline.service.access import Identity, Role, identify
from gangline.service.deployment import Deployment

NUMBER_MAX = 10**15


def deployment(request: Request) -> Deployment:
    return cast(Deployment, request.app.state.deployment)


def _bearer(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _has_role(role: Role):
    def identity(request: Request) -> Identity:
        return identify(deployment(request), _bearer(request), role)

    return identity


def _node(identity: Annotated[Identity, Depends(_has_role("node"))]) -> str:
    assert identity.node is not None, "a node's token names its node"
    return identity.node


def _project(identity: Annotated[Identity, Depends(_has_role("user"))]) -> str:
    return identity.project


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
Joining = Annotated[Identity, Depends(_has_role("join"))]
NodeId = Annotated[str, Depends(_node)]
Project = Annotated[str, Depends(_project)]
Held = Annotated[Hold, Depends(_hold)]
