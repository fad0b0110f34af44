"""The server's SQL, one text for every engine: statements by name, and migrations by number."""

import re
from functools import cache
from importlib.resources import files

from gangline.core.errors import GanglineError

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


@cache
def statements() -> dict[str, str]:
    """Every statement of queries.sql by its name, with parameters as `:name`."""
    text = files("gangline.adapters.store").joinpath("queries.sql").read_text()
    parts = NAME.split(text)[1:]
    found = {name: COMMENT.sub("", body).strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}
    assert len(found) == len(parts) // 2, "two statements have the same name"
    return found


def migrations() -> list[tuple[int, str]]:
    """In order; the number is that of the schema afterwards."""
    folder = files("gangline.adapters.store").joinpath("migrations")
    found = [(int(path.name[:4]), path.read_text()) for path in folder.iterdir() if path.name.endswith(".sql")]
    return sorted(found)


def refuse_newer(version: int, database: str) -> None:
    """Raises `GanglineError` where the schema is one that this Gangline does not know."""
    known = migrations()[-1][0]
    if version > known:
        raise GanglineError(
            f"the database {database} was written by a newer Gangline (schema {version}, known {known})",
            hint="upgrade Gangline",
        )
