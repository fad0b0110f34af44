"""The server's SQL, one text for every engine: statements by name, and migrations by number."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from gangline.core.errors import GanglineError

HEAD = re.compile(r"^-- (name|part): (\w+)$", re.MULTILINE)
PART = re.compile(r"\{(\w+)\}")
"""Where a statement has a part that several have in common."""
COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


@cache
def statements() -> dict[str, str]:
    """Return every statement of the server by its name, with parameters as `:name`. A guarded write changes no row if another process was
    first; the store then rolls back the whole transaction."""
    return split_statements(queries())


def queries() -> dict[str, str]:
    """Read the files of `queries/`, one for each subject, by their paths below it."""
    return dict(sorted(_texts(files("gangline.adapters.store").joinpath("queries"))))


def _texts(folder: Traversable, above: str = "") -> Iterator[tuple[str, str]]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _texts(path, f"{above}{path.name}/")
        elif path.name.endswith(".sql"):
            yield f"{above}{path.name}", path.read_text()


def split_statements(texts: dict[str, str]) -> dict[str, str]:
    """Split texts into their statements, with the parts that they share in them: `{part}` in a statement is the text of `-- part: part`.

    A name may occur only once: of two statements with one name, one would never run.
    """
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    place = dict[str, str]()
    for file, text in texts.items():
        pieces = HEAD.split(text)[1:]
        for what, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            assert name not in place, f"the statement {name} is in {place[name]} and in {file}"
            found[what][name], place[name] = COMMENT.sub("", body).strip(), file

    def filled(body: str) -> str:
        return PART.sub(lambda part: filled(found["part"][part[1]]), body)

    return {name: filled(body) for name, body in found["name"].items()}


def migrations() -> list[tuple[int, str]]:
    """Return the migrations in order; the number is the schema's version afterwards."""
    folder = files("gangline.adapters.store").joinpath("migrations")
    return sorted((int(name.rpartition("/")[2][:4]), text) for name, text in _texts(folder))


def refuse_newer(version: int, database: str) -> None:
    """Raise `GanglineError` if this Gangline does not know the schema."""
    known = migrations()[-1][0]
    if version > known:
        raise GanglineError(
            f"the database {database} was written by a newer Gangline (schema {version}; this one knows up to {known})",
            hint="upgrade Gangline",
        )
