"""What a backup says of itself, whether it may be restored, and what a check of a store finds. No clock, no files."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.core.errors import Damaged, UserError
from gangline.core.words import counted, size_words

FORMAT = 1
"""Of the file. A program that does not know it refuses the file."""
NOT_OURS = "{} is not a backup of Gangline"
EXAMPLES_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class BackedUpTable:
    """A table as it is in a backup. `sha256` is of its rows as they are written there."""

    columns: tuple[str, ...]
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """The last member of a backup: a file without it was not finished.

    `made_ms` is by the clock of the machine that made it, as the database was at that time. `keys` has the text of each file of keys
    of the server's home by its name.
    """

    version: str
    schema: int
    made_ms: int
    tables: Mapping[str, BackedUpTable]
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    format: int = FORMAT

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


def read_backup_manifest(name: str, found: Any, *, schema_known: int, version: str) -> BackupManifest:
    """Return the manifest of the backup `name` from its JSON. Raises `UserError` for one that this Gangline cannot restore."""
    if (
        not isinstance(found, dict)
        or not isinstance(found.get("schema"), int)
        or not {"format", "version"} <= found.keys()
    ):
        raise UserError(NOT_OURS.format(name), hint="`gangline backup create FILE` makes one")
    if found["format"] != FORMAT or found["schema"] > schema_known:
        raise UserError(
            f"{name} was made by Gangline {found['version']} (schema {found['schema']}), and this is Gangline {version}, "
            f"which knows up to schema {schema_known}",
            hint=f"install Gangline {found['version']} or a later one, and restore with it",
        )
    try:
        tables = {
            table: BackedUpTable(columns=tuple(of["columns"]), rows=of["rows"], sha256=of["sha256"])
            for table, of in found["tables"].items()
        }
        return BackupManifest(
            version=found["version"],
            schema=found["schema"],
            made_ms=found["made_ms"],
            tables=tables,
            keys={str(key): str(text) for key, text in found["keys"].items()},
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        raise Damaged(
            f"{name} is damaged: its manifest does not say what is in it", hint="use another backup"
        ) from None


def refuse_other_keys(keys: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raise `UserError` where this home has other keys than the backup: what those opened would be closed for good."""
    other = sorted(name for name, text in keys.items() if name in here and _opened(here[name]) != _opened(text))
    if other:
        raise UserError(
            f"this home has keys of its own in {' and '.join(other)}, and the backup has others",
            hint="restore into an empty home; or let --replace put those of the backup in their place",
        )


def _opened(text: str) -> object:
    """Return what a file of keys opens: the address beside them is that of the server's last start."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return {name: found[name] for name in found if name != "url"} if isinstance(found, dict) else text


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFiles:
    """Files of one kind that a row refers to and the object store does not have, or has with another length."""

    kind: str
    files: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """What a check of a database and its object store found.

    `files` and `bytes` are what rows refer to; `unknown_files` and `unknown_bytes` what lies in the object store and no row refers to.
    """

    schema: int
    jobs: int
    live_attempts: int
    files: int
    bytes: int
    missing: tuple[MissingFiles, ...]
    unknown_files: int
    unknown_bytes: int
    damage: str

    @property
    def is_whole(self) -> bool:
        return not self.missing and not self.damage


MEANINGS = {
    "checkpoint": "their jobs resume from another one that is still there, else they begin again",
    "result": "they cannot be downloaded any more",
    "picture": "they cannot be shown any more",
    "log": "that part of the log is lost",
    "prepared file": "runs that would have used them make them again, or fail where they were promised them",
    "upload": "jobs that need them fail, until a job is submitted with the same files; to upload a data set again does not send them",
}
"""What a missing file of each kind means for who looks for it."""


def check_in_words(check: StoreCheck) -> list[str]:
    """Say what a check found, for people."""
    found = [
        f"schema {check.schema}, {counted(check.jobs, 'job')}, {counted(check.live_attempts, 'running attempt')}",
        f"rows refer to {counted(check.files, 'file')} ({size_words(check.bytes)})",
    ]
    if check.damage:
        found.append(f"the database is damaged: {check.damage}")
    found += [
        f"missing: {counted(each.files, each.kind)}, such as {', '.join(each.examples)}; {MEANINGS[each.kind]}"
        for each in check.missing
    ]
    if check.unknown_files:
        found.append(
            f"no row refers to {counted(check.unknown_files, 'file')} ({size_words(check.unknown_bytes)}) of the object store: "
            "uploads under way, or what came after a backup"
        )
    return [*found, "whole: every file that a row refers to is there" if check.is_whole else "not whole"]
