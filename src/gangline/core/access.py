"""Define access control: the roles of keys, valid project names, and when a secret has expired or was revoked."""

import re
from dataclasses import dataclass, field
from typing import Literal

from gangline.core.display import is_text
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
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OWN = "GANGLINE_"
SECRET_MIN, SECRET_MAX = 8, 32_768
"""Characters of a secret; a shorter one could not be masked in a log without masking much else."""
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


def why_no_variable(name: str) -> str:
    """Return why a job can have no variable of the environment of this name; empty if it can."""
    if not VARIABLE.fullmatch(name) or name.startswith(OWN):
        return f"{name!r} is not the name of a variable that a job may have: letters, digits and `_`, and not {OWN}…"
    return ""


def why_not_secret(value: object) -> str:
    """Return why a value can be no secret of a command, without quoting it; empty if it can."""
    if not isinstance(value, str):
        return "a secret is a text"
    if not SECRET_MIN <= len(value) <= SECRET_MAX:
        return f"a secret has {SECRET_MIN} to {SECRET_MAX:,} characters, and this one has {len(value):,}"
    return (
        "a secret has no null character and nothing that is not Unicode" if "\0" in value or not is_text(value) else ""
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerView:
    """The key that asked for a job; it keeps its name when it is revoked."""

    id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInCode:
    """A link that signs in to the page, once, with the key that asked for it: a `path` of the server, until `expires_ms`."""

    path: str = field(repr=False)
    expires_ms: int
