"""A server of this machine: its settings, its database, its object store. Nothing is changed; a bucket is tried with a small file."""

import os
from collections.abc import Iterator
from pathlib import Path

from gangline.cli.doctor.findings import Finding, examined, note, ok
from gangline.compose.access import ACCESS
from gangline.compose.buckets import lacks_of_bucket
from gangline.compose.settings import SETTINGS_FILE, read_server_settings, read_settings

DATABASE = "gangline.sqlite"


def is_here(home: Path) -> bool:
    """Whether a server ran in this home, or the environment says how one would."""
    named = ("GANGLINE_DATABASE_URL", "GANGLINE_OBJECTS", "GANGLINE_SETTINGS")
    return (home / ACCESS).exists() or (home / SETTINGS_FILE).exists() or any(os.environ.get(name) for name in named)


def serving(home: Path) -> Iterator[Finding]:
    yield examined("settings", lambda: _settings(home))
    yield examined("database", lambda: _database(home))
    yield examined("store", lambda: _store(home))


def _settings(home: Path) -> Finding:
    read_server_settings(None, home)
    path = os.environ.get("GANGLINE_SETTINGS") or home / SETTINGS_FILE
    there = Path(path).exists()
    return ok("settings", f"{path} is right" if there else "no settings file: the defaults hold")


def _database(home: Path) -> Finding:
    from gangline.adapters.store import schema_of

    named = read_settings().database
    found, known = schema_of(named or str(home / DATABASE))
    what = "PostgreSQL" if named else str(home / DATABASE)
    if found == 0:
        return note("database", f"{what} is reached, and empty: the first start of a server makes its tables")
    if found == known:
        return ok("database", f"{what} is sound, its schema {found} is this version's")
    return note(
        "database", f"{what} has schema {found}, this version {known}: the next start of a server brings it there"
    )


def _store(home: Path) -> Finding:
    place = os.environ.get("GANGLINE_OBJECTS", "")
    if not place:
        return ok("store", f"files are kept in {home / 'store'}")
    lacks = lacks_of_bucket(place, "GANGLINE_OBJECTS")
    if lacks:
        return note("store", f"{place} can be read and written; it lacks {'; '.join(lacks)}")
    return ok("store", f"{place} can be read and written, and does all that is asked of it")
