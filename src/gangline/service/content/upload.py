"""Grant uploads to the object store and check that they arrived.

A small file is one signed request. A large one is uploaded in parts, and a repeated request grants the missing ones; of a file that is
still being written, those that are complete. The parts are joined here, by the server, after it has checked that the lease is held.
"""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from gangline.core.errors import Damaged, Unreachable
from gangline.core.files import Beginning, File, Grant, Signed, part_lengths
from gangline.ports.objects import UploadPart
from gangline.ports.server import Refused, Upload
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.content.parts import attested, declared, in_parts, single_upload
from gangline.service.deployment import Deployment

UNKNOWN = ""
"""The SHA-256 of a file that is still being written."""


def grant(deployment: Deployment, key: str, file: Upload, now_ms: int, *, attempt: str = "") -> Grant:
    """Return requests that upload exactly these bytes under `key`, except for parts that are stored already."""
    if not deployment.objects.in_parts(file.bytes):
        return single_upload(deployment.objects, key, file, now_ms, deployment.policy.url_s)
    parts = file.parts or (file.sha256,)
    upload, here = _begun(deployment, key, file, parts, now_ms, attempt)
    return in_parts(deployment.objects, key, upload, here, declared(file.bytes, parts), now_ms, deployment.policy.url_s)


def grant_beginning(deployment: Deployment, key: str, file: Beginning, now_ms: int, *, attempt: str) -> Grant:
    """Return requests that upload these parts of a file that is still being written, each for exactly its bytes, and None for the others.

    No object comes of them before `grant` is asked for the whole file, with the hashes of all of its parts. Once it was asked for that,
    nothing is granted here: this request was late.
    """
    lengths = part_lengths(file.bytes)
    requests: list[Signed | None] = [None] * len(lengths)
    upload = _unfinished(deployment, key, file, now_ms, attempt)
    if upload is None:
        return Grant(parts=tuple(requests))
    for number, sha256 in enumerate(file.parts, file.first):
        part = UploadPart(lengths[number], sha256)
        requests[number] = deployment.objects.sign_part(
            key, upload, number + 1, part, now_ms=now_ms, seconds=deployment.policy.url_s
        )
    return Grant(parts=tuple(requests))


def stored_as(deployment: Deployment, files: Iterable[tuple[str, File]], parts: tuple[str, ...] = ()) -> bool | Refused:
    """Return whether the store attests the checksums of all files under their keys; `Refused` if one is not there.

    An upload whose parts have all arrived becomes an object now. Without `parts`, those with which the upload began are meant.
    """
    found = deployment.objects.at_once(
        [partial(_join, deployment, key, file, parts, _of_parts(deployment, key, file)) for key, file in files]
    )
    return next((each for each in found if isinstance(each, Refused)), all(found))


def _of_parts(deployment: Deployment, key: str, file: File) -> Row | None:
    """Return the record of an upload in parts, if it is one."""
    rows = deployment.store.load("upload", key=key) if deployment.objects.in_parts(file.bytes) else []
    return rows[0] if rows else None


def _join(deployment: Deployment, key: str, file: File, parts: tuple[str, ...], upload: Row | None) -> bool | Refused:
    begun = tuple(json.loads(upload["parts"])) if upload else ()
    if upload and upload["begun"] and upload["sha256"] != UNKNOWN:
        deployment.objects.complete(key, upload["begun"], declared(upload["bytes"], begun))
    return _stands(deployment, key, file, parts or begun)


def _stands(deployment: Deployment, key: str, file: File, parts: tuple[str, ...]) -> bool | Refused:
    try:
        return attested(deployment.objects, key, file, parts)
    except Damaged as error:
        return Refused(because=error.message)


def _unfinished(deployment: Deployment, key: str, file: Beginning, now_ms: int, attempt: str) -> str | None:
    """Return the upload of a file of this length whose hash is not known yet; it is begun if there is none. Return None if the hash is
    known: beginning another upload would abort that one."""
    for _ in range(TRIES_MAX):
        rows = deployment.store.load("upload", key=key)
        seen = rows[0]["begun"] if rows else ""
        if rows and rows[0]["bytes"] == file.bytes and rows[0]["sha256"] != UNKNOWN:
            return None
        if seen and rows[0]["bytes"] == file.bytes:
            return seen
        said = {"bytes": file.bytes, "sha256": UNKNOWN, "parts": json.dumps(())}
        if upload := _begin(deployment, {"key": key, "attempt": attempt, "now": now_ms} | said, seen):
            return upload
    raise Unreachable(f"the upload of {file.path} was begun {TRIES_MAX} times at once")


def _begun(
    deployment: Deployment, key: str, file: Upload, parts: tuple[str, ...], now_ms: int, attempt: str
) -> tuple[str, Mapping[int, UploadPart]]:
    """Return the upload of exactly these bytes, which is begun if there is none, and the parts that the store has: all, if it is an object
    already.
    """
    said = {"bytes": file.bytes, "sha256": file.sha256, "parts": json.dumps(parts)}
    for _ in range(TRIES_MAX):
        rows = deployment.store.load("upload", key=key)
        seen = rows[0]["begun"] if rows else ""
        if seen and said == {name: rows[0][name] for name in said}:
            here = deployment.objects.parts(key, seen)
            if here is not None:
                return seen, here
            if isinstance(_stands(deployment, key, file, parts), bool):
                return seen, dict(enumerate(declared(file.bytes, parts), 1))
        kept = {"key": key, "attempt": attempt, "now": now_ms} | said
        if seen and (rows[0]["bytes"], rows[0]["sha256"]) == (file.bytes, UNKNOWN):
            # Its upload began while it was written: now it is known what the parts must be, those that have arrived too.
            deployment.store.apply(write("keep_upload", begun=seen, seen=seen, **kept))
        elif upload := _begin(deployment, kept, seen):
            return upload, {}
    raise Unreachable(f"the upload of {file.path} was begun {TRIES_MAX} times at once")


def _begin(deployment: Deployment, kept: dict[str, Any], seen: str) -> str:
    """Begin an upload, instead of the one that was `seen`. Return "" if another request began one in the same moment."""
    # If this server dies before it records the upload that it began, a sweep knows which key to look under.
    deployment.store.apply(write("keep_upload", begun="", seen=seen, **kept))
    if seen:
        deployment.objects.abort(kept["key"], seen)
    upload = deployment.objects.begin(kept["key"])
    if deployment.store.apply(guard("keep_upload", begun=upload, seen="", **kept)):
        return upload
    deployment.objects.abort(kept["key"], upload)
    return ""
