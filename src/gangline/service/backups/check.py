"""Compare what a database refers to with what its object store has. Nothing is changed."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator

from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.core.server.backups import EXAMPLES_MAX, MissingFiles, StoreCheck
from gangline.ports.objects import Objects
from gangline.ports.store import Row, StoreReader

AT_ONCE = 2000
"""Jobs, or uploads, that are read at a time."""


def check_store(store: StoreReader, objects: Objects, *, schema: int, damage: str) -> StoreCheck:
    """List the object store once, and look up what rows refer to.

    A server may be at work: what was written after the list is asked about again, and what is written but not yet known counts as unknown.
    """
    there = dict(objects.sizes(""))
    missing: dict[str, list[str]] = defaultdict(list)
    files = known = 0
    for kind, key, size in _referred(store):
        files, known = files + 1, known + size
        if there.pop(key, None) != size and not _has(objects, key, size):
            missing[kind].append(key)
    totals = store.load("totals_of_store")[0]
    return StoreCheck(
        schema=schema,
        jobs=totals["jobs"],
        live_attempts=totals["live_attempts"],
        files=files,
        bytes=known,
        missing=tuple(
            MissingFiles(kind=kind, files=len(keys), examples=tuple(sorted(keys)[:EXAMPLES_MAX]))
            for kind, keys in sorted(missing.items())
        ),
        unknown_files=len(there),
        unknown_bytes=sum(there.values()),
        damage=damage,
    )


def _has(objects: Objects, key: str, size: int) -> bool:
    found = objects.stat(key)
    return found is not None and found.bytes == size


def _referred(store: StoreReader) -> Iterator[tuple[str, str, int]]:
    """Yield kind, key and length of every file that a row refers to, each once for each row."""
    after = ""
    while last := store.load("jobs_up_to", after=after, limit=AT_ONCE)[0]["id"]:
        for row in store.load("files_of_jobs", after=after, last=last):
            yield from _files(row)
        after = last
    yield from _by_content(lambda project, sha256: store.load("uploads_in_store", **_next(project, sha256)), blob_key)
    yield from _by_content(
        lambda project, sha256: store.load("thumbnails_in_store", **_next(project, sha256)), thumbnail_key
    )


def _next(project: str, sha256: str) -> dict[str, object]:
    return {"project": project, "sha256": sha256, "limit": AT_ONCE}


def _files(row: Row) -> Iterator[tuple[str, str, int]]:
    if not row["manifest"]:
        yield row["kind"], row["key"], row["bytes"]
        return
    for file in json.loads(row["manifest"])["files"]:
        yield row["kind"], f"{row['key']}/{file['path']}", file["bytes"]


def _by_content(
    load: Callable[[str, str], list[Row]], key: Callable[[str, str], str]
) -> Iterator[tuple[str, str, int]]:
    project = sha256 = ""
    while rows := load(project, sha256):
        yield from ((row["kind"], key(row["project"], row["sha256"]), row["bytes"]) for row in rows)
        project, sha256 = rows[-1]["project"], rows[-1]["sha256"]
