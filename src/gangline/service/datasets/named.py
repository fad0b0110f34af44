"""Jobs that name a data set: its files are written into the spec, which then means the same for ever."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangline.core.datasets.names import is_dataset_reference, parse_dataset_reference
from gangline.core.datasets.roles import photo_of_mask
from gangline.core.display import printable
from gangline.core.errors import BadInput
from gangline.ports.store import Row, Write, guard, write
from gangline.service.datasets.versions import ready_version
from gangline.service.deployment import Deployment

SHOWN_MAX = 100
CAPTION, ONLY = "caption", "only"
COME_WITH_IT = ("captions", "masks", "subjects")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedVersion:
    """The version that the photos of a job are. `resolved`: this request named it, so it must still be there when the job is added."""

    name: str
    number: int
    digest: str
    version: str
    resolved: bool = True

    def __str__(self) -> str:
        return f"{self.name}@{self.number}"


def with_dataset_named(
    deployment: Deployment, project: str, value: dict[str, Any]
) -> tuple[dict[str, Any], NamedVersion | None]:
    """Return the spec with the files of the data set that `photos` names, and which version that is; None if it names none.

    Captions and masks come with the photos. `held_out` may name photos of it by their paths, as may `only` for a job that writes captions,
    which then leaves out the others. Raise `BadInput` or `NotFound`.
    """
    photos = value.get("photos")
    if not isinstance(photos, str) or not is_dataset_reference(photos):
        return value, None
    given = next((field for field in COME_WITH_IT if value.get(field)), None)
    if given:
        raise BadInput(
            f"{given}: photos of a data set have those that belong to it",
            hint=f"leave {given} out, or upload the photos",
        )
    row = ready_version(deployment, project, parse_dataset_reference(photos))
    named = NamedVersion(
        name=parse_dataset_reference(photos).name, number=row["number"], digest=row["digest"], version=row["id"]
    )
    files = deployment.store.load("dataset_files", version=row["id"], after="", limit=10**9)
    if value.get("kind") == CAPTION:  # it writes captions, and reads none
        return _only(value, files, str(named)), named
    return value | _fields(value, files, str(named)), named


def _only(value: dict[str, Any], files: list[Row], shown: str) -> dict[str, Any]:
    """Return the spec of a job that writes captions: for the photos that `only` names, or for all."""
    photos = {row["path"]: _file(row, row["path"]) for row in files if row["role"] == "photo"}
    wanted = value.get(ONLY) or list(photos)
    if not isinstance(wanted, list) or not all(isinstance(path, str) for path in wanted):
        raise BadInput(f"{ONLY}: it is not a list of paths", hint=f"name photos of {shown} by their paths in it")
    _check_photos(ONLY, wanted, photos, shown)
    beside = {name: given for name, given in value.items() if name != ONLY}
    return beside | {"photos": [photos[path] for path in dict.fromkeys(wanted)]}


def _check_photos(field: str, wanted: list[str], photos: Mapping[str, object], shown: str) -> None:
    missing = next((path for path in wanted if path not in photos), None)
    if missing is not None:
        raise BadInput(f"{field}: {printable(missing)[:SHOWN_MAX]} is not a photo of {shown}")


def _fields(value: dict[str, Any], files: list[Row], shown: str) -> dict[str, Any]:
    pictures = {row["path"]: _file(row, row["path"]) for row in files if row["role"] == "photo"}
    fields: dict[str, Any] = {"captions": [_file(row, row["path"]) for row in files if row["role"] == "caption"]}
    masks = [_file(row, photo_of_mask(row["path"])) for row in files if row["role"] == "mask"]
    if masks and value.get("mask", "files") == "files":
        fields |= {"masks": masks, "mask": "files"}
    wanted = value.get("held_out") or []
    if isinstance(wanted, list) and wanted and all(isinstance(path, str) for path in wanted):
        _check_photos("held_out", wanted, pictures, shown)
        fields["held_out"] = [pictures.pop(path) for path in dict.fromkeys(wanted)]
    return fields | {"photos": list(pictures.values())}


def _file(row: Row, path: str) -> dict[str, Any]:
    return {"path": path, "bytes": row["bytes"], "sha256": row["sha256"]}


def version_of_job(deployment: Deployment, job: str) -> NamedVersion | None:
    """Return the version that a job named; None if it named none. It may have been removed since."""
    rows = deployment.store.load("dataset_of_job", job=job)
    return NamedVersion(**rows[0], resolved=False) if rows else None


def naming_version(named: NamedVersion | None, now_ms: int) -> list[Write]:
    """Return the guard of jobs that name a version: where it was just resolved, it fails if the version is being removed."""
    return [guard("name_dataset_version", id=named.version, now=now_ms)] if named and named.resolved else []


def remembering_version(job: str, project: str, named: NamedVersion | None) -> list[Write]:
    """Return the write that keeps which version a job named."""
    if named is None:
        return []
    which = {"name": named.name, "number": named.number, "digest": named.digest, "version": named.version}
    return [write("add_job_dataset", job=job, project=project, **which)]
