"""What is too long for every change runs a tenth each time: another one after every change of `src` or `tests`, all of them nightly.

The tenth is a function of the sources, so that a failure repeats where it was found: `pytest --tenth N` plays it again.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TENTHS = 10
ALL = "all"
READ = frozenset({".py", ".sql", ".toml", ".json"})


def of_sources(folders: Iterable[Path] = (ROOT / "src", ROOT / "tests")) -> int:
    """Return the tenth, 0 to 9, that these sources choose."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in READ and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return int(digest.hexdigest(), 16) % TENTHS


def chosen(config: pytest.Config) -> int | None:
    """Return the tenth that this run plays; None stands for all of them."""
    return config.stash[CHOSEN]


CHOSEN = pytest.StashKey[int | None]()


def choose(config: pytest.Config) -> None:
    """Settle it once for a run: by `--tenth`, else by the sources; a test that is named by its id always runs."""
    said = config.getoption("--tenth")
    named = any("::" in argument for argument in config.args)
    everything = said == ALL or (said is None and named)
    config.stash[CHOSEN] = None if everything else of_sources() if said is None else int(said)


def left_out(items: Iterable[pytest.Item], tenth: int | None) -> list[pytest.Item]:
    """Return the tests marked `tenths` that belong to another tenth: they are dealt out in turn, file by file."""
    marked: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("tenths"):
            marked.setdefault(item.path, []).append(item)
    if tenth is None:
        return []
    return [
        item
        for path, found in marked.items()
        for number, item in enumerate(found, start=of_file(path))
        if number % TENTHS != tenth
    ]


def of_file(path: Path) -> int:
    """Return where the deal begins in a file, so that the first tests of all files do not meet in one tenth."""
    return int(hashlib.sha256(path.name.encode()).hexdigest(), 16) % TENTHS
