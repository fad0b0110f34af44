"""Make small copies of sample pictures in the background, soon after they are committed, many at a time.

Nodes are not trusted: their pictures are decoded by a program with limits alone. A copy lies below the attempt that made its picture, so it
is deleted with what else that attempt left once its picture is.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gangline.core.errors import NotFound
from gangline.core.jobs.keys import attempt_prefix, small_picture_key
from gangline.ports.places.inspector import InspectedPicture, PhotoInspector
from gangline.ports.store import Row, Write, guard, write
from gangline.service.deployment import Deployment
from gangline.service.outage import has_turn

PICTURES_AT_ONCE = 64
"""Pictures of one start of the program."""
PICTURE_BYTES_MAX = 64 * 2**20
"""A PNG of 2048 x 2048 pixels has some 12 MB."""
BYTES_AT_ONCE = 400_000_000
"""What the pictures of a step take on the server's disk."""
TRIES_MAX = 3
"""Looks at which a picture may be lost, or take too much memory or time: the server may be busy."""
TOO_LARGE = f"has more than {PICTURE_BYTES_MAX // 2**20} MiB"
NOT_NOW = "is not in the object store any more, or takes too much memory or time to decode"


def make_thumbnails(deployment: Deployment) -> Iterator[None]:
    """Make all thumbnails that are due. This takes long, so it yields after each step: a caller may stop there. Of several servers, the one
    that ticks does it."""
    inspector = deployment.inspector
    if inspector is None:
        return
    while has_turn(deployment, deployment.store.now_ms()):
        due = deployment.store.load("pictures_to_look_at", limit=PICTURES_AT_ONCE)
        if not due:
            return
        _look_at(deployment, inspector, _together(due))
        yield


def _together(due: Sequence[Row]) -> list[Row]:
    """Return those of these pictures that a step takes, at least one. They are of one project, as equal pictures are read once: what one
    project stores decides nothing about another's."""
    chosen, left = list[Row](), BYTES_AT_ONCE
    for row in due:
        left -= row["bytes"] if row["bytes"] <= PICTURE_BYTES_MAX else 0
        if chosen and (left < 0 or row["project"] != chosen[0]["project"]):
            break
        chosen.append(row)
    return chosen


def _look_at(deployment: Deployment, inspector: PhotoInspector, rows: Sequence[Row]) -> None:
    reads = {
        row["sha256"]: partial(deployment.objects.chunks, row["key"])
        for row in rows
        if row["bytes"] <= PICTURE_BYTES_MAX
    }
    seen = inspector.pictures(reads) if reads else {}
    found = [(row, seen.get(row["sha256"], InspectedPicture(because=TOO_LARGE))) for row in rows]
    small = [(row, picture.thumbnail) for row, picture in found if picture.thumbnail]
    deployment.store.apply(
        *(write("name_thumbnail", job=row["job"], path=row["path"], key=_key(row)) for row, _ in small)
    )
    deployment.objects.at_once([partial(_keep, deployment, _key(row), content) for row, content in small])
    for row, picture in found:
        if not deployment.store.apply(_recording(row, picture)):
            # It was deleted meanwhile, and its copy may have come after the sweep.
            deployment.store.apply(write("sweep_attempt_again", attempt=row["attempt"]))


def _key(row: Row) -> str:
    return small_picture_key(attempt_prefix(row["project"], row["rendered_by"], row["attempt"]), row["sha256"])


def _keep(deployment: Deployment, key: str, content: bytes) -> None:
    """Write a thumbnail; one that an earlier look left there stays, though another decoder may have made it."""
    if deployment.objects.stat(key) is None:
        deployment.objects.write(key, content)


def _recording(row: Row, picture: InspectedPicture) -> Write:
    """Return the guard that records what was found; a picture that may be usable next time gets some more tries."""
    tries = row["tries"] + picture.may_pass
    unusable = picture.because if not picture.may_pass else NOT_NOW if tries >= TRIES_MAX else ""
    facts: Mapping[str, Any] = {"width": picture.width, "height": picture.height, "unusable": unusable, "tries": tries}
    which = {"job": row["job"], "path": row["path"]}
    return guard("record_picture", **which, **facts, thumbnail_bytes=len(picture.thumbnail))


def picture_thumbnail(deployment: Deployment, job: Row, sha256: str) -> bytes:
    """Return a JPEG of at most 256 pixels of a sample picture of a job. Raise `NotFound` if the job has no such picture, or there is no
    small copy of it, yet or at all."""
    rows = deployment.store.load("picture_of_content", job=job["id"], sha256=sha256)
    if not rows:
        raise NotFound(f"{job['id']} has no picture {sha256}", hint="list its pictures again: they expire")
    (row,) = rows
    if row["thumbnail_bytes"]:
        try:
            return deployment.objects.read(row["thumbnail"])
        except NotFound:  # somebody deleted it from the store
            pass
    because = f"it {row['unusable']}" if row["unusable"] else "small copies are made some seconds after pictures arrive"
    raise NotFound(f"there is no thumbnail of {row['path']} of {job['id']}", hint=because)
