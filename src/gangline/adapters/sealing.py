"""Secrets as JWE in compact form (RFC 7516): `dir` with A256GCM, under the first of several keys; the others only open."""

import hashlib
import hmac
import json
from collections.abc import Sequence

from joserfc import jwe
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

ALGORITHMS = jwe.JWERegistry(algorithms=["dir", "A256GCM"])


class JweSealer:
    """`keys` are texts that cannot be guessed: their SHA-256 encrypts."""

    def __init__(self, keys: Sequence[str]) -> None:
        found = [hashlib.sha256(key.encode()).digest() for key in keys]
        self._bytes = {hashlib.sha256(key).hexdigest()[:16]: key for key in found}
        self._keys = {name: OctKey.import_key(key) for name, key in self._bytes.items()}
        self._current = next(iter(self._keys))

    def seal(self, project: str, name: str, value: str) -> str:
        header = {"alg": "dir", "enc": "A256GCM", "kid": self._current}
        text = json.dumps([project, name, value])  # so that nobody can give a value to another name
        return jwe.encrypt_compact(header, text, self._keys[self._current], registry=ALGORITHMS)

    def open(self, project: str, name: str, sealed: str) -> str | None:
        key = self._keys.get(_key_id(sealed))
        if key is None:
            return None
        try:
            found = jwe.decrypt_compact(sealed, key, registry=ALGORITHMS).plaintext
            *names, value = json.loads(found or b"")
        except (JoseError, ValueError, TypeError):
            return None
        return value if names == [project, name] else None

    def is_current(self, sealed: str) -> bool:
        return _key_id(sealed) == self._current

    @property
    def current(self) -> str:
        return self._current

    def derive(self, key: str, *parts: str) -> bytes | None:
        found = self._bytes.get(key)
        return None if found is None else hmac.digest(found, json.dumps(["derived", *parts]).encode(), "sha256")


def _key_id(sealed: str) -> str:
    try:
        return str(jwe.extract_compact(sealed.encode(), ALGORITHMS).protected["kid"])
    except (JoseError, ValueError, KeyError):
        return ""
