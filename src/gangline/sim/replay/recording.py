"""Take snapshots of a simulation's database while it runs. They share the pages that did not change, so hundreds fit into memory."""

import weakref
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gangline.sim.store import SimStore
from gangline.sim.world import World

SNAPSHOTS_MAX = 200
"""When there are more, every second one is dropped and the interval doubles: between half of them and all are kept."""
INTERVAL_MS = 10_000
"""The first interval in virtual time. How long a scenario will take is known only at its end."""
PAGE_BYTES = 4096
"""SQLite's default, which no store changes."""
BLOCK_PAGES = 16
"""Pages that are compared at once first, as most did not change."""
COMPRESSION = 1
"""zlib's fastest: a snapshot should cost a few milliseconds."""
PLAIN_BYTES_MAX = 64 * 2**20
"""The newest pages stay as they are, up to this: to compress a page takes longer than all else that is done with it, and of a long run most
pages are dropped with their snapshots."""


class Page:
    """A page of a database, which may be compressed later. Snapshots that agree in it hold the same object."""

    __slots__ = ("__weakref__", "_content", "_is_plain")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._is_plain = True

    def content(self) -> bytes:
        return self._content if self._is_plain else zlib.decompress(self._content)

    def compress(self) -> None:
        self._content, self._is_plain = zlib.compress(self._content, COMPRESSION), False

    def stored_bytes(self) -> int:
        """Return how many bytes it takes."""
        return len(self._content)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The database at one moment of virtual time, as pages in order."""

    ms: int
    pages: tuple[Page, ...]

    def database(self) -> bytes:
        """Return the database as a file of SQLite has it."""
        return b"".join(page.content() for page in self.pages)


class Recording:
    """The snapshots of a simulation, in order. Call `look` after each of its events, and `finish` at its end.

    Recording draws no chance and adds no event, so a recorded simulation has the same trace as any other.
    """

    def __init__(self, world: World, store: SimStore, *, plain_bytes_max: int = PLAIN_BYTES_MAX) -> None:
        self.snapshots: list[Snapshot] = []
        self.interval_ms = INTERVAL_MS
        self._world = world
        self._store = store
        self._due_ms = world.now_ms
        self._last = b""
        self._last_pages: tuple[Page, ...] = ()
        self._plain = deque[weakref.ref[Page]]()
        self._plain_max = plain_bytes_max // PAGE_BYTES

    def look(self) -> None:
        """Take a snapshot if one is due."""
        if self._world.now_ms >= self._due_ms:
            self._take()

    def finish(self) -> None:
        """Take the last snapshot. What was kept for comparing with the next one is freed."""
        if self.snapshots and self.snapshots[-1].ms == self._world.now_ms:
            self.snapshots.pop()  # more may have happened within this millisecond
        self._take()
        self._last, self._last_pages = b"", ()

    def stored_bytes(self) -> int:
        """Return the bytes of the pages, each counted once."""
        pages = {id(page): page.stored_bytes() for snapshot in self.snapshots for page in snapshot.pages}
        return sum(pages.values())

    def _take(self) -> None:
        now_ms, database = self._world.now_ms, self._store.serialize()
        pages = tuple(self._pages(database, self._last, self._last_pages))
        self.snapshots.append(Snapshot(now_ms, pages))
        self._last, self._last_pages = database, pages
        if len(self.snapshots) > SNAPSHOTS_MAX:
            del self.snapshots[1::2]  # the first and the last of an odd number stay
            self.interval_ms *= 2
        self._due_ms = now_ms - now_ms % self.interval_ms + self.interval_ms
        self._compress_the_oldest()

    def _pages(self, database: bytes, before: bytes, known: tuple[Page, ...]) -> Iterator[Page]:
        """Yield the pages of a database. Those that are as they were `before` are the objects in `known`."""
        for first in range(0, len(database) // PAGE_BYTES, BLOCK_PAGES):
            block = slice(first * PAGE_BYTES, (first + BLOCK_PAGES) * PAGE_BYTES)
            of_block = known[first : first + BLOCK_PAGES]
            same = database[block] == before[block]
            yield from of_block if same else self._pages_of_block(database[block], before[block], of_block)

    def _pages_of_block(self, block: bytes, before: bytes, known: tuple[Page, ...]) -> Iterator[Page]:
        for number, start in enumerate(range(0, len(block), PAGE_BYTES)):
            content = block[start : start + PAGE_BYTES]
            yield known[number] if content == before[start : start + PAGE_BYTES] else self._new_page(content)

    def _new_page(self, content: bytes) -> Page:
        page = Page(content)
        self._plain.append(weakref.ref(page))
        return page

    def _compress_the_oldest(self) -> None:
        while len(self._plain) > self._plain_max:
            page = self._plain.popleft()()
            if page is not None:  # else it was dropped with its snapshots
                page.compress()
