"""Who may ask what: projects, their keys, and the pools' join tokens."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le, MaxLen
from fastapi import APIRouter

from gangline.api.lanes import UserRoute
from gangline.api.who import Admin, AdminOf, AdminReach, At, Now, Operator, ViewerOf
from gangline.core import display
from gangline.core.access import KeyRole
from gangline.core.views import JoinTokenView, KeyView, NewJoinToken, NewKey, ProjectView
from gangline.service.access import access, projects

router = APIRouter(prefix="/v1", tags=["access"], route_class=UserRoute)

GivenName = Annotated[display.Name, MaxLen(100)]
LastsS = Annotated[float, Gt(0), Le(10 * 365 * 86_400)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedKey:
    """`name` is for people: who or what has it. It opens nothing any more after `lasts_s`; without it, until it is revoked."""

    name: GivenName
    role: KeyRole = "member"
    lasts_s: LastsS = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedJoinToken:
    """Workers that join with it are in `pool`, for `lasts_s` or until it is revoked. `price_usd_per_hour` of a node, 0 if it is free, and
    `trust` are those of the pool where they are not given. At most `nodes_max` nodes are here at once, and `nodes_per_hour` join within
    an hour."""

    name: GivenName
    pool: GivenName = access.DEFAULT_POOL
    lasts_s: LastsS = None
    price_usd_per_hour: Annotated[float, Ge(0), Le(1e6)] | None = None
    trust: Annotated[int, Ge(0), Le(9)] | None = None
    nodes_max: Annotated[int, Ge(1), Le(1_000_000)] | None = None
    nodes_per_hour: Annotated[int, Ge(1), Le(1_000_000)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedProject:
    """Up to 40 lower-case letters, digits and hyphens: the name is a part of the key of every object of it."""

    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a project may have: its share beside the others', and a budget for all that it ever spends (None: no limit)."""

    share: Annotated[float, Gt(0), Le(1e6)] = 1.0
    budget_usd: Annotated[float, Ge(0), Le(1e9)] | None = None


@router.post("/keys", status_code=201)
def add_key(deployment: At, now: Now, admin: Admin, project: AdminOf, wanted: WantedKey) -> NewKey:
    """Its secret is in this answer and nowhere else. An operator's key is of no project."""
    return access.create_key(
        deployment, admin.role, project, wanted.role, name=wanted.name, lasts_s=wanted.lasts_s, now_ms=now
    )


@router.get("/keys")
def list_keys(deployment: At, now: Now, reach: AdminReach) -> list[KeyView]:
    """The project's; all of them, where an operator names no project."""
    return access.keys(deployment, reach, now)


@router.delete("/keys/{key}", status_code=204)
def revoke_key(deployment: At, now: Now, reach: AdminReach, key: str) -> None:
    """At once, and for good. Doing it again changes nothing."""
    access.end_key(deployment, reach, key, now)


@router.get("/project")
def show_project(deployment: At, project: ViewerOf) -> ProjectView:
    """One's own."""
    return projects.project(deployment, project)


@router.post("/projects", status_code=201)
def add_project(deployment: At, _: Operator, wanted: WantedProject) -> ProjectView:
    """One that is there already stays as it is."""
    projects.create_project(deployment, wanted.project)
    return projects.project(deployment, wanted.project)


@router.get("/projects")
def list_projects(deployment: At, _: Operator) -> list[ProjectView]:
    return projects.projects(deployment)


@router.put("/projects/{project}")
def set_project(deployment: At, _: Operator, project: str, allowance: Allowance) -> ProjectView:
    """A budget below what is spent stops what runs at its next heartbeats."""
    projects.set_allowance(deployment, project, share=allowance.share, budget_usd=allowance.budget_usd)
    return projects.project(deployment, project)


@router.post("/join-tokens", status_code=201)
def add_join_token(deployment: At, now: Now, _: Operator, wanted: WantedJoinToken) -> NewJoinToken:
    """Its secret is in this answer and nowhere else."""
    terms = access.Terms(
        price_usd_per_hour=wanted.price_usd_per_hour,
        trust=wanted.trust,
        nodes_max=wanted.nodes_max,
        nodes_per_hour=wanted.nodes_per_hour,
    )
    return access.create_join_token(
        deployment, wanted.pool, name=wanted.name, lasts_s=wanted.lasts_s, now_ms=now, terms=terms
    )


@router.get("/join-tokens")
def list_join_tokens(deployment: At, now: Now, _: Operator) -> list[JoinTokenView]:
    return access.join_tokens(deployment, now)


@router.delete("/join-tokens/{join_token}", status_code=204)
def revoke_join_token(deployment: At, now: Now, _: Operator, join_token: str) -> None:
    """Nobody joins with it any more; nodes that have, stay. Doing it again changes nothing."""
    access.end_join_token(deployment, join_token, now)
