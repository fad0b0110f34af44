"""Show the files of a version: where each is downloaded, what a picture shows, and its small copy."""

from gangline.core.datasets.names import DatasetReference
from gangline.core.datasets.views import DatasetFileView
from gangline.core.errors import NotFound
from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.ports.store import Row
from gangline.service.datasets.versions import find_version
from gangline.service.deployment import Deployment


def files_of_version(
    deployment: Deployment, project: str, reference: DatasetReference, after: str, limit: int, now_ms: int
) -> list[DatasetFileView]:
    """Return files of a version in the order of their paths, after one of them. Raise `NotFound`."""
    version = find_version(deployment, project, reference)
    rows = deployment.store.load("dataset_files", version=version["id"], after=after, limit=limit)
    return [_view(deployment, project, row, now_ms) for row in rows]


def thumbnail(deployment: Deployment, project: str, reference: DatasetReference, sha256: str) -> bytes:
    """Return a JPEG of at most 256 pixels of a picture of a version. Raise `NotFound` if it has no such picture, or it was not checked."""
    version = find_version(deployment, project, reference)
    rows = deployment.store.load("file_of_version", project=project, version=version["id"], sha256=sha256)
    missing = NotFound(
        f"there is no thumbnail of {sha256} in {reference}", hint="a picture has one once it was checked"
    )
    if not rows or not rows[0]["thumbnail_bytes"]:
        raise missing
    try:
        return deployment.objects.read(thumbnail_key(project, sha256))
    except NotFound:  # somebody deleted it from the store
        raise missing from None


def _view(deployment: Deployment, project: str, row: Row, now_ms: int) -> DatasetFileView:
    signed = deployment.objects.sign_get(
        blob_key(project, row["sha256"]), now_ms=now_ms, seconds=deployment.policy.url_s
    )
    seen = {name: row[name] for name in ("format", "width", "height", "sharpness") if row[name] is not None}
    about = {name: row[name] for name in ("path", "bytes", "sha256", "role")}
    return DatasetFileView(**about, **seen, url=signed.url)
