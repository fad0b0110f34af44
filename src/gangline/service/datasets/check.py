"""Check the versions of data sets in the background, some pictures in each step: what they show, and whether they can be trained on.

One server at a time takes a step of a version, and the version whose last step is longest ago comes next: a large one delays no small one.
What a picture shows is recorded once for its content, so that a version which differs in some files is checked at once.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.datasets.findings import DatasetJudgement, SeenPicture, judge_version
from gangline.core.datasets.roles import photo_of_mask
from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.core.parsing import to_json
from gangline.ports.places.inspector import InspectedPicture, InspectedTexts, PhotoInspector, StoredCaption
from gangline.ports.store import Row, Write, guard, write
from gangline.service.datasets.removal import forget_thumbnails
from gangline.service.deployment import Deployment

log = logging.getLogger("gangline.datasets")

TURN_S = 5400.0
"""Another server takes over a step that was begun longer ago. An inspector takes 65 minutes at most, after the downloads. If a step takes
longer, the other server does it again, and nothing is lost."""
TRIES_MAX = 3
"""Steps in which a picture may be missing, or take too much memory or time, before the version is refused: the server may be busy."""
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
    """Look at some pictures, and record what they are, unless the version was removed meanwhile.

    What may be otherwise next time is not recorded, as the picture's other versions would be refused, too: the version counts its tries.
    """
    project = version["project"]
    chosen = _within(contents)
    reads = {sha256: partial(deployment.objects.chunks, blob_key(project, sha256)) for sha256 in chosen}
    found = inspector.pictures(reads)
    known = {sha256: picture for sha256, picture in found.items() if not picture.may_pass}
    failed = {sha256: picture.because for sha256, picture in found.items() if picture.may_pass}
    for sha256, picture in known.items():
        if picture.thumbnail:
            _keep_thumbnail(deployment, thumbnail_key(project, sha256), picture.thumbnail)
    tries = version["tries"] + bool(failed)
    who = {"id": version["id"], "server": deployment.server, "now": deployment.store.now_ms()}
    is_over = tries >= TRIES_MAX and bool(failed)
    ending = (
        _refusing(deployment, version, failed, who) if is_over else guard("leave_version_to_check", **who, tries=tries)
    )
    kept = deployment.store.apply(
        ending,
        *(write("add_photo", project=project, sha256=sha256, **_facts(each)) for sha256, each in sorted(known.items())),
    )
    if not kept:
        forget_thumbnails(deployment, project, list(known))


def _refusing(deployment: Deployment, version: Row, failed: Mapping[str, str], who: Mapping[str, Any]) -> Write:
    """Return the guard that refuses a version with pictures that could not be looked at, whatever the others are."""
    rows = deployment.store.load("dataset_files", version=version["id"], after="", limit=EVERYTHING)
    unseen: dict[str, Any] = {"width": 0, "height": 0, "sharpness": 0.0, "likeness": ""}
    pictures = [
        SeenPicture(path=row["path"], role=row["role"], because=failed[row["sha256"]], **unseen)
        for row in rows
        if row["role"] != "caption" and row["sha256"] in failed
    ]
    return guard("judge_dataset_version", **who, **_judgement(judge_version(pictures, "", ())))


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


def _judge(deployment: Deployment, inspector: PhotoInspector, version: Row) -> None:
    rows = deployment.store.load("dataset_files", version=version["id"], after="", limit=EVERYTHING)
    who = {"id": version["id"], "server": deployment.server, "now": deployment.store.now_ms()}
    if any(
        row["role"] != "caption" and row["width"] is None for row in rows
    ):  # forgotten just now: it is looked at again
        deployment.store.apply(write("leave_version_to_check", **who, tries=version["tries"]))
        return
    pictures = [_as_seen(row) for row in rows if row["role"] != "caption"]
    texts = _texts(deployment, inspector, version["project"], rows)
    who |= {"now": deployment.store.now_ms()}
    judged = judge_version(pictures, texts.because, texts.notes)
    deployment.store.apply(write("judge_dataset_version", **who, **_judgement(judged)))


def _judgement(judged: DatasetJudgement) -> dict[str, Any]:
    return {"state": judged.state, "because": judged.because, "findings": canonical_json(to_json(judged.findings))}


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
    return inspector.texts(sizes["photo"], sizes["mask"], captions)


def _reading(deployment: Deployment, project: str, row: Row) -> StoredCaption:
    read = partial(deployment.objects.chunks, blob_key(project, row["sha256"]))
    return StoredCaption(sha256=row["sha256"], read=read)


def _as_seen(row: Row) -> SeenPicture:
    names = ("path", "role", "because", "width", "height", "sharpness", "likeness")
    return SeenPicture(**{name: row[name] for name in names})
