"""Who is asking. The store holds only hashes of tokens; they are random, so a plain SHA-256 is enough."""

import hashlib
from dataclasses import dataclass
from typing import Literal

from gangline.core.errors import Denied
from gangline.ports.store import Write, write
from gangline.service.deployment import Deployment

Role = Literal["user", "join", "node"]
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    role: Role
    project: str
    node: str | None


def identify(at: Deployment, token: str, role: Role) -> Identity:
    """Raises `Denied` unless `token` is one of `role`."""
    rows = at.store.load("token", hash=_hash(token)) if token else []
    if not rows:
        raise Denied(
            "the token is missing" if not token else "the token is not known here",
            hint="pass --token or set GANGLINE_TOKEN; the server's operator has it",
        )
    found = rows[0]
    if found["role"] != role:
        raise Denied(f"this needs a {role} token, and the one given is a {found['role']} token")
    if found["node_state"] == "gone":
        raise Denied("this node was given up", hint="start the worker again: it joins anew")
    return Identity(role=role, project=found["project"], node=found["node"])


def admit(at: Deployment, token: str, role: Role, *, now_ms: int) -> None:
    """Make `token` known, if it is not."""
    at.store.apply(write("add_project", id=DEFAULT_PROJECT), adding(token, role, node=None, now_ms=now_ms))


def adding(token: str, role: Role, *, node: str | None, now_ms: int) -> Write:
    return write("add_token", hash=_hash(token), role=role, project=DEFAULT_PROJECT, node=node, now=now_ms)


def set_project(at: Deployment, project: str, *, share: float, budget_usd: float | None) -> None:
    """What a project may have. A budget below what is spent stops what runs at its next heartbeats."""
    budget = None if budget_usd is None else round(budget_usd * 1e6)
    at.store.apply(write("add_project", id=project), write("set_project", id=project, share=share, budget=budget))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
