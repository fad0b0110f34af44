"""A SQLite database with the schema in it: for tests that are not about migrations, which otherwise each run all of them."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from gangline.adapters.store.sqlite import SqliteStore


def make_database(path: Path) -> None:
    """Put what a new store writes at `path`."""
    path.write_bytes(_new())


@cache
def _new() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "db.sqlite"
        SqliteStore(path).close()
        return path.read_bytes()
