"""The same service over each of the two databases, for benchmarks that compare them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgres import postgres
from tests.service.conftest import Service, a_service

from gangline.adapters.objects.local import LocalObjects


@contextmanager
def services() -> Iterator[dict[str, Service]]:
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        objects = LocalObjects(Path(folder) / "store", "secret")
        lite = a_service(Path(folder), str(Path(folder) / "db.sqlite"), objects)
        large = a_service(Path(folder), server.make_database(), objects)
        with lite as sqlite, large as other:
            yield {"SQLite": sqlite, "PostgreSQL": other}
