"""Requests that may be repeated: what the first one has made is written down with it, in one transaction.

Only the id or the name is, never the answer, which may have a secret: a repeated request is answered with what was made, as it is now. A
request that was refused has made nothing, so its key is free. Jobs have their requests in their own rows (`gangline.service.jobs.submit`).
"""

from dataclasses import dataclass

from gangline.core.errors import BadInput, InProgress
from gangline.core.server.idempotency import KEPT_S
from gangline.ports.store import Write, guard, write
from gangline.service.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRequest:
    """A request with an Idempotency-Key. The key belongs to a project ('' for a request about none) and to an endpoint."""

    project: str
    endpoint: str
    key: str
    fingerprint: str


def made_before(deployment: Deployment, request: KeyedRequest | None) -> str | None:
    """Return what this request has made before; None if it has made nothing. Raise `BadInput` if that was another request."""
    if request is None:
        return None
    rows = deployment.store.load("request", project=request.project, endpoint=request.endpoint, key=request.key)
    if not rows:
        return None
    if rows[0]["fingerprint"] != request.fingerprint:
        raise BadInput("this Idempotency-Key was used for another request", hint="use a new Idempotency-Key")
    return rows[0]["made"]


def recording(request: KeyedRequest | None, made: str, now_ms: int) -> list[Write]:
    """Return the write, for the transaction that makes something, that undoes it if the same request has made it before."""
    if request is None:
        return []
    where = {"project": request.project, "endpoint": request.endpoint, "key": request.key}
    return [guard("add_request", **where, fingerprint=request.fingerprint, made=made, now=now_ms)]


def apply_once(deployment: Deployment, request: KeyedRequest | None, made: str, now_ms: int, *writes: Write) -> None:
    """Apply the writes that make something. Raise `InProgress` if another server has answered the same request meanwhile."""
    recorded = recording(request, made, now_ms)
    if (writes or recorded) and not deployment.store.apply(*recorded, *writes):
        raise _answered()


def refuse_answered(deployment: Deployment, request: KeyedRequest | None) -> None:
    """Raise `InProgress` if the writes of a request were undone because another server has answered the same request meanwhile."""
    if made_before(deployment, request) is not None:
        raise _answered()


def _answered() -> InProgress:
    return InProgress("the same request was answered in this moment", hint="send it again to get its answer")


def forget_requests(deployment: Deployment, now_ms: int) -> None:
    """Forget what requests have made long ago."""
    deployment.store.apply(write("forget_requests", before=now_ms - KEPT_S * 1000))
