"""A server of this machine: its settings, its database, its object store. Nothing is changed; a bucket is tried with a small file."""

from collections.abc import Iterator
from pathlib import Path

from gangline.cli.doctor.findings import Finding, examined, note, ok, wrong
from gangline.compose.access import ACCESS
from gangline.compose.buckets import lacks_of_bucket
from gangline.compose.home import DATABASE
from gangline.compose.settings import (
    Options,
    has_variables_of_server,
    read_server_settings,
    read_server_settings_without_file,
    settings_file,
)
from gangline.core.errors import GanglineError


def is_here(home: Path) -> bool:
    """Return whether a server ran in this home, or the environment configures one."""
    return (home / ACCESS).exists() or settings_file(home) is not None or has_variables_of_server()


def serving(home: Path) -> Iterator[Finding]:
    options = {"server.home": home}
    try:
        of = read_server_settings(options).settings.server
    except GanglineError as error:
        yield wrong("settings", error.message, error.hint)
        yield from _places_of_environment(home, options)
        return
    found = f"{of.settings} is valid" if of.settings else "there is no settings file, so the defaults apply"
    yield ok("settings", found)
    yield examined("database", lambda: _database(home, of.database_url))
    yield examined("store", lambda: _store(home, of.objects))


def _places_of_environment(home: Path, options: Options) -> Iterator[Finding]:
    """Check what the environment names by itself. No file may name a database, as its address holds a password; one may name a bucket."""
    try:
        of = read_server_settings_without_file(options).server
    except GanglineError:
        yield note("database", "the database was not checked, because a variable of the environment is wrong")
        yield note("store", "the object store was not checked, because a variable of the environment is wrong")
        return
    yield examined("database", lambda: _database(home, of.database_url))
    if of.objects:
        yield examined("store", lambda: _store(home, of.objects))
    else:
        yield note("store", "the object store was not checked, because the settings say which one it is")


def _database(home: Path, named: str) -> Finding:
    from gangline.adapters.store import schema_of

    found, known = schema_of(named or str(home / DATABASE))
    what = "PostgreSQL" if named else str(home / DATABASE)
    if found == 0:
        return note("database", f"{what} can be reached and is empty: the first start of a server creates its tables")
    if found == known:
        return ok("database", f"{what} is intact and has the schema of this version ({found})")
    return note(
        "database", f"{what} has schema {found}, but this version has {known}: the next start of a server migrates it"
    )


def _store(home: Path, place: str) -> Finding:
    if not place:
        return ok("store", f"files are kept in {home / 'store'}")
    lacks = lacks_of_bucket(place, "GANGLINE_OBJECTS")
    if lacks:
        return note("store", f"{place} can be read and written, but lacks {'; '.join(lacks)}")
    return ok("store", f"{place} can be read and written, and has every feature that the server needs")
