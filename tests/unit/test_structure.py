"""The tree stays one that is read in minutes: short files, small folders, and no circles between files or between rooms."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePath

import grimp
import pytest

from tests.conftest import ROOT

LINES_MAX, FILES_MAX = 350, 15
EXCEPTIONS: Mapping[str, str] = {}
"""Files and folders that may be larger, each with its reason. There is none."""


def checked_out(root: Path) -> Iterator[PurePath]:
    """Yield the files of the package as a fresh checkout has them: without caches and what else `.gitignore` names.

    Git itself is not asked: a machine that runs the tests need not have it.
    """
    ignored = [pattern.rstrip("/") for pattern in (ROOT / ".gitignore").read_text().split()]
    for path in sorted((root / "src").rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and not any(fnmatch(part, pattern) for part in name.parts for pattern in ignored):
            yield name


FILES = tuple(checked_out(ROOT))


def lines_of(path: Path) -> int:
    """Return how many lines a text has; 0 where it is none."""
    try:
        return len(path.read_text().splitlines())
    except UnicodeDecodeError:
        return 0


def too_long(root: Path, names: Iterable[PurePath]) -> dict[str, int]:
    lines = {str(name): lines_of(root / name) for name in names}
    return {name: count for name, count in lines.items() if count > LINES_MAX and name not in EXCEPTIONS}


def too_full(names: Iterable[PurePath]) -> dict[str, int]:
    """Return folders of more files than a reader takes in at a glance; what lies in their own folders does not count."""
    folders = [str(name.parent) for name in names]
    counts = {folder: folders.count(folder) for folder in set(folders)}
    return {folder: count for folder, count in counts.items() if count > FILES_MAX and folder not in EXCEPTIONS}


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return what each module imports of the package, in functions and for types alone too."""
    graph = grimp.build_graph("gangline", cache_dir=None)
    here = {".".join(name.with_suffix("").parts[1:]).removesuffix(".__init__") for name in FILES}
    return {name: frozenset(graph.find_modules_directly_imported_by(name)) for name in graph.modules if name in here}


def rooms_of(modules: Mapping[str, frozenset[str]]) -> dict[str, set[str]]:
    """Return the same between rooms. A room is a folder of a layer, or a file that lies beside its layer's folders."""
    rooms: dict[str, set[str]] = {}
    for name, imported in modules.items():
        found = {room_of(other) for other in imported}
        rooms.setdefault(room_of(name), set()).update(found - {room_of(name)})
    return rooms


def room_of(module: str) -> str:
    """Return the layer and the room in it: `gangline.core.jobs` of `gangline.core.jobs.claim`."""
    return ".".join(module.split(".")[:3])


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a way that comes back to where it began; empty where there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_no_file_of_the_package_is_too_long_to_read_at_once() -> None:
    assert too_long(ROOT, FILES) == {}


def test_no_folder_of_the_package_holds_more_files_than_a_glance_takes_in() -> None:
    assert too_full(FILES) == {}


def test_no_module_imports_itself_over_others() -> None:
    assert len(imports()) > 300
    assert circle(imports()) == []


def test_no_room_imports_itself_over_others() -> None:
    rooms = rooms_of(imports())
    assert rooms["gangline.core.jobs"] >= {"gangline.core.money", "gangline.core.job"}
    assert circle(rooms) == []


@pytest.mark.parametrize(
    ("modules", "between_modules", "between_rooms"),
    [
        ({"gangline.core.jobs.a": ["gangline.core.runs.b"], "gangline.core.runs.b": []}, False, False),
        (
            {"gangline.core.jobs.a": ["gangline.core.jobs.b"], "gangline.core.jobs.b": ["gangline.core.jobs.a"]},
            True,
            False,
        ),
        (
            {"gangline.core.jobs.a": ["gangline.core.runs.b"], "gangline.core.runs.c": ["gangline.core.jobs.d"]},
            False,
            True,
        ),
        (
            {"gangline.core.views": ["gangline.core.jobs.a"], "gangline.core.jobs.a": ["gangline.core.job"]},
            False,
            False,
        ),
    ],
)
def test_a_circle_is_seen(modules: dict[str, list[str]], between_modules: bool, between_rooms: bool) -> None:
    arrows = {name: frozenset(imported) for name, imported in modules.items()}
    assert (bool(circle(arrows)), bool(circle(rooms_of(arrows)))) == (between_modules, between_rooms)


def test_what_git_ignores_is_not_seen(tmp_path: Path) -> None:
    for name in ("a.py", "__pycache__/a.cpython-311.pyc", "gangline.egg-info/PKG-INFO"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).touch()
    assert list(checked_out(tmp_path)) == [PurePath("src/a.py")]


def test_what_is_too_long_or_too_full_is_seen(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("\n" * (LINES_MAX + 1))
    (tmp_path / "short.py").write_text("\n" * LINES_MAX)
    (tmp_path / "packed.gz").write_bytes(b"\x1f\x8b\xff\n" * 1000)
    names = [PurePath(name) for name in ("long.py", "short.py", "packed.gz")]
    assert too_long(tmp_path, names) == {"long.py": LINES_MAX + 1}
    folder = [PurePath(f"full/{number}.py") for number in range(FILES_MAX + 1)]
    assert too_full([*folder, *names, *(PurePath(f"half/{number}.py") for number in range(FILES_MAX))]) == {"full": 16}
