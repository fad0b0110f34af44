"""Encode values as canonical JSON, with sorted keys and no spaces, so that equal values have equal hashes."""

import hashlib
import json

canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, in hexadecimal.

    The arguments of a command may be invalid UTF-8, which Python decodes to lone surrogates: those are hashed as they are.
    """
    return hashlib.sha256(canonical_json(value).encode(errors="surrogatepass")).hexdigest()
