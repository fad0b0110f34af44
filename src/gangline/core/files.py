"""Describe files by their content (path, length, SHA-256), and the parts in which they are uploaded."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from errno import EEXIST, EISDIR, ENAMETOOLONG, ENOTDIR
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen, Predicate

from gangline.core.canonical import digest
from gangline.core.parsing import Checked

FILE_BYTES_MAX = 64 * 2**30
PART_BYTES, PARTS_MAX = 16 * 2**20, 10_000
"""Files longer than this are uploaded in parts of this length; the last part has the remaining bytes."""

UNPLACEABLE = frozenset({EEXIST, EISDIR, ENAMETOOLONG, ENOTDIR})
"""Errors that occur on every machine: a name is too long, or names a file and a folder at once. A retry elsewhere does not help."""

FORBIDDEN = re.compile(r'[\\:*?"<>|\x00-\x1f\x7f\ud800-\udfff]')
NAME_BYTES_MAX = 255
"""The maximum length of a file's name within its folder: file systems count bytes, not characters."""
SHA256 = re.compile("[0-9a-f]{64}")


def is_safe_path(path: str) -> bool:
    """Return whether `path` is relative and stays below the folder that it is put in, on any operating system."""
    parts = path.split("/")
    stays = {"", ".", ".."}.isdisjoint(parts)
    return stays and not FORBIDDEN.search(path) and all(len(part.encode()) <= NAME_BYTES_MAX for part in parts)


def last_bytes(name: str, bytes_max: int) -> str:
    """Return the end of a name, at most `bytes_max` bytes, without cutting a character."""
    return name.encode()[-bytes_max:].decode(errors="ignore")


def partial_name(name: str, download: str = "") -> str:
    """Return the name that a file has on disk while it is being downloaded. Downloads that may overlap differ by `download`."""
    ending = f".{download}.partial" if download else ".partial"
    return f".{last_bytes(name, NAME_BYTES_MAX - 1 - len(ending))}{ending}"


def absolute_url(server: str, url: str) -> str:
    """Return where a signed URL leads: one without a host is below the server's address, which may have a path of its own."""
    return server.rstrip("/") + url if url.startswith("/") else url


def is_sha256(text: str) -> bool:
    return SHA256.fullmatch(text) is not None


SafePath = Annotated[str, MinLen(1), MaxLen(1024), Predicate(is_safe_path)]
Sha256 = Annotated[str, Predicate(is_sha256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file by its content. `path` is relative, with `/`; `bytes` is its length; `sha256` is in lower-case hexadecimal."""

    path: SafePath
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]
    sha256: Sha256


UNKNOWN_SHA256 = "0" * 64
"""What stands for the hash of a file that is still being written."""
STAND_IN = File(path="photo", bytes=0, sha256=UNKNOWN_SHA256)
"""A placeholder for a file that is not known yet, so that the rest of a spec can be checked."""


def both_file_and_folder(paths: Iterable[str]) -> str:
    """Return why no folder can hold all of these paths: one of them would be a file and also the folder of another. Empty if one can."""
    names = set(paths)
    for path in sorted(names):
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in names:
                return f"{above} is a file, so it cannot also be the folder of {path}"
    return ""


IN_ONE_FOLDER = Checked(lambda files: both_file_and_folder(file.path for file in files))
Files = Annotated[tuple[File, ...], IN_ONE_FOLDER]
"""Files that one folder can hold together; others are refused when they are parsed."""


def digest_of_files(files: tuple[File, ...]) -> str:
    """Return one hash for the names and contents of a folder; the order of `files` does not matter."""
    return digest(sorted((file.path, file.sha256) for file in files))


def part_ranges(size: int) -> tuple[range, ...]:
    """Return the byte range of each part of a file of `size` bytes. An empty file has one part, too."""
    return tuple(range(first, min(size, first + PART_BYTES)) for first in range(0, size or 1, PART_BYTES))


def part_lengths(size: int) -> tuple[int, ...]:
    return tuple(len(part) for part in part_ranges(size))


def check_parts(size: int, parts: tuple[str, ...]) -> None:
    """Raise `ValueError` unless `parts` has a hash for each part of a file of `size` bytes, and none for a file of one part."""
    wanted = len(part_lengths(size)) if size > PART_BYTES else 0
    if len(parts) != wanted:
        raise ValueError(f"{size} bytes are uploaded in {wanted} parts, not {len(parts)}")


def attestations(sha256: str, parts: tuple[str, ...]) -> set[str]:
    """Return the checksums by which an object store may report these bytes.

    One is their SHA-256; the other is S3's checksum of a multipart upload: the SHA-256 of the parts' SHA-256s, and the number of parts.
    """
    joined = b"".join(bytes.fromhex(part) for part in parts or (sha256,))
    return {sha256, f"{hashlib.sha256(joined).hexdigest()}-{len(parts) or 1}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A presigned request that the object store accepts until it expires, if it is sent with exactly these headers."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The requests that upload a file: one for each part (a file of one part has one), None for a part that the store already has.

    A PUT that is answered with 412 found bytes already there; whether they are the right ones is checked when the file is used.
    """

    parts: tuple[Signed | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Parts of a file that is still being written.

    The file will have `bytes`; `parts` has the SHA-256 of parts of it that are complete, in order, from number `first` (from 0) on.
    """

    path: SafePath
    bytes: Annotated[int, Gt(PART_BYTES), Le(FILE_BYTES_MAX)]
    first: Annotated[int, Ge(0), Lt(PARTS_MAX)] = 0
    parts: Annotated[tuple[Sha256, ...], MinLen(1), MaxLen(PARTS_MAX)]

    def __post_init__(self) -> None:
        if self.first + len(self.parts) > (count := len(part_lengths(self.bytes))):
            raise ValueError(f"{self.bytes} bytes have {count} parts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """Files of the checkpoint of `step` whose upload begins while they are written."""

    step: Annotated[int, Ge(0), Le(10**12)]
    files: Annotated[tuple[Beginning, ...], IN_ONE_FOLDER, MinLen(1), MaxLen(1000)]
