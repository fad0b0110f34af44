"""The composition root of backups: a server's database and keys into a file, and back."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.compose.access import ACCESS, PRIVATE, SEALING_KEY, new_secret
from gangline.compose.home import DATABASE, LOCK, given_to_owner, keep_files_private, locked, private_home
from gangline.compose.hub import make_hub
from gangline.compose.server import make_objects, new_id
from gangline.core.errors import GanglineError, NotFound, UserError
from gangline.core.server.backups import BackupManifest, StoreCheck, refuse_other_keys
from gangline.core.server.settings import ServerSettings
from gangline.version import VERSION

if TYPE_CHECKING:
    from gangline.adapters.store.backups import BackupFile, DatabaseSnapshot
    from gangline.ports.objects import Objects
    from gangline.ports.store import Store

KEY_FILES = (ACCESS, SEALING_KEY)
"""What a home has that nothing else can make again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """`ended` attempts ran when the backup was made; their jobs wait for a node now. Nobody knows `lost_pools` any more, whose nodes are
    billed: the database that was replaced had them."""

    manifest: BackupManifest
    ended: int
    lost_pools: tuple[str, ...]


def back_up(settings: ServerSettings, path: Path) -> BackupManifest:
    """Write a backup of the database and the home's keys. A server may be at work. Raises `GanglineError` with no file left."""
    from gangline.adapters.store.backups import snapshot
    from gangline.adapters.store.backups.archive import write_backup

    with snapshot(database_of(settings)) as found:
        return write_backup(path, found, version=VERSION, keys=_keys(settings.server.home))


def restore(settings: ServerSettings, path: Path, *, replace: bool) -> Restored:
    """Put a backup into the database of the settings and its keys into the home. Raises `GanglineError` with nothing changed."""
    from gangline.adapters.store import open_store
    from gangline.adapters.store.backups import count_rows, load_backup
    from gangline.adapters.store.backups.archive import opened_backup
    from gangline.adapters.store.statements import migrations

    keep_files_private()
    home, database = settings.server.home, database_of(settings)
    with opened_backup(path, schema_known=migrations()[-1][0], version=VERSION) as backup:
        manifest = backup.manifest
        with given_to_owner(private_home(home), _written(home)), locked(home):
            if not replace:
                refuse_other_keys(manifest.keys, _keys(home))
            objects = make_objects(settings.server, "", beside=True)  # what can fail fails before anything changes
            lost_pools = _lost_pools(database, backup) if replace else ()
            with _keys_beside(home, manifest):
                load_backup(database, backup, replace=replace, publish=lambda: _write_keys(home, manifest))
                for name in _keys_in(manifest):
                    _beside(home, name).replace(home / name)
            count_rows(database)
            store = open_store(database)
            try:
                ended = _settle(settings, store, objects, manifest)
            finally:
                store.close()
            return Restored(manifest=manifest, ended=ended, lost_pools=lost_pools)


def check(settings: ServerSettings) -> StoreCheck:
    """Compare the database with the object store, and look for damage in it. A server may be at work. Raises `GanglineError`."""
    from gangline.adapters.store import open_store, schema_of
    from gangline.adapters.store.backups import integrity_of
    from gangline.service.backups.check import check_store

    database = database_of(settings)
    found, known = schema_of(database)
    if found == 0:
        raise NotFound("there is no database to check", hint="name the server's folder with --home")
    if found != known:
        raise UserError(
            f"the database has schema {found}, and this is Gangline {VERSION} with schema {known}",
            hint="check it with the Gangline of its server" + (", or start this one's once" if found < known else ""),
        )
    store = open_store(database)
    try:
        return check_store(
            store, make_objects(settings.server, "", beside=True), schema=found, damage=integrity_of(database)
        )
    finally:
        store.close()


def database_of(settings: ServerSettings) -> str:
    return settings.server.database_url or str(settings.server.home / DATABASE)


def _lost_pools(database: str, backup: "BackupFile") -> tuple[str, ...]:
    """Return the pools that operators made in a database, that have nodes, and that a backup lacks; none if the database cannot be read."""
    from gangline.adapters.store.backups import snapshot

    columns = {table: of.columns for table, of in backup.manifest.tables.items()}
    known = {(row["name"], row["id"]) for row in _rows(backup, columns, "pool")}
    with suppress(GanglineError), snapshot(database) as found:
        pools = [(row["name"], row["id"]) for row in _rows(found, found.tables, "pool")]
        nodes = _rows(found, found.tables, "node")
        billed = {row["pool"] for row in nodes if row["rented"] and row["state"] != "gone"}
        return tuple(sorted(name for name, id in pools if (name, id) not in known and name in billed))
    return ()


def _rows(
    of: "BackupFile | DatabaseSnapshot", columns: Mapping[str, tuple[str, ...]], table: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table by the names of their columns; none where an older schema lacks it."""
    for rows in of.rows(table) if table in columns else ():
        yield from (dict(zip(columns[table], row, strict=True)) for row in rows)


def _settle(settings: ServerSettings, store: "Store", objects: "Objects", manifest: BackupManifest) -> int:
    from gangline.service.backups.settle import settle_restored
    from gangline.service.deployment import Deployment

    deployment = Deployment(
        store=store,
        objects=objects,
        hub=make_hub(settings.hub),
        policy=settings.policy,
        new_id=new_id,
        new_secret=new_secret,
        up_since_ms=store.now_ms(),
    )
    return settle_restored(deployment, manifest.made_ms, store.now_ms())


def _keys(home: Path) -> dict[str, str]:
    """Return the texts of the home's files of keys, those that are there."""
    try:
        return {name: (home / name).read_text() for name in KEY_FILES if (home / name).exists()}
    except (OSError, UnicodeDecodeError) as error:
        raise GanglineError(
            f"the keys in {home} cannot be read: {error}", hint="run this as the server's user"
        ) from None


@contextmanager
def _keys_beside(home: Path, manifest: BackupManifest) -> Iterator[None]:
    """Leave none of the keys that were written beside those that are there, whatever fails."""
    try:
        yield
    finally:
        for name in _keys_in(manifest):
            with suppress(OSError):
                _beside(home, name).unlink(missing_ok=True)


def _write_keys(home: Path, manifest: BackupManifest) -> None:
    """Write the keys beside those that are there, which stay until the database is restored."""
    try:
        for name in _keys_in(manifest):
            partial = _beside(home, name)
            partial.touch(PRIVATE)
            partial.write_text(manifest.keys[name])
    except OSError as error:
        raise GanglineError(
            f"the keys cannot be written to {home}: {(error.strerror or str(error)).lower()}",
            hint="check that its disk has room",
        ) from None


def _keys_in(manifest: BackupManifest) -> list[str]:
    """Return the names that are a home's own: a file of somebody else's may have any."""
    return [name for name in KEY_FILES if name in manifest.keys]


def _written(home: Path) -> tuple[str, ...]:
    """Return what a restore writes into this home, as patterns."""
    store = () if (home / "store").exists() else ("store", "store/*")
    return (LOCK, *KEY_FILES, DATABASE, *store)


def _beside(home: Path, name: str) -> Path:
    return home / f".{name}.restoring"
