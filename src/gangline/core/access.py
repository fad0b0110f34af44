"""Who may do what: the roles of keys, the names of projects, and when a secret has lost its force."""

import re
from typing import Literal

from gangline.core.errors import BadInput

KeyRole = Literal["viewer", "member", "admin", "operator"]
Role = KeyRole | Literal["join", "node"]
Standing = Literal["valid", "expired", "revoked"]

KEY_ROLES: tuple[KeyRole, ...] = ("viewer", "member", "admin", "operator")
"""Each may do what those before it may. A viewer reads its project, a member submits and steers its jobs, an admin has
its keys; an operator has no project and all of them."""

CALLED: dict[Role, str] = {
    "viewer": "a viewer's key",
    "member": "a member's key",
    "admin": "an admin's key",
    "operator": "an operator's key",
    "join": "a join token",
    "node": "a node's token",
}
PROJECT_NAME = re.compile("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def as_secret(text: str, called: str) -> str:
    """Return it without what surrounds it: a file that is mounted as a secret ends with a line break. Raises `BadInput` where it
    holds what no secret does, and never says what it is."""
    secret = text.strip()
    if not (secret.isascii() and secret.isprintable()):
        raise BadInput(
            f"{called} cannot be one: it holds control characters or letters that none has",
            hint="copy it again, in one piece",
        )
    return secret


def is_project_name(text: str) -> bool:
    """One that is safe as a part of an object's key."""
    return PROJECT_NAME.fullmatch(text) is not None


def permits(given: Role, needed: Role) -> bool:
    """A worker's token opens the routes that are made for it, and no key does."""
    if given in KEY_ROLES and needed in KEY_ROLES:
        return KEY_ROLES.index(given) >= KEY_ROLES.index(needed)
    return given == needed


def standing(expires_ms: int | None, revoked_ms: int | None, now_ms: int) -> Standing:
    if revoked_ms is not None:
        return "revoked"
    return "expired" if expires_ms is not None and expires_ms <= now_ms else "valid"
