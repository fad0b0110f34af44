"""The object store of a replay: logs as they were written, drawn pictures and their thumbnails. Other simulated files have no bytes."""

import hashlib
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING
from urllib.parse import quote

from PIL import Image

from gangline.core.errors import NotFound
from gangline.core.files import Signed
from gangline.ports.objects import UploadPart
from gangline.ports.store import write
from gangline.sim.objects import SimObjects
from gangline.sim.replay.store import ReplayStore, read_only_refusal

if TYPE_CHECKING:
    from gangline.sim.simulation import Simulation

ROUTE = "/v1/objects/"
THUMBNAIL = ".thumbnail"
"""Behind the key of a picture: the key of its thumbnail."""
PICTURES_MAX = 100_000
SIDE = 128
"""The width and height of a picture in pixels."""
RGB8 = (8, 2, 0, 0, 0)
"""Bit depth, colour type, and the only methods of compression, filtering and interlacing (PNG, 11.2.1)."""


class ReplayObjects(SimObjects):
    """The `objects` port over the objects that a finished simulation left. All writes raise `Forbidden`."""

    def __init__(self, of: "Simulation") -> None:
        super().__init__(of.world, of.faults)
        self.objects = of.objects.objects

    def sign_get(self, key: str, *, now_ms: int, seconds: float) -> Signed:
        return Signed(url=ROUTE + quote(key))

    def read(self, key: str) -> bytes:
        """Return the content of an object. Raise `NotFound` if there is none, or if it never had any bytes."""
        if key.endswith(".png"):
            return draw_picture(key)
        if key.endswith(f".png{THUMBNAIL}"):
            return draw_thumbnail(key.removesuffix(THUMBNAIL))
        found = self.objects.get(key)
        if found is None or not found.content:
            raise NotFound("a simulation keeps the name, size and SHA-256 of this file, and no bytes")
        return found.content

    def write(self, key: str, content: bytes) -> None:
        raise read_only_refusal()

    def begin(self, key: str) -> str:
        raise read_only_refusal()

    def put_part(self, key: str, upload: str, number: int, content: bytes) -> None:
        raise read_only_refusal()

    def complete(self, key: str, upload: str, parts: Sequence[UploadPart]) -> None:
        raise read_only_refusal()

    def abort(self, key: str, upload: str) -> None:
        raise read_only_refusal()

    def delete(self, keys: Sequence[str]) -> None:
        raise read_only_refusal()


@lru_cache(1024)
def draw_picture(key: str) -> bytes:
    """Return a PNG for a picture that no model drew: a gradient between two colours that follow from its key."""
    seed = hashlib.sha256(key.encode()).digest()
    start, end = seed[:3], seed[3:6]
    rows = bytearray()
    for y in range(SIDE):
        pixel = bytes(round(a + (b - a) * y / SIDE) for a, b in zip(start, end, strict=True))
        rows += b"\0" + pixel * SIDE  # each row begins with its filter: none
    head = struct.pack(">II5B", SIDE, SIDE, *RGB8)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


@lru_cache(1024)
def draw_thumbnail(key: str) -> bytes:
    """Return the picture of a key as a JPEG."""
    thumbnail = BytesIO()
    with Image.open(BytesIO(draw_picture(key))) as picture:
        picture.save(thumbnail, "JPEG")
    return thumbnail.getvalue()


def name_thumbnails(store: ReplayStore) -> None:
    """Give the pictures of a snapshot their thumbnails: a simulation's pictures have no bytes, so that its service made none."""
    for row in store.load("pictures_to_look_at", limit=PICTURES_MAX):
        which = {"job": row["job"], "path": row["path"]}
        facts = {
            "width": SIDE,
            "height": SIDE,
            "unusable": "",
            "tries": 0,
            "thumbnail_bytes": 1,
        }  # which are drawn when they are asked for
        store.apply(
            write("name_thumbnail", key=row["key"] + THUMBNAIL, **which), write("record_picture", **which, **facts)
        )


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
