"""The file of a backup: a zip archive with the rows of each table as lines of JSON, and a manifest that is written last.

A line is a list of rows, a row a list of values in the order of its table's columns.
"""

import hashlib
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from gangline.adapters.store.backups.snapshot import DatabaseSnapshot
from gangline.core.errors import BadInput, Damaged, GanglineError, UserError
from gangline.core.server.backups import NOT_OURS, BackedUpTable, BackupManifest, read_backup_manifest

MANIFEST = "manifest.json"
FIRST = "gangline-backup"
"""The name of the first member, so that what is left of a file that was cut short can be told from another's file."""
CHUNK = 1 << 20
LEVEL = 1
"""Of compression: rows shrink to a sixth, and a higher level takes several times as long for a few per cent."""


def write_backup(path: Path, found: DatabaseSnapshot, *, version: str, keys: dict[str, str]) -> BackupManifest:
    """Write a backup under a temporary name beside `path` and give it its name at the end: it is there whole, or not at all.

    Only its owner may read it. Raises `UserError`.
    """
    if path.exists():
        raise _exists(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "w+b") as file:
            manifest = _write(file, found, version, keys)
            file.flush()
            os.fsync(file.fileno())
        _name(partial, path)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {(error.strerror or str(error)).lower()}", hint="choose a place with room"
        ) from None
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def _name(partial: Path, path: Path) -> None:
    """Give a file its name, unless another one got it meanwhile. Some file systems of memory cards know no second name of a file."""
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:
        partial.rename(path)


def _exists(path: Path) -> UserError:
    return UserError(f"{path} exists", hint="name another file, such as one with the date in it")


def _write(file: IO[bytes], found: DatabaseSnapshot, version: str, keys: dict[str, str]) -> BackupManifest:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        archive.writestr(FIRST, f"made by Gangline {version}\n")
        tables = {table: _write_table(archive, found, table) for table in found.tables}
        manifest = BackupManifest(version=version, schema=found.schema, made_ms=found.made_ms, tables=tables, keys=keys)
        archive.writestr(MANIFEST, json.dumps(asdict(manifest)))
    return manifest


def _write_table(archive: zipfile.ZipFile, found: DatabaseSnapshot, table: str) -> BackedUpTable:
    count, hashed = 0, hashlib.sha256()
    with archive.open(_member(table), "w", force_zip64=True) as out:
        for rows in found.rows(table):
            line = json.dumps([tuple(row) for row in rows], separators=(",", ":")).encode() + b"\n"
            count += len(rows)
            hashed.update(line)
            out.write(line)
    return BackedUpTable(columns=found.tables[table], rows=count, sha256=hashed.hexdigest())


class BackupFile:
    """A backup that is open to be read. Its manifest is right; whether its rows are is known once they were read to their end."""

    def __init__(self, name: str, archive: zipfile.ZipFile, manifest: BackupManifest) -> None:
        self.name = name
        self.manifest = manifest
        self._archive = archive

    def rows(self, table: str) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the rows of a table in parts. Raises `Damaged` at the latest after the last one if they are not those that were written."""
        of, count, hashed = self.manifest.tables[table], 0, hashlib.sha256()
        try:
            with self._archive.open(_member(table)) as file:
                for line in _lines(file):
                    hashed.update(line)
                    rows = json.loads(line)
                    count += len(rows)
                    yield rows
        except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, TypeError) as error:
            raise self._damaged(f"{table} cannot be read: {error}") from None
        if (count, hashed.hexdigest()) != (of.rows, of.sha256):
            raise self._damaged(f"{table} has other rows than were written")

    def _damaged(self, why: str) -> Damaged:
        return Damaged(f"{self.name} is damaged: {why}", hint="use another backup; nothing was changed")


@contextmanager
def opened_backup(path: Path, *, schema_known: int, version: str) -> Iterator[BackupFile]:
    """Open a backup. Raises `GanglineError` in one sentence for what is none, is cut short, or was made by a newer Gangline."""
    try:
        with path.open("rb") as file:
            beginning = file.read(64)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {(error.strerror or str(error)).lower()}", hint="name the file of a backup"
        ) from None
    try:
        archive = zipfile.ZipFile(path)
    except zipfile.BadZipFile:
        raise _unfinished(path, beginning) from None
    with archive:
        try:
            found = json.loads(archive.read(MANIFEST))
        except KeyError:
            found = None
        except (zipfile.BadZipFile, zlib.error, ValueError, EOFError):
            raise Damaged(f"{path} is damaged: its manifest cannot be read", hint="use another backup") from None
        yield BackupFile(
            str(path), archive, read_backup_manifest(str(path), found, schema_known=schema_known, version=version)
        )


def _unfinished(path: Path, beginning: bytes) -> GanglineError:
    if FIRST.encode() in beginning:
        return Damaged(f"{path} is cut short: its end is missing", hint="use another backup, or copy this one again")
    return UserError(NOT_OURS.format(path), hint="`gangline backup create FILE` makes one")


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield whole lines; those of a zip archive's own iterator take several times as long."""
    rest = b""
    while chunk := file.read(CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _member(table: str) -> str:
    return f"tables/{table}.jsonl"
