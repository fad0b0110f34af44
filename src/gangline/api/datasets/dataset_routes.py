"""Routes for a project's data sets of photos: viewers read, members add and remove."""

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le, MaxLen, MinLen
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, StrictInt

from gangline.api.answers.images import JPEG, lasting_jpeg
from gangline.api.answers.paging import PART_MAX, PartAfter, PartLimit, as_part, part_in_order
from gangline.api.lanes import UserRoute
from gangline.api.who import NUMBER_MAX, MemberOf, Now, ThisDeployment, ViewerOf
from gangline.core.datasets.manifest import ManifestReference
from gangline.core.datasets.names import DatasetReference
from gangline.core.datasets.views import (
    DatasetFileView,
    DatasetRemovalView,
    DatasetVersionView,
    DatasetView,
    MissingBlobsView,
)
from gangline.core.errors import BadInput
from gangline.core.files import FILE_BYTES_MAX, Files, SafePath, Sha256, check_parts, is_safe_path
from gangline.ports.server import Upload
from gangline.service.content.batches import missing_blobs
from gangline.service.datasets import files, removal, versions

router = APIRouter(prefix="/v1", tags=["datasets"], route_class=UserRoute)
BLOBS_MAX = 500
"""Files of one request: their grants make an answer of some 200 kB."""
CHANGES_MAX = 10_000
SHOWN_MAX = 2000
VersionNumber = Annotated[int, Path(), Ge(1), Le(NUMBER_MAX)]
Below = Annotated[int, Query(ge=1, le=NUMBER_MAX, description="List versions with numbers below this one.")]
ShownVersions = Annotated[
    tuple[Annotated[int, Ge(1), Le(NUMBER_MAX)], ...],
    Query(alias="versions", max_length=SHOWN_MAX, description="Remove nothing if there are other versions than these."),
]
FilesLimit = Annotated[int, Query(ge=1, le=PART_MAX, description="List at most this many.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBlob:
    """A file to upload, with the SHA-256 of each part of 16 MiB if it has more than one."""

    sha256: Sha256
    bytes: Annotated[int, Ge(0), Le(FILE_BYTES_MAX)]
    parts: Annotated[tuple[Sha256, ...], MaxLen(10_000)] = ()

    def __post_init__(self) -> None:
        check_parts(self.bytes, self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBlobs:
    """Files to upload together."""

    files: Annotated[tuple[WantedBlob, ...], MinLen(1), MaxLen(BLOBS_MAX)]


@router.post("/blobs/missing")
def find_missing_blobs(
    deployment: ThisDeployment, now: Now, project: MemberOf, wanted: WantedBlobs
) -> MissingBlobsView:
    """Check which of these files the project lacks. The answer says how to upload each; repeat the request after the uploads.

    The other ones are recorded, also those that arrived after an earlier request whose sender is gone.
    """
    asked = [Upload(path=each.sha256, bytes=each.bytes, sha256=each.sha256, parts=each.parts) for each in wanted.files]
    return missing_blobs(deployment, project, asked, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedVersion:
    """The files of a new version: all of them (`files`); an uploaded JSON list of all of them (`manifest`); or those of an earlier version
    (`from`) without the paths in `remove` and with the files in `put`, added or in place of those that have their paths."""

    files: Files = ()
    manifest: ManifestReference | None = None
    changes: Annotated[Annotated[StrictInt, Ge(1), Le(NUMBER_MAX)] | None, Field(alias="from")] = None
    put: Annotated[Files, MaxLen(CHANGES_MAX)] = ()
    remove: Annotated[tuple[SafePath, ...], MaxLen(CHANGES_MAX)] = field(default=())


@router.post("/datasets/{dataset}/versions", status_code=201)
def add_dataset_version(
    deployment: ThisDeployment, now: Now, project: MemberOf, dataset: str, wanted: WantedVersion
) -> DatasetVersionView:
    """Add a version of a data set. Its files must have been uploaded; it is checked in the background.

    The same files as those of the newest version are that version, and `made` is false. So a request can be repeated. A version that was
    refused is checked again then.
    """
    ways = sum((bool(wanted.files), wanted.manifest is not None, wanted.changes is not None))
    if ways != 1 or (wanted.changes is None and (wanted.put or wanted.remove)):
        raise BadInput(
            "a version has either `files`, or a `manifest`, or is made `from` another one",
            hint="`put` and `remove` go with `from`",
        )
    if wanted.changes is not None:
        old = DatasetReference(name=dataset, number=wanted.changes)
        return versions.change_version(deployment, project, old, wanted.put, wanted.remove, now)
    listed = versions.uploaded_manifest(deployment, project, wanted.manifest) if wanted.manifest else wanted.files
    return versions.add_version(deployment, project, dataset, listed, now)


@router.get("/datasets")
def list_datasets(
    request: Request, deployment: ThisDeployment, project: ViewerOf, after: PartAfter = None, limit: PartLimit = None
) -> list[DatasetView]:
    """List the project's data sets, each with its newest version."""
    found = part_in_order(versions.datasets_of(deployment, project), after, lambda found: found.name)
    return as_part(request, found, limit, lambda found: found.name)  # type: ignore[return-value]


@router.get("/datasets/{dataset}")
def list_dataset_versions(
    deployment: ThisDeployment,
    project: ViewerOf,
    dataset: str,
    below: Below = NUMBER_MAX,
    limit: FilesLimit = PART_MAX,
) -> list[DatasetVersionView]:
    """List the versions of a data set, newest first: those with numbers below `below`, at most `limit`. What their checks found is in the
    answer about one version."""
    return versions.versions_of(deployment, project, dataset, below=below, limit=limit)


@router.get("/datasets/{dataset}/removal")
def show_dataset_removal(deployment: ThisDeployment, project: ViewerOf, dataset: str) -> DatasetRemovalView:
    """Show what would be removed with a data set. 422 while a job that names one of its versions has not ended."""
    return removal.what_dataset_removal_does(deployment, project, DatasetReference(name=dataset))


@router.delete("/datasets/{dataset}")
def remove_dataset(
    deployment: ThisDeployment, now: Now, project: MemberOf, dataset: str, shown: ShownVersions = ()
) -> DatasetRemovalView:
    """Remove a data set with all its versions. Files that nothing else uses are deleted in the background. 422 as its removal shows, or if
    it has other versions than those in `versions`."""
    return removal.remove_versions(deployment, project, DatasetReference(name=dataset), now, shown=shown)


@router.get("/datasets/{dataset}/{version}")
def show_dataset_version(
    deployment: ThisDeployment, project: ViewerOf, dataset: str, version: VersionNumber
) -> DatasetVersionView:
    """Show a version of a data set: its counts, the state of its check, and what that found."""
    return versions.show_version(deployment, project, DatasetReference(name=dataset, number=version))


@router.get("/datasets/{dataset}/{version}/files")
def list_dataset_files(
    deployment: ThisDeployment,
    now: Now,
    project: ViewerOf,
    dataset: str,
    version: VersionNumber,
    after: PartAfter = None,
    limit: FilesLimit = PART_MAX,
) -> list[DatasetFileView]:
    """List files of a version in the order of their paths, each with a signed URL: those after the path `after`, at most `limit`."""
    reference = DatasetReference(name=dataset, number=version)
    if after and not is_safe_path(after):
        raise BadInput("after: it is the path of no file", hint="begin without `after`")
    return files.files_of_version(deployment, project, reference, after or "", limit, now)


@router.get("/datasets/{dataset}/{version}/thumbnails/{sha256}", response_class=Response, responses=JPEG)
def show_thumbnail(
    deployment: ThisDeployment, project: ViewerOf, dataset: str, version: VersionNumber, sha256: Sha256
) -> Response:
    """Return a small copy of a picture of a version: a JPEG of at most 256 pixels. 404 before it was checked."""
    content = files.thumbnail(deployment, project, DatasetReference(name=dataset, number=version), sha256)
    return lasting_jpeg(content)


@router.get("/datasets/{dataset}/{version}/removal")
def show_version_removal(
    deployment: ThisDeployment, project: ViewerOf, dataset: str, version: VersionNumber
) -> DatasetRemovalView:
    """Show what would be removed with a version. 422 while a job that names it has not ended."""
    return removal.what_dataset_removal_does(deployment, project, DatasetReference(name=dataset, number=version))


@router.delete("/datasets/{dataset}/{version}")
def remove_dataset_version(
    deployment: ThisDeployment, now: Now, project: MemberOf, dataset: str, version: VersionNumber
) -> DatasetRemovalView:
    """Remove a version. Files that nothing else uses are deleted in the background. 422 as its removal shows."""
    return removal.remove_versions(deployment, project, DatasetReference(name=dataset, number=version), now)
