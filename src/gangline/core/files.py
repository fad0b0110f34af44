"""Files by content: the name a job gives to some bytes, how many there are, and their SHA-256."""

import re
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, MaxLen, MinLen, Predicate

from gangline.core.canonical import digest

FILE_BYTES_MAX = 64 * 2**30
FORBIDDEN = re.compile(r'[\\:*?"<>|\x00-\x1f\x7f\ud800-\udfff]')
SHA256 = re.compile("[0-9a-f]{64}")


def is_safe_path(path: str) -> bool:
    """Whether `path` stays below the folder that it is put in, on any system."""
    parts = path.split("/")
    stays = {"", ".", ".."}.isdisjoint(parts)
    return stays and not FORBIDDEN.search(path) and all(len(part.encode()) <= 255 for part in parts)


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


def digest_of_files(files: tuple[File, ...]) -> str:
    """One hash for a folder: its names and their contents, in any order."""
    return digest(sorted((file.path, file.sha256) for file in files))
