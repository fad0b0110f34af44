"""Decide whether a server is ready for requests, from the results of its checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CheckName = Literal["stopping", "database", "migrations", "objects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a server that answers says of itself: `protocol` is the newest that it speaks with workers."""

    status: str = "ok"
    version: str
    protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCheck:
    """The result of one check. `because` is a sentence if the server is not ready for it, or if there is something to say all the same."""

    name: CheckName
    ok: bool
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessView:
    """`ready` if every check is ok; otherwise `because` is the sentence of the first that is not."""

    ready: bool
    because: str
    checks: tuple[ReadinessCheck, ...]


def readiness(checks: Sequence[ReadinessCheck]) -> ReadinessView:
    failed = [check.because for check in checks if not check.ok]
    return ReadinessView(ready=not failed, because=failed[0] if failed else "", checks=tuple(checks))


def check_stopping(stopping: bool) -> ReadinessCheck:
    because = "the server is stopping: it finishes its requests and takes no new ones" if stopping else ""
    return ReadinessCheck(name="stopping", ok=not stopping, because=because)


def check_migrations(found: int, known: int) -> ReadinessCheck:
    """Compare the schema of the database with the one that this program writes. A newer one is usable: during an upgrade, the older servers
    continue until they are replaced."""
    if found < known:
        because = (
            f"the database has schema {found}, and this program needs {known}: restart the server, which migrates it"
        )
        return ReadinessCheck(name="migrations", ok=False, because=because)
    newer = f"the database has schema {found}, and this program knows {known}: upgrade this server too"
    return ReadinessCheck(name="migrations", ok=True, because=newer if found > known else "")
