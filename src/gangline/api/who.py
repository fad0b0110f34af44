"""Dependencies of the routes: who sends a request, and about which lease.

They run in the event loop and do no I/O. What needs the store is a `Later`, which is looked up in the route's lane.
"""

from dataclasses import dataclass
from functools import cache
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Query, Request

from gangline.api.lanes import Later
from gangline.api.limits.door import IDENTITY
from gangline.api.sessions.cookie import token_of
from gangline.core.access import Role
from gangline.core.errors import UserError
from gangline.ports.server import Hold
from gangline.service.access.access import DEFAULT_PROJECT, Identity, identify, note_use, permitted, recognize
from gangline.service.access.projects import reachable_project
from gangline.service.deployment import Deployment
from gangline.wire import protocol

NUMBER_MAX = 10**15
HOLDERS_MAX = 65_536
"""The number of nodes' tokens that are remembered."""


def deployment_of(request: Request) -> Deployment:
    return cast(Deployment, request.app.state.deployment)


def bearer(request: Request) -> str:
    """Return the token, of a session if the request has only its cookie.

    Raise `UserError` if the client speaks a newer version of the protocol than this server.
    """
    spoken = request.headers.get(protocol.HEADER, "")
    if spoken.isdecimal() and len(spoken) < 9 and int(spoken) > protocol.VERSION:
        raise UserError(
            f"this server speaks version {protocol.VERSION} of the protocol, and the request has version {spoken}",
            hint="upgrade the server first, then workers and clients",
        )
    return token_of(request.headers)


class RememberedNodes:
    """The nodes of tokens that were looked up before, for requests that a lease guards.

    A token never changes its node, and a node that was given up has no lease. So an entry may be old, but permits nothing.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._nodes: dict[str, str] = {}

    def find(self, token: str) -> str:
        """Return the node of a token, from the store if it is not remembered. Raise `Denied`."""
        known = self.known(token)
        if known is not None:
            return known
        node = _node(identify(self._deployment, token, "node", self._deployment.store.now_ms()))
        if len(self._nodes) >= HOLDERS_MAX:
            self._nodes = {}  # once in a long life: the next request of each node looks it up again
        self._nodes[token] = node
        return node

    def known(self, token: str) -> str | None:
        """Return the node of a token if it is remembered."""
        return self._nodes.get(token)


def holder(request: Request) -> Later[str]:
    nodes, token = cast(RememberedNodes, request.app.state.remembered_nodes), bearer(request)
    return Later(lambda: nodes.find(token))


@cache
def _has_role(needed: Role):
    async def identity(request: Request) -> Later[Identity]:
        deployment, secret = deployment_of(request), bearer(request)
        known = request.scope.get(IDENTITY)

        def find() -> Identity:
            now_ms = deployment.store.now_ms()
            found = permitted(known or recognize(deployment, secret, needed, now_ms), needed)
            note_use(deployment, found, now_ms)
            return found

        return Later(cache(find))

    return identity


@cache
def _reach(needed: Role):
    async def projects(
        request: Request,
        identity: Annotated[Later[Identity], Depends(_has_role(needed))],
        gangline_project: Annotated[str | None, Header(max_length=40)] = None,
    ) -> Later[str | None]:
        """Return the project. `Gangline-Project` selects one for operators; all other keys belong to one project.

        Without it, it is the one that the session has chosen; an empty one says that none was chosen when the page was made that asks.
        """
        deployment = deployment_of(request)

        def find() -> str | None:
            found = identity.get()
            return reachable_project(
                deployment, found, found.chosen if gangline_project is None else gangline_project or None
            )

        return Later(cache(find))

    return projects


@cache
def _project(needed: Role):
    async def project(reached: Annotated[Later[str | None], Depends(_reach(needed))]) -> Later[str]:
        return Later(lambda: reached.get() or DEFAULT_PROJECT)

    return project


def _node(identity: Identity) -> str:
    assert identity.node is not None, "a node's token names its node"
    return identity.node


@dataclass(frozen=True, slots=True)
class JoinToken:
    """`rental` is the one that a rented node's token is for."""

    id: str
    pool: str
    rental: str | None


def _join_token(identity: Identity) -> JoinToken:
    assert identity.pool is not None, "a join token names its pool"
    return JoinToken(identity.id, identity.pool, identity.rental)


async def _node_id(identity: Annotated[Later[Identity], Depends(_has_role("node"))]) -> Later[str]:
    return Later(lambda: _node(identity.get()))


async def _joins_with(identity: Annotated[Later[Identity], Depends(_has_role("join"))]) -> Later[JoinToken]:
    return Later(lambda: _join_token(identity.get()))


async def _holder(request: Request) -> Later[str]:
    return holder(request)


async def _this_deployment(request: Request) -> Deployment:
    return deployment_of(request)


async def _now(request: Request) -> Later[int]:
    return Later(deployment_of(request).store.now_ms)


async def _hold(
    attempt: Annotated[str, Path(max_length=100)],
    fencing: Annotated[int, Query(ge=0, le=NUMBER_MAX)],
    rank: Annotated[int, Query(ge=0, le=NUMBER_MAX)] = 0,
) -> Hold:
    return Hold(attempt=attempt, rank=rank, fencing=fencing)


# The types of endpoints' parameters in a lane, where each `Later` has been looked up.
ThisDeployment = Annotated[Deployment, Depends(_this_deployment)]
Now = Annotated[int, Depends(_now)]
ViewerOf = Annotated[str, Depends(_project("viewer"))]
ViewerOfLater = Annotated[Later[str], Depends(_project("viewer"))]
MemberOf = Annotated[str, Depends(_project("member"))]
MemberOfLater = Annotated[Later[str], Depends(_project("member"))]
AdminOf = Annotated[str, Depends(_project("admin"))]
ViewerReach = Annotated[str | None, Depends(_reach("viewer"))]
ViewerReachLater = Annotated[Later[str | None], Depends(_reach("viewer"))]
MemberReach = Annotated[str | None, Depends(_reach("member"))]
AdminReach = Annotated[str | None, Depends(_reach("admin"))]
Viewer = Annotated[Identity, Depends(_has_role("viewer"))]
ViewerLater = Annotated[Later[Identity], Depends(_has_role("viewer"))]
Member = Annotated[Identity, Depends(_has_role("member"))]
MemberLater = Annotated[Later[Identity], Depends(_has_role("member"))]
Admin = Annotated[Identity, Depends(_has_role("admin"))]
Operator = Annotated[Identity, Depends(_has_role("operator"))]
JoinsWith = Annotated[JoinToken, Depends(_joins_with)]
NodeId = Annotated[str, Depends(_node_id)]
Holder = Annotated[str, Depends(_holder)]
HeldLease = Annotated[Hold, Depends(_hold)]
