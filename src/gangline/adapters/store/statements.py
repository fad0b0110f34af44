"""The server's SQL, one text for every engine: statements by name, and migrations by number."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from gangline.core.errors import GanglineError

NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


@cache
def statements() -> dict[str, str]:
    """Return every statement of the server by its name, with parameters as `:name`. A write that carries a guard changes no row when
    somebody else moved on; the store then undoes the whole transaction."""
    return split_statements(queries())


def queries() -> dict[str, str]:
    """Read the files of `queries/`, one for a subject, by their names; of its folders by their paths."""
    return dict(sorted(_texts(files("gangline.adapters.store").joinpath("queries"))))


def _texts(folder: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _texts(path, f"{above}{path.name}/")
        elif path.name.endswith(".sql"):
            yield f"{above}{path.name}", path.read_text()


def split_statements(texts: dict[str, str]) -> dict[str, str]:
    """Split texts into their statements. A name may stand once only: the other statement of that name would never run."""
    found, place = dict[str, str](), dict[str, str]()
    for file, text in texts.items():
        parts = NAME.split(text)[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, f"the statement {name} stands in {place[name]} and in {file}"
            found[name], place[name] = COMMENT.sub("", body).strip(), file
    return found


def migrations() -> list[tuple[int, str]]:
    """In order; the number is that of the schema afterwards."""
    folder = files("gangline.adapters.store").joinpath("migrations")
    return sorted((int(name.rpartition("/")[2][:4]), text) for name, text in _texts(folder))


def refuse_newer(version: int, database: str) -> None:
    """Raises `GanglineError` where the schema is one that this Gangline does not know."""
    known = migrations()[-1][0]
    if version > known:
        raise GanglineError(
            f"the database {database} was written by a newer Gangline (schema {version}, known {known})",
            hint="upgrade Gangline",
        )
