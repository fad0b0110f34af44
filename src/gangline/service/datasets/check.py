"""Check the versions of data sets in the background, some pictures in each step: what they show, and whether they can be trained on.

One server at a time takes a step of a version, and the version whose last step is longest ago comes next: a large one delays no small one.
What a picture shows is recorded once for its content, so that a version which differs in some files is checked at once.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.datasets.findings import SeenPicture, judge_version
from gangline.core.datasets.roles import photo_of_mask
from gangline.core.errors import NotFound
from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.core.parsing import to_json
from gangline.ports.places.inspector import InspectedPicture, InspectedTexts, PhotoInspector
from gangline.ports.store import Row, guard, write
from gangline.service.deployment import Deployment

log = logging.getLogger("gangline.datasets")

TURN_S = 3600.0
"""Another server takes over a step that was begun longer ago. The program that decodes has 900 s, and up to 64 pictures one by one."""
PICTURES_AT_ONCE = 64
BYTES_AT_ONCE = 400_000_000
"""What the pictures of a step take on the server's disk; one picture may take half of it."""
EVERYTHING = 10**9


def check_datasets(deployment: Deployment) -> Iterator[None]:
    """Check all versions that wait for it. This takes long, so it yields after each step: a caller may stop there."""
    inspector = deployment.inspector
    if inspector is None:
        return
    while version := _take(deployment):
        contents = deployment.store.load("photos_to_inspect", version=version["id"], limit=PICTURES_AT_ONCE)
        if contents:
            _inspect(deployment, inspector, version, contents)
        else:
            _judge(deployment, inspector, version)
        yield


def _take(deployment: Deployment) -> Row | None:
    now_ms, server = deployment.store.now_ms(), deployment.server
    for found in deployment.store.load("versions_to_check", server=server, now=now_ms):
        turn = {"server": server, "now": now_ms, "turn_ends_ms": now_ms + round(TURN_S * 1000)}
        if deployment.store.apply(guard("take_version_to_check", id=found["id"], **turn)):
            return found
    return None


def _inspect(deployment: Deployment, inspector: PhotoInspector, version: Row, contents: Sequence[Row]) -> None:
    """Look at some pictures, and record what they are, unless the version was removed meanwhile."""
    project = version["project"]
    chosen = _within(contents)
    reads = {sha256: partial(deployment.objects.chunks, blob_key(project, sha256)) for sha256 in chosen}
    found = inspector.pictures(reads)
    for sha256, picture in found.items():
        if picture.thumbnail:
            _keep_thumbnail(deployment, thumbnail_key(project, sha256), picture.thumbnail)
    now_ms = deployment.store.now_ms()
    kept = deployment.store.apply(
        guard("leave_version_to_check", id=version["id"], server=deployment.server, now=now_ms),
        *(write("add_photo", project=project, sha256=sha256, **_facts(each)) for sha256, each in sorted(found.items())),
    )
    if not kept:
        _forget_thumbnails(deployment, project, list(found))


def _within(contents: Sequence[Row]) -> list[str]:
    """Return the first of these that have room together, at least one."""
    chosen, left = list[str](), BYTES_AT_ONCE
    for row in contents:
        left -= row["bytes"]
        if chosen and left < 0:
            break
        chosen.append(row["sha256"])
    return chosen


def _facts(picture: InspectedPicture) -> dict[str, Any]:
    names = ("because", "format", "width", "height", "sharpness", "likeness")
    return {name: getattr(picture, name) for name in names} | {"thumbnail_bytes": len(picture.thumbnail)}


def _keep_thumbnail(deployment: Deployment, key: str, content: bytes) -> None:
    """Write a thumbnail; one that a check before this one left there stays, though another decoder may have made it."""
    if deployment.objects.stat(key) is None:
        deployment.objects.write(key, content)


def _forget_thumbnails(deployment: Deployment, project: str, contents: Sequence[str]) -> None:
    """Delete the thumbnails of a version that was removed while it was checked, except those that another version has."""
    unheld = [
        sha256 for sha256 in contents if not deployment.store.load("versions_with", project=project, sha256=sha256)
    ]
    deployment.objects.delete([thumbnail_key(project, sha256) for sha256 in unheld])


def _judge(deployment: Deployment, inspector: PhotoInspector, version: Row) -> None:
    rows = deployment.store.load("dataset_files", version=version["id"], after="", limit=EVERYTHING)
    pictures = [_as_seen(row) for row in rows if row["role"] != "caption"]
    texts = _texts(deployment, inspector, version["project"], rows)
    judged = judge_version(pictures, texts.because, texts.notes)
    values = {"state": judged.state, "because": judged.because, "findings": canonical_json(to_json(judged.findings))}
    who = {"id": version["id"], "server": deployment.server, "now": deployment.store.now_ms()}
    deployment.store.apply(write("judge_dataset_version", **who, **values))


def _texts(deployment: Deployment, inspector: PhotoInspector, project: str, rows: Sequence[Row]) -> InspectedTexts:
    """Return what is wrong with captions and masks; of a version with a picture that cannot be used nothing, as that is refused anyway."""
    if any(row["because"] for row in rows):
        return InspectedTexts(because="", notes=())
    captions = {row["path"]: _reading(deployment, project, row) for row in rows if row["role"] == "caption"}
    sizes: Mapping[str, dict[str, tuple[int, int]]] = {"photo": {}, "mask": {}}
    for row in rows:
        if row["role"] != "caption":
            path = photo_of_mask(row["path"]) if row["role"] == "mask" else row["path"]
            sizes[row["role"]][path] = (row["width"], row["height"])
    try:
        return inspector.texts(sizes["photo"], sizes["mask"], captions)
    except NotFound:
        return InspectedTexts(because="a caption is not in the object store any more: push the photos again", notes=())


def _reading(deployment: Deployment, project: str, row: Row) -> partial[Iterator[bytes]]:
    return partial(deployment.objects.chunks, blob_key(project, row["sha256"]))


def _as_seen(row: Row) -> SeenPicture:
    names = ("path", "role", "because", "width", "height", "sharpness", "likeness")
    return SeenPicture(**{name: row[name] for name in names})
