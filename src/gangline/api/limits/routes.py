"""Which limits a request has, by its path alone: pure."""

from dataclasses import dataclass
from typing import Literal

from gangline.core.access import Role
from gangline.core.server.limits import Limits

BATCH_PATH = "/v1/jobs/batch"
JOIN_PATH = "/v1/nodes"
SenderKind = Literal["heartbeat", "worker", "user", "signed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBounds:
    """`needed`: what a token that is not known here should have been. `whole`: the body is read before the route begins, so it has
    `body_bytes_max` bytes at most; others are read while they come."""

    sender: SenderKind
    body_bytes_max: int
    needed: Role = "viewer"
    whole: bool = True


def bounds_of(path: str, limits: Limits) -> RequestBounds:
    """Return the limits of a request. What is uploaded by a signed URL has the length that was signed."""
    if path.startswith("/v1/objects/"):
        return RequestBounds(sender="signed", body_bytes_max=2**63, whole=False)
    if path.startswith("/v1/attempts/"):
        if path.endswith("/heartbeats"):
            return RequestBounds(sender="heartbeat", body_bytes_max=limits.heartbeat_bytes_max)
        return RequestBounds(sender="worker", body_bytes_max=limits.worker_json_bytes_max)
    if path == BATCH_PATH:
        return RequestBounds(sender="user", body_bytes_max=limits.batch_bytes_max, whole=False)
    return RequestBounds(
        sender="user", body_bytes_max=limits.json_bytes_max, needed="join" if path == JOIN_PATH else "viewer"
    )
