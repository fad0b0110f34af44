"""Routes for projects, keys, secrets and join tokens."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Le, MaxLen
from fastapi import APIRouter, Request
from pydantic import WithJsonSchema

from gangline.api.answers.paging import PartAfter, PartLimit, as_part, part_after
from gangline.api.answers.repeats import EVERY_PROJECT, Repeat
from gangline.api.lanes import UserRoute
from gangline.api.who import Admin, AdminOf, AdminReach, MemberOf, Now, Operator, ThisDeployment, Viewer, ViewerOf
from gangline.core import display
from gangline.core.access import KeyRole, SignInCode
from gangline.core.views import JoinTokenView, KeyView, NewJoinToken, NewKey, ProjectView, SecretView
from gangline.service.access import access, projects, secrets, sessions

router = APIRouter(prefix="/v1", tags=["access"], route_class=UserRoute)

GivenName = Annotated[display.Name, MaxLen(100)]
LastsS = Annotated[float, Gt(0), Le(10 * 365 * 86_400)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKey:
    """A key to create. `name` says, for people, who or what uses it. It expires after `lasts_s` seconds; without that, never."""

    name: GivenName
    role: KeyRole = "member"
    lasts_s: LastsS = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJoinToken:
    """A join token to create, for nodes of `pool`. It expires after `lasts_s` seconds; without that, never.

    `price_usd_per_hour` of a node (0: free) and `trust` default to the pool's. At most `nodes_max` nodes may be here at once, and
    `nodes_per_hour` join within an hour; without them, any number.
    """

    name: GivenName
    pool: GivenName = access.DEFAULT_POOL
    lasts_s: LastsS = None
    price_usd_per_hour: Annotated[float, Ge(0), Le(1e6)] | None = None
    trust: Annotated[int, Ge(0), Le(9)] | None = None
    nodes_max: Annotated[int, Ge(1), Le(1_000_000)] | None = None
    nodes_per_hour: Annotated[int, Ge(1), Le(1_000_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedProject:
    """A project to create.

    Its name has up to 40 lower-case letters, digits and hyphens, as it is a part of the key of each of its objects.
    """

    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The limits of a project: a share, relative to other projects', and a budget for everything that it ever spends (null: no limit)."""

    share: Annotated[float, Gt(0), Le(1e6)] = 1.0
    budget_usd: Annotated[float, Ge(0), Le(1e9)] | None = None


@router.post("/keys", status_code=201)
def add_key(
    deployment: ThisDeployment, now: Now, admin: Admin, project: AdminOf, wanted: WantedKey, repeat: Repeat
) -> NewKey:
    """Create a key. Only this answer has its secret. An operator's key belongs to no project. Needs an admin's key."""
    given = {"name": wanted.name, "lasts_s": wanted.lasts_s, "now_ms": now, "request": repeat.within(project)}
    with repeat.alone(project):
        return access.create_key(deployment, admin.role, project, wanted.role, **given)


@router.get("/keys")
def list_keys(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    reach: AdminReach,
    after: PartAfter = None,
    limit: PartLimit = None,
) -> list[KeyView]:
    """List the keys of the project; all keys if an operator names no project. Needs an admin's key."""
    found = part_after(access.keys(deployment, reach, now), after, lambda key: key.id)
    return as_part(request, found, limit, lambda key: key.id)  # type: ignore[return-value]


@router.delete("/keys/{key}", status_code=204)
def revoke_key(deployment: ThisDeployment, now: Now, reach: AdminReach, key: str) -> None:
    """Revoke a key at once and for good. Repeating this changes nothing. Needs an admin's key."""
    access.revoke_user_key(deployment, reach, key, now)


@router.post("/sign-in-codes", status_code=201)
def add_sign_in_code(deployment: ThisDeployment, now: Now, viewer: Viewer, project: ViewerOf) -> SignInCode:
    """Make a link that signs in to the page of this server, once, with the key that asks. It can be used for five minutes."""
    return sessions.make_code(deployment, viewer, project, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretValue:
    """The value of a secret, a text. Another one is refused where no message can quote it."""

    value: Annotated[Any, WithJsonSchema({"type": "string"})] = field(repr=False)


@router.put("/secrets/{secret}")
def set_secret(deployment: ThisDeployment, now: Now, project: MemberOf, secret: str, wanted: SecretValue) -> SecretView:
    """Keep a value, encrypted, that commands get as a variable of this name if they ask for it. It replaces an earlier one.

    No answer ever has it. 422 if the name is not one of a variable, or the value has fewer than 8 characters or more than 32,768.
    """
    return secrets.keep_secret(deployment, project, secret, wanted.value, now)


@router.get("/secrets")
def list_secrets(deployment: ThisDeployment, project: ViewerOf) -> list[SecretView]:
    """List the project's secrets, without their values."""
    return secrets.secrets_of(deployment, project)


@router.delete("/secrets/{secret}", status_code=204)
def remove_secret(deployment: ThisDeployment, project: MemberOf, secret: str) -> None:
    """Delete a secret. A job that needs it is paused when a node would get it. Repeating this changes nothing."""
    secrets.forget_secret(deployment, project, secret)


@router.get("/project")
def show_project(deployment: ThisDeployment, project: ViewerOf) -> ProjectView:
    """Show the project of the key."""
    return projects.project(deployment, project)


@router.post("/projects", status_code=201)
def add_project(
    deployment: ThisDeployment, now: Now, _: Operator, wanted: WantedProject, repeat: Repeat
) -> ProjectView:
    """Create a project. An existing one stays as it is. Needs an operator's key."""
    with repeat.alone(EVERY_PROJECT):
        projects.create_project(deployment, wanted.project, now, repeat.within(EVERY_PROJECT))
        return projects.project(deployment, wanted.project)


@router.get("/projects")
def list_projects(deployment: ThisDeployment, _: Operator) -> list[ProjectView]:
    """List all projects. Needs an operator's key."""
    return projects.projects(deployment)


@router.put("/projects/{project}")
def set_project(deployment: ThisDeployment, _: Operator, project: str, allowance: Allowance) -> ProjectView:
    """Set the share and the budget of a project.

    A budget below what is already spent stops its jobs at their next heartbeats. Needs an operator's key.
    """
    projects.set_allowance(deployment, project, share=allowance.share, budget_usd=allowance.budget_usd)
    return projects.project(deployment, project)


@router.post("/join-tokens", status_code=201)
def add_join_token(
    deployment: ThisDeployment, now: Now, _: Operator, wanted: WantedJoinToken, repeat: Repeat
) -> NewJoinToken:
    """Create a join token. Only this answer has its secret. Needs an operator's key."""
    terms = access.Terms(
        price_usd_per_hour=wanted.price_usd_per_hour,
        trust=wanted.trust,
        nodes_max=wanted.nodes_max,
        nodes_per_hour=wanted.nodes_per_hour,
    )
    given = {"name": wanted.name, "lasts_s": wanted.lasts_s, "now_ms": now, "request": repeat.within(EVERY_PROJECT)}
    with repeat.alone(EVERY_PROJECT):
        return access.create_join_token(deployment, wanted.pool, terms=terms, **given)


@router.get("/join-tokens")
def list_join_tokens(
    request: Request,
    deployment: ThisDeployment,
    now: Now,
    _: Operator,
    after: PartAfter = None,
    limit: PartLimit = None,
) -> list[JoinTokenView]:
    """List all join tokens. Needs an operator's key."""
    found = part_after(access.join_tokens(deployment, now), after, lambda token: token.id)
    return as_part(request, found, limit, lambda token: token.id)  # type: ignore[return-value]


@router.delete("/join-tokens/{join_token}", status_code=204)
def revoke_join_token(deployment: ThisDeployment, now: Now, _: Operator, join_token: str) -> None:
    """Revoke a join token: no more nodes join with it, and those that did stay. Repeating this changes nothing. Needs an operator's key."""
    access.revoke_pool_join_token(deployment, join_token, now)
