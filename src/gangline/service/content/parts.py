"""Upload files to the object store, in one request or in parts, and check that they are there. Needs only the `objects` port."""

from collections.abc import Mapping, Sequence

from gangline.core.errors import Damaged
from gangline.core.files import File, Grant, attestations, part_lengths
from gangline.ports.objects import Objects, UploadPart


def single_upload(objects: Objects, key: str, file: File, now_ms: int, seconds: float) -> Grant:
    """Return one request that uploads the complete file."""
    return Grant(parts=(objects.sign_put(key, bytes=file.bytes, sha256=file.sha256, now_ms=now_ms, seconds=seconds),))


def in_parts(
    objects: Objects,
    key: str,
    upload: str,
    here: Mapping[int, UploadPart],
    parts: Sequence[UploadPart],
    now_ms: int,
    seconds: float,
) -> Grant:
    """Return a request for each of the `parts` that is not `here`."""
    return Grant(
        parts=tuple(
            None
            if number in here and here[number].is_as(part)
            else objects.sign_part(key, upload, number, part, now_ms=now_ms, seconds=seconds)
            for number, part in enumerate(parts, 1)
        )
    )


def declared(size: int, parts: Sequence[str]) -> list[UploadPart]:
    """Return the parts, with these SHA-256s, of a file of this length."""
    return [UploadPart(length, sha256) for length, sha256 in zip(part_lengths(size), parts, strict=True)]


def attested(objects: Objects, key: str, file: File, parts: tuple[str, ...]) -> bool:
    """Return whether the store attests the checksum of `file` under `key`. Raise `Damaged` if the file is missing or another one."""
    found = objects.stat(key)
    if found is None:
        raise Damaged(f"{file.path} is not in the object store")
    if found.bytes != file.bytes or found.sha256 not in (None, *attestations(file.sha256, parts)):
        raise Damaged(f"{file.path} in the object store does not match the manifest")
    return found.sha256 is not None
