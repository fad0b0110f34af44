"""Files by content: the name a job gives to some bytes, how many there are, their SHA-256; and the parts that they travel in."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from errno import EEXIST, EISDIR, ENAMETOOLONG, ENOTDIR
from typing import Annotated

from annotated_types import Ge, Le, MaxLen, MinLen, Predicate

from gangline.core.canonical import digest
from gangline.core.parsing import Checked

FILE_BYTES_MAX = 64 * 2**30
PART_BYTES = 16 * 2**20
"""Files longer than this go up in parts of this length; the last one is what is left."""

UNPLACEABLE = frozenset({EEXIST, EISDIR, ENAMETOOLONG, ENOTDIR})
"""Errors that the disk of any machine gives: a name is too long, or that of a file and of a folder at once."""

FORBIDDEN = re.compile(r'[\\:*?"<>|\x00-\x1f\x7f\ud800-\udfff]')
NAME_BYTES_MAX = 255
"""Of a file in its folder: disks count bytes, not characters."""
SHA256 = re.compile("[0-9a-f]{64}")


def is_safe_path(path: str) -> bool:
    """Whether `path` stays below the folder that it is put in, on any system."""
    parts = path.split("/")
    stays = {"", ".", ".."}.isdisjoint(parts)
    return stays and not FORBIDDEN.search(path) and all(len(part.encode()) <= NAME_BYTES_MAX for part in parts)


def last_bytes(name: str, bytes_max: int) -> str:
    """Return the end of a name, from a whole character on."""
    return name.encode()[-bytes_max:].decode(errors="ignore")


def partial_name(name: str) -> str:
    """Return what a file of this name is called while it is still coming."""
    return f".{last_bytes(name, NAME_BYTES_MAX - len('..partial'))}.partial"


def is_sha256(text: str) -> bool:
    return SHA256.fullmatch(text) is not None


SafePath = Annotated[str, MinLen(1), MaxLen(1024), Predicate(is_safe_path)]
Sha256 = Annotated[str, Predicate(is_sha256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """`path` is relative, with `/`; `bytes` is a length; `sha256` is in lower-case hexadecimal."""

    path: SafePath
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]
    sha256: Sha256


STAND_IN = File(path="photo", bytes=0, sha256="0" * 64)
"""In the place of a file that is not known yet, where all else of a spec is checked."""


def both_file_and_folder(paths: Iterable[str]) -> str:
    """Return why no folder can hold all of these: one would be a file and, for another, a folder. Empty where one can."""
    names = set(paths)
    for path in sorted(names):
        above = path
        while "/" in above:
            above = above.rpartition("/")[0]
            if above in names:
                return f"{above} is a file, so that it cannot be the folder of {path}, too"
    return ""


IN_ONE_FOLDER = Checked(lambda files: both_file_and_folder(file.path for file in files))
Files = Annotated[tuple[File, ...], IN_ONE_FOLDER]
"""What no folder can hold is refused when it is read."""


def digest_of_files(files: tuple[File, ...]) -> str:
    """One hash for a folder: its names and their contents, in any order."""
    return digest(sorted((file.path, file.sha256) for file in files))


def part_ranges(size: int) -> tuple[range, ...]:
    """Where the parts of a file of `size` bytes lie in it. An empty file has one, too."""
    return tuple(range(first, min(size, first + PART_BYTES)) for first in range(0, size or 1, PART_BYTES))


def part_lengths(size: int) -> tuple[int, ...]:
    return tuple(len(part) for part in part_ranges(size))


def check_parts(size: int, parts: tuple[str, ...]) -> None:
    """Raises `ValueError` unless there are as many as a file of `size` bytes goes up in; none for one of a single part."""
    wanted = len(part_lengths(size)) if size > PART_BYTES else 0
    if len(parts) != wanted:
        raise ValueError(f"{size} bytes go up in {wanted} parts, not {len(parts)}")


def attestations(sha256: str, parts: tuple[str, ...]) -> set[str]:
    """What an object store that checks them says of these bytes: their SHA-256, or that of their parts' SHA-256s and how many."""
    joined = b"".join(bytes.fromhex(part) for part in parts or (sha256,))
    return {sha256, f"{hashlib.sha256(joined).hexdigest()}-{len(parts) or 1}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A request that the object store accepts until it expires: to be sent with exactly these headers."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """How a file goes up: one request for each part (a file of one part has one), None where the store has the part already.

    A PUT that is answered 412 met bytes that were there before it; whether they are the right ones is said when the file is used.
    """

    parts: tuple[Signed | None, ...]
