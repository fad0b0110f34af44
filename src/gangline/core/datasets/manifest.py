"""A version of a data set is its manifest: paths, lengths and SHA-256s. Equal manifests are one version."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le, MaxLen

from gangline.core.canonical import digest
from gangline.core.datasets.roles import FileRole, role_of
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.core.files import Files, SafePath, Sha256, both_file_and_folder
from gangline.core.parsing import parse_as, to_json

FILES_MAX = 100_000
FILE_BYTES_MAX = 200_000_000
BYTES_MAX = 2_000_000_000_000
MANIFEST_BYTES_MAX = 64_000_000
"""A manifest of `FILES_MAX` files with paths of some 500 characters."""
SHOWN_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReference:
    """An uploaded file that is a list of files in JSON: a request that had them itself would be too large."""

    sha256: Sha256
    bytes: Annotated[int, Ge(2), Le(MANIFEST_BYTES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    files: Annotated[Files, MaxLen(FILES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFile:
    """A file of a version, and what it is for."""

    path: str
    sha256: str
    bytes: int
    role: FileRole


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionManifest:
    """The files of a version in the order of their paths."""

    files: tuple[DatasetFile, ...]

    @property
    def digest(self) -> str:
        """Return the version's id: a hash of all that its files are."""
        return digest([[file.path, file.sha256, file.bytes] for file in self.files])

    @property
    def bytes(self) -> int:
        """Return the length of all files; each path counts, also if two have the same content."""
        return sum(file.bytes for file in self.files)

    def count(self, role: FileRole) -> int:
        return sum(file.role == role for file in self.files)


def manifest_json(files: Iterable[tuple[str, str, int]]) -> str:
    """Return the JSON of a list of files (path, SHA-256, length in bytes), as a `ManifestReference` refers to it."""
    return json.dumps([{"path": path, "sha256": sha256, "bytes": size} for path, sha256, size in sorted(files)])


def parse_manifest_files(content: bytes) -> Files:
    """Return the files of an uploaded manifest. Raise `BadInput` or `InvalidSpec` if it is not a list of files."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise BadInput(
            "manifest: the uploaded file is not JSON", hint="upload a list of path, sha256 and bytes"
        ) from None
    if not isinstance(value, list):
        raise BadInput("manifest: the uploaded file is not a list", hint="upload a list of path, sha256 and bytes")
    listed: _Listed = parse_as(_Listed, {"files": value})
    return listed.files


def make_manifest(files: Files) -> VersionManifest:
    """Return the manifest of these files. Raise `BadInput` if no data set may have them."""
    if len(files) > FILES_MAX:
        raise BadInput(f"{len(files):,} files are more than {FILES_MAX:,}", hint="make several data sets of them")
    found = list[DatasetFile]()
    for file in sorted(files, key=lambda file: file.path):
        role, shown = role_of(file.path), printable(file.path)[:SHOWN_MAX]
        if role is None:
            raise BadInput(
                f"{shown} is not a photo, caption or mask",
                hint="photos and captions are at the top or in folders like `10_sks dog`, masks below masks/; leave other files out",
            )
        if file.bytes > FILE_BYTES_MAX:
            most = FILE_BYTES_MAX // 1_000_000
            raise BadInput(f"{shown} has {file.bytes / 1e6:,.0f} MB, more than {most} MB", hint="make it smaller")
        if found and found[-1].path == file.path:
            raise BadInput(f"{shown} is listed twice", hint="list each file once")
        found.append(DatasetFile(path=file.path, sha256=file.sha256, bytes=file.bytes, role=role))
    if clash := both_file_and_folder(file.path for file in found):
        raise BadInput(printable(clash), hint="rename one of them")
    made = VersionManifest(files=tuple(found))
    if not made.count("photo"):
        raise BadInput("there are no photos", hint="add at least one photo")
    if made.bytes > BYTES_MAX:
        raise BadInput(
            f"{made.bytes / 1e9:,.0f} GB are more than {BYTES_MAX / 1e9:,.0f} GB", hint="make several data sets"
        )
    return made


def changed_files(old: Mapping[str, Any], put: Files, remove: Sequence[SafePath]) -> dict[str, Any]:
    """Return the files of a new version by their paths: those of an old one without `remove`, and with `put` added or in their place.

    Raise `BadInput` for a path to remove that the old version does not have.
    """
    missing = next((path for path in remove if path not in old), None)
    if missing is not None:
        raise BadInput(f"{printable(missing)[:SHOWN_MAX]} cannot be removed: it is not in that version")
    kept = {path: file for path, file in old.items() if path not in set(remove)}
    return kept | {file.path: to_json(file) for file in put}
