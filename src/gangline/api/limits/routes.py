"""Choose the limits of a request by its path alone, without any I/O."""

from dataclasses import dataclass
from typing import Literal

from gangline.core.access import Role
from gangline.core.server.limits import Limits

BATCH_PATH = "/v1/jobs/batch"
JOIN_PATH = "/v1/nodes"
SIGN_IN_PATH = "/sign-in"
SIGN_IN_BYTES_MAX = 10_000
SenderKind = Literal["heartbeat", "worker", "user", "guest", "signed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """The limits of a request. A guest has no key yet.

    `needed` is the role that the hint for an invalid token names. If `whole`, the body is read before the route runs, up to
    `body_bytes_max` bytes; else the route reads it as it arrives.
    """

    sender: SenderKind
    body_bytes_max: int
    needed: Role = "viewer"
    whole: bool = True


def bounds_of(path: str, limits: Limits) -> RequestBounds:
    """Return the limits of a request. An upload by signed URL has the length that was signed, so no limit applies here."""
    if path.startswith("/v1/objects/"):
        return RequestBounds(sender="signed", body_bytes_max=2**63, whole=False)
    if path.startswith("/v1/attempts/"):
        if path.endswith("/heartbeats"):
            return RequestBounds(sender="heartbeat", body_bytes_max=limits.heartbeat_bytes_max)
        return RequestBounds(sender="worker", body_bytes_max=limits.worker_json_bytes_max)
    if path == SIGN_IN_PATH:
        return RequestBounds(sender="guest", body_bytes_max=SIGN_IN_BYTES_MAX)
    if path == BATCH_PATH:
        return RequestBounds(sender="user", body_bytes_max=limits.batch_bytes_max, whole=False)
    return RequestBounds(
        sender="user", body_bytes_max=limits.json_bytes_max, needed="join" if path == JOIN_PATH else "viewer"
    )
