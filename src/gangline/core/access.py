"""Define access control: the roles of keys, valid project names, and when a secret has expired or was revoked."""

import re
from typing import Literal

from gangline.core.errors import BadInput

KeyRole = Literal["viewer", "member", "admin", "operator"]
Role = KeyRole | Literal["join", "node"]
Standing = Literal["valid", "expired", "revoked"]

KEY_ROLES: tuple[KeyRole, ...] = ("viewer", "member", "admin", "operator")
"""Each role has the permissions of those before it. A viewer reads its project, a member also submits and controls jobs, an admin
also manages keys. An operator belongs to no project and may do all of that in every project."""

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
    """Return the secret without surrounding white space, as a file that is mounted as a secret ends with a line break.

    Raises `BadInput` if it contains control characters or letters outside ASCII. The message names it as `called` and never quotes it.
    """
    secret = text.strip()
    if not (secret.isascii() and secret.isprintable()):
        raise BadInput(
            f"{called} cannot be used: it contains control characters or letters outside ASCII",
            hint="copy it again, in one piece",
        )
    return secret


def is_project_name(text: str) -> bool:
    """Return whether the text is a valid project name, which is safe as a part of an object's key."""
    return PROJECT_NAME.fullmatch(text) is not None


def permits(given: Role, needed: Role) -> bool:
    """Return whether a key or token of role `given` may use a route for `needed`. Workers' routes take a worker's token and no key."""
    if given in KEY_ROLES and needed in KEY_ROLES:
        return KEY_ROLES.index(given) >= KEY_ROLES.index(needed)
    return given == needed


def standing(expires_ms: int | None, revoked_ms: int | None, now_ms: int) -> Standing:
    if revoked_ms is not None:
        return "revoked"
    return "expired" if expires_ms is not None and expires_ms <= now_ms else "valid"
