"""What every test shares: one thread for torch, quiet libraries, no network, and the photos and base of this repository."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.core.files import File
from tests.postgres import Postgres, postgres

ROOT = Path(__file__).parents[1]
BASE = ROOT / "assets" / "tiny-sdxl"
SUBJECT = ROOT / "examples" / "subject"


def file_at(path: Path, below: Path) -> File:
    content = path.read_bytes()
    return File(path=str(path.relative_to(below)), bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture(scope="session")
def database_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL for all tests that ask for one; each makes a database of its own on it."""
    with postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new database of each engine: the URL of a PostgreSQL, or the path of a SQLite file."""
    if request.param == "sqlite":
        return str(tmp_path / "db.sqlite")
    return request.getfixturevalue("database_server").make_database()
