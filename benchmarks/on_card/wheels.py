"""The wheels that this machine lacks, with their sizes, and for which parts; and those that were brought, put on Python's path.

It knows wheels.json, which write_wheels.py made where there is a network, and needs of other packages only `packaging`.
"""

import importlib
import importlib.metadata
import json
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from benchmarks.on_card.part import Part

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("wheels.json")
BY_ITSELF = "torch"
"""Gigabytes with what it needs: a machine with a card has it, or gets it by its own means."""


@dataclass(frozen=True)
class Wheel:
    """One of this project's constraints.txt. `requires`: of this Python, on Linux."""

    version: str
    file: str
    bytes: int
    requires: tuple[str, ...]


@dataclass(frozen=True)
class Lacking:
    """`here`: the version that is installed and does not do, if there is one."""

    name: str
    wanted: str
    here: str
    wheel: Wheel | None

    def __str__(self) -> str:
        version = self.wheel.version if self.wheel else self.wanted
        size = megabytes([self]) if self.wheel else "of unknown size"
        return f"{self.name} {version}, {size}" + (f" (here is {self.here})" if self.here else "")


def canonical(name: str) -> str:
    return name.replace("_", "-").replace(".", "-").lower()


def table(python: str = f"{sys.version_info.major}.{sys.version_info.minor}") -> dict[str, Wheel]:
    """Return what is known for this Python: nothing for versions that the table does not have."""
    known: Mapping[str, Any] = json.loads(TABLE.read_text()).get(python, {})
    return {name: Wheel(**wheel | {"requires": tuple(wheel["requires"])}) for name, wheel in known.items()}


OF_SINGLE_PARTS = ("bitsandbytes", "pyarrow")
"""More megabytes than all others together."""


def declared(packages: Iterable[str] = ()) -> list[str]:
    """Return the requirements in pyproject.toml of a trainer, and these packages besides."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = (*project["dependencies"], *project["optional-dependencies"]["train"])
    besides = [next((one for one in every if one.startswith(name)), name) for name in packages]
    return [*(one for one in every if not one.startswith(OF_SINGLE_PARTS)), *besides]


def lacking(requirements: Iterable[str]) -> dict[str, Lacking]:
    """Return what these need, and what that needs in turn, and is not here in a version that does."""
    known, found = table(), dict[str, Lacking]()
    asked, seen = list(applying(requirements)), set[str]()
    while asked:
        one = asked.pop()
        if str(one) in seen:
            continue
        seen.add(str(one))
        name = canonical(one.name)
        here = version_of(name)
        if here and one.specifier.contains(here, prereleases=True):
            needs = [] if name == BY_ITSELF else importlib.metadata.requires(name) or []
            asked += applying(needs, one.extras)
        else:
            found[name] = Lacking(name, str(one), here, known.get(name))
            asked += applying(known[name].requires) if name in known else []
    return found


def applying(requirements: Iterable[str], extras: Iterable[str] = ()) -> Iterator[Any]:
    """Yield those whose markers are true here, with these extras of what names them."""
    from packaging.requirements import Requirement

    for one in map(Requirement, requirements):
        if not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            one.marker = None
            yield one


def version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def lacking_by_part(wanted: Iterable[Part]) -> dict[str, dict[str, Lacking]]:
    needed = {part.name: part.packages for part in wanted}
    found = {packages: lacking(declared(packages)) for packages in set(needed.values())}
    return {name: found[packages] for name, packages in needed.items()}


def listed(by_part: Mapping[str, Mapping[str, Lacking]]) -> Iterator[str]:
    """Yield lines for people: each wheel that is lacking with its size and the parts that need it, and how to bring them."""
    every = {name: one for found in by_part.values() for name, one in found.items()}
    if not every:
        return
    yield f"lacking here, for Python {sys.version_info.major}.{sys.version_info.minor}:"
    for name, one in sorted(every.items()):
        needed_by = [part for part, found in by_part.items() if name in found]
        yield f"  {one}: {'every part' if len(needed_by) == len(by_part) else ', '.join(needed_by)}"
    for count, parts in together(by_part):
        yield f"  {megabytes(every[name] for name in count)} for {parts}"
    yield from how_to_bring(every)


def together(by_part: Mapping[str, Mapping[str, Lacking]]) -> Iterator[tuple[set[str], str]]:
    """Yield the wheels that parts have to bring alike, and those parts; the smallest come first."""
    alike: dict[frozenset[str], list[str]] = {}
    for part, found in by_part.items():
        if found:
            alike.setdefault(frozenset(found), []).append(part)
    for names, parts in sorted(alike.items(), key=lambda item: len(item[0])):
        yield set(names), ", ".join(parts)
    if (every := frozenset().union(*alike)) not in alike:
        yield set(every), "all of them"


def megabytes(those: Iterable[Lacking]) -> str:
    return f"{sum(one.wheel.bytes for one in those if one.wheel) / 1e6:.2f} MB"


def how_to_bring(every: Mapping[str, Lacking]) -> Iterator[str]:
    wheels = {name: one.wheel for name, one in sorted(every.items()) if one.wheel}
    if BY_ITSELF in every:
        yield f"{every[BY_ITSELF].wanted} comes with its CUDA by this machine's own means"
    if others := sorted(set(every) - set(wheels) - {BY_ITSELF}):
        yield f"of {', '.join(others)} wheels.json knows no wheel for this Python"
    if wheels:
        tags = {
            tag for wheel in wheels.values() for tag in wheel.file.removesuffix(".whl").rpartition("-")[2].split(".")
        }
        platforms = [f"--platform {tag}" for tag in sorted(tags - {"any"})]
        names = [f"{name}=={wheel.version}" for name, wheel in wheels.items()]
        python = f"--python-version {sys.version_info.major}.{sys.version_info.minor}"
        yield "fetch them where there is a network, and say it again with --wheels wheels:"
        yield f"  pip download --no-deps --only-binary=:all: {python} {' '.join(platforms)} -d wheels {' '.join(names)}"


def unpack(folder: Path, target: Path, wanted: Iterable[Part]) -> None:
    """Unpack into `target`, which goes on Python's path, those wheels of `folder` that parts lack here: nothing is installed."""
    target.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(target))
    files = {canonical(path.name.partition("-")[0]): path for path in sorted(folder.glob("*.whl"))}
    if not importlib.util.find_spec("packaging") and "packaging" in files:
        unpack_one(files.pop("packaging"), target)
    while here := files.keys() & {name for found in lacking_by_part(wanted).values() for name in found}:
        for name in here:
            unpack_one(files.pop(name), target)


def unpack_one(wheel: Path, target: Path) -> None:
    with ZipFile(wheel) as content:
        content.extractall(target)
    for kind in ("purelib", "platlib"):
        for folder in target.glob(f"*.data/{kind}"):
            shutil.copytree(folder, target, dirs_exist_ok=True)
    importlib.invalidate_caches()
