"""The header `Idempotency-Key`: how it is written, and what makes two requests the same one (draft-ietf-httpapi-idempotency-key-header)."""

import json
import re

from gangline.core.canonical import digest
from gangline.core.errors import BadInput

KEY_MAX = 200
"""Characters of a key."""
HEADER_MAX = 2 * KEY_MAX + 2
"""Characters of the header: a key in quotes, with each character escaped."""
KEPT_S = 7 * 86_400
"""What a request has made is known for this long under its key. A job knows its own for as long as it is kept."""
QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?: *;[\x20-\x7e]*)?')
"""A string of RFC 8941; parameters mean nothing here."""
ESCAPED = re.compile(r"\\(.)")


def parse_key(header: str) -> str:
    """Return the key of a header: a string in quotes, as the draft has it, or the bare text that came before it. Raise `BadInput`."""
    text = header.strip()
    if text.startswith('"'):
        quoted = QUOTED.fullmatch(text)
        if quoted is None:
            raise BadInput(
                "this Idempotency-Key begins with a quote and is no string in quotes",
                hint='write it as "8e03978e-40d5-43e8-bc93-6894a57f9324", or without quotes',
            )
        text = ESCAPED.sub(r"\1", quoted[1])
    if not 1 <= len(text) <= KEY_MAX:
        raise BadInput(f"an Idempotency-Key has 1 to {KEY_MAX} characters, not {len(text)}", hint="use a UUID")
    return text


def write_key(key: str) -> str:
    """Return the header for a key: in quotes, unless it has characters that no string in quotes may have."""
    if not (key.isascii() and key.isprintable()):
        return key
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def request_fingerprint(path: str, query: str, body: bytes) -> str:
    """Return a hash that is equal for equal requests to one endpoint. JSON counts as what it means, so its spaces do not."""
    try:
        return digest([path, query, json.loads(body)])
    except (ValueError, RecursionError):  # it is no JSON, or none that can be written again
        return digest([path, query, body.hex()])
