"""The secrets that a server keeps in its home, and how a secret looks."""

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from gangline.core.access import as_secret
from gangline.core.errors import BadInput, UserError
from gangline.core.server.programs import KEY_MIN, keys_of

ACCESS = "access.json"
SEALING_KEY = "secrets.key"
UNREADABLE = "it must be a file of the server's user: run this as that user, or give the file to that user (chown)"
LOST_KEY = "put it back from a backup; or remove it, and users set their secrets again"
PRIVATE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The secrets of a server and where it is, kept in its home, readable by its owner alone. `url` is its address on its machine,
    `public_url` the one in its settings, if there is one. `operator_key` is empty in a home of 0.1: the next start makes one."""

    url: str
    operator_key: str = field(repr=False)
    join_token: str = field(repr=False)
    signing_secret: str = field(repr=False)
    public_url: str = ""

    @property
    def address(self) -> str:
        """The server's address for other machines, as far as it is known."""
        return self.public_url or self.url


def read_access(home: Path) -> Access | None:
    path = home / ACCESS
    try:
        found = {"operator_key": "", "public_url": ""} | json.loads(path.read_text())
        return Access(**{name: as_secret(found[name], name) for name in Access.__slots__})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", hint=UNREADABLE) from None
    except (ValueError, TypeError, KeyError, AttributeError, BadInput) as error:
        raise UserError(f"{path} cannot be read: {error}", hint="remove it, and start the server again") from None


def keep_access(home: Path, url: str, *, public_url: str = "", operator_key: str = "", join_token: str = "") -> Access:
    """Keep the same secrets at every start, but those that the settings name; the addresses are where the server is this time."""
    before = read_access(home)
    access = Access(
        url=url,
        operator_key=operator_key or (before and before.operator_key) or new_secret("operator"),
        join_token=join_token or (before.join_token if before else new_secret("join")),
        signing_secret=before.signing_secret if before else secrets.token_urlsafe(32),
        public_url=public_url,
    )
    partial = home / f".{ACCESS}"
    partial.touch(PRIVATE)
    partial.write_text(json.dumps({name: getattr(access, name) for name in access.__slots__}, indent=1))
    partial.rename(home / ACCESS)
    return access


def keep_sealing_keys(home: Path, given: str) -> list[str]:
    """Return the keys that encrypt users' secrets: those of the settings, else that of the home, which is made once. Raises `UserError`."""
    path = home / SEALING_KEY
    if not given and not path.exists():
        partial = home / f".{SEALING_KEY}"
        partial.touch(PRIVATE)
        partial.write_text(f"{new_secret('sealing')}\n")
        partial.rename(path)
    try:
        keys = keys_of(given or path.read_text())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", hint=UNREADABLE) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} cannot be read: {error}", hint=LOST_KEY) from None
    if not keys or min(map(len, keys)) < KEY_MIN:
        raise UserError(f"{path} holds no key", hint=LOST_KEY)
    return keys


def new_secret(kind: str) -> str:
    """Make a secret whose beginning says what it is, to people and to what scans for leaked secrets."""
    return f"gl_{kind}_{secrets.token_urlsafe(24)}"
