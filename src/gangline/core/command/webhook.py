"""The body of a webhook, and when it is sent again after a failure (https://www.standardwebhooks.com)."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

AGAIN_S = (5.0, 30.0, 120.0, 300.0, 900.0, 1800.0, 3600.0)
"""Seconds to wait after the first, second, … failed try; the last value repeats."""
GONE = 410
"""The HTTP status with which a receiver unsubscribes."""


def payload(kind: str, at_ms: int, data: Mapping[str, Any]) -> str:
    """Return the body as it is signed and sent: type, timestamp, data. It is ASCII, since chats and terminals show it raw."""
    timestamp = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"type": kind, "timestamp": timestamp, "data": data})


def again_s(tries: int) -> float:
    return AGAIN_S[min(tries, len(AGAIN_S)) - 1]
