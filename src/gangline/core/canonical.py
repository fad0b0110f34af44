"""One text for one value: JSON with sorted keys and no spaces, so that equal things have equal hashes."""

import hashlib
import json

canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def digest(value: object) -> str:
    """SHA-256 of the canonical JSON of `value`, in hexadecimal. A command's words may be no UTF-8: they have lone surrogates."""
    return hashlib.sha256(canonical_json(value).encode(errors="surrogatepass")).hexdigest()
