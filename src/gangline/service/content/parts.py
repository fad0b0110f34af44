"""How a file comes into the object store, and whether it is there: what follows from the `objects` port alone."""

from collections.abc import Mapping, Sequence

from gangline.core.errors import Damaged
from gangline.core.files import File, Grant, attestations, part_lengths
from gangline.ports.objects import Objects, UploadPart


def single_upload(objects: Objects, key: str, file: File, now_ms: int, seconds: float) -> Grant:
    """One request that brings all of it."""
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
    """A request for each of the `parts` that is not `here`."""
    return Grant(
        parts=tuple(
            None
            if number in here and here[number].is_as(part)
            else objects.sign_part(key, upload, number, part, now_ms=now_ms, seconds=seconds)
            for number, part in enumerate(parts, 1)
        )
    )


def declared(size: int, parts: Sequence[str]) -> list[UploadPart]:
    """The parts of a file of this length, which have these SHA-256s."""
    return [UploadPart(length, sha256) for length, sha256 in zip(part_lengths(size), parts, strict=True)]


def attested(objects: Objects, key: str, file: File, parts: tuple[str, ...]) -> bool:
    """Whether the store attests `file`, which lies under `key`. Raises `Damaged` where it does not lie there."""
    found = objects.stat(key)
    if found is None:
        raise Damaged(f"{file.path} is not in the object store")
    if found.bytes != file.bytes or found.sha256 not in (None, *attestations(file.sha256, parts)):
        raise Damaged(f"{file.path} in the object store is not what the manifest says")
    return found.sha256 is not None
