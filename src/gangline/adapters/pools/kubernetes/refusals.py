"""What a refusal of the API server means. Its answers are a `Status` with a reason for programs and a sentence for people."""

import json
import re
from dataclasses import dataclass
from typing import Any

from gangline.adapters.pools.kubernetes.answers import one_line
from gangline.core.errors import BadInput, Denied, GanglineError, TooMany, Unreachable
from gangline.ports.pool import NoCapacity

NOT_THERE = "NotFound"
WAIT_S, WAIT_S_MAX = 5, 120
DETAIL_MAX = 400
ROLE_HINT = "docs/pools/kubernetes.md has the role that the server needs"
MISSING_RIGHT = re.compile(r'cannot (\w+) resource "([\w./-]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRefusal:
    """An answer that is no success. `reason` is empty if another than the API server gives it."""

    status: int
    reason: str = ""
    message: str = ""
    wait_s: float = WAIT_S

    @staticmethod
    def read(status: int, retry_after: str, body: bytes) -> "PodRefusal":
        """Read an answer, which another than the API server may have given."""
        wait_s = min(WAIT_S_MAX, int(retry_after[:9])) if retry_after.isdecimal() else WAIT_S
        said = _read_json(body)
        if not isinstance(said, dict) or said.get("kind") != "Status":
            return PodRefusal(status=status, wait_s=wait_s)
        message = one_line(str(said.get("message", "")), DETAIL_MAX).rstrip(" .")
        return PodRefusal(
            status=status, reason=str(said.get("reason", "")) or "Unknown", message=message, wait_s=wait_s
        )


def _read_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def why_refused_by_cluster(refusal: PodRefusal, host: str) -> GanglineError:
    """Return the error that a refusal means.

    What is not known is `Unreachable`: only then will the list be trusted to say whether something has happened.
    """
    status, said = refusal.status, f": {refusal.message}" if refusal.message else ""
    if status == 429:
        return TooMany(f"Kubernetes allows no more requests for the moment{said}", wait_s=refusal.wait_s)
    if status == 401:
        return Denied(f"Kubernetes does not accept this server's credentials{said}", hint="check the kubeconfig")
    if status >= 500 or status == 409:  # 409: a quota, for one, was changed at the same moment
        return Unreachable(f"Kubernetes failed (HTTP {status}){said}")
    if not refusal.reason:
        return Unreachable(
            f"what answers at {host} (HTTP {status}) is no API server of Kubernetes",
            hint="a proxy may be in between, or the kubeconfig names another server",
        )
    if status == 403:
        return _forbidden(refusal)
    return BadInput(
        f"Kubernetes refuses this (HTTP {status}){said}", hint="check the pool's settings and its Pod template"
    )


def _forbidden(refusal: PodRefusal) -> GanglineError:
    if "exceeded quota" in refusal.message:
        return NoCapacity(f"a quota of the cluster is used up: {refusal.message}")
    missing = MISSING_RIGHT.search(refusal.message)
    if missing:
        return Denied(
            f"Kubernetes does not let this server {missing[1]} {missing[2]}: {refusal.message}",
            hint=ROLE_HINT,
        )
    if not refusal.message:
        return Denied("Kubernetes does not permit this", hint=ROLE_HINT)
    return BadInput(f"the cluster's rules refuse the Pod: {refusal.message}", hint="change its template, or the rules")
