"""Write records of the log as lines of JSON, without secrets."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

LogFormat = Literal["text", "json"]
MASK = "********"
SECRETS = (
    re.compile(r"(?<=\bgl_)[a-z]+_[A-Za-z0-9_-]{8,}"),  # keys, join tokens, tokens of nodes, sessions
    re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"),  # user and password in an address
    re.compile(r"(?i)(?<=bearer )[^\s\"']+"),
    re.compile(r"(?i)(?<=signature=)[^\s&\"']+|(?<=x-amz-credential=)[^\s&\"']+|(?<=x-amz-security-token=)[^\s&\"']+"),
)
ID = re.compile(r"\b(job|attempt|node)-[0-9a-f]{19}\b")
"""As `new_id` of the server makes them."""
ABOUT = ("job", "attempt", "node")


def mask_secrets(text: str) -> str:
    """Return the text without keys and tokens of Gangline, passwords in addresses, and signatures of URLs."""
    for pattern in SECRETS:
        text = pattern.sub(MASK, text)
    return text


def ids_of(text: str) -> dict[str, str]:
    """Return the job, the attempt and the node that a message names. A kind of which it names several is left out."""
    found: dict[str, set[str]] = {kind: set() for kind in ABOUT}
    for match in ID.finditer(text):
        found[match[1]].add(match[0])
    return {kind: next(iter(ids)) for kind, ids in found.items() if len(ids) == 1}


def json_line(
    *, at_s: float, level: str, logger: str, message: str, traceback: str = "", fields: Mapping[str, Any] | None = None
) -> str:
    """Return one line of JSON: `time` (RFC 3339, UTC), `level`, `logger`, `message`, the ids that the message names, then `fields`.

    `at_s` is a time in seconds since 1970. A `traceback` is a field of its own.
    """
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": level.lower(),
        "logger": logger,
        "message": mask_secrets(message),
        **ids_of(message),
        **{name: mask_secrets(value) if isinstance(value, str) else value for name, value in (fields or {}).items()},
    }
    if traceback:
        line["traceback"] = mask_secrets(traceback)
    return json.dumps(line, ensure_ascii=True, default=str)
