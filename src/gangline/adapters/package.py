"""The installed files of Gangline itself: what comes with it, and a wheel made of them.

A checkout has what comes with it at its root, its one home. A wheel holds a copy under `gangline/share`. The same names work from either.
"""

import base64
import hashlib
import os
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from gangline.core.errors import NotFound
from gangline.core.specs.templates import Preset, about_recipe
from gangline.ports.install.package import Wheel

NAME = "gangline"
INSTALLED = Path(__file__).parents[1]
"""The folder of the package."""
DOCS, RECIPES = "docs", "recipes"
PRESETS = f"{RECIPES}/presets"
FOLDERS = ("assets", DOCS, "examples", RECIPES)
CONSTRAINTS = "constraints.txt"
WHEEL = "Wheel-Version: 1.0\nGenerator: gangline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
WRITTEN = (1980, 1, 1, 0, 0, 0)
"""The time of every file in the wheel, the earliest that ZIP knows: equal files make an equal wheel."""
MODE = 0o644


def bundled(*names: str) -> Path:
    """Return where a file or folder that comes with Gangline is, by its name in a checkout: `recipes/tiny_subject.toml`."""
    packed = INSTALLED / "share"
    return (packed if packed.is_dir() else INSTALLED.parents[1]).joinpath(*names)


def bundled_presets() -> dict[str, Preset]:
    """Return the presets that come with Gangline, by their names. Several can be combined."""
    texts = {path.stem: path.read_text() for path in sorted(bundled(PRESETS).glob("*.toml"))}
    return {
        name: Preset(name=name, about=about_recipe(text), settings=tomllib.loads(text)) for name, text in texts.items()
    }


class InstalledPackage:
    """The `package` port. It keeps the wheel in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._made: Wheel | None = None

    def wheel(self) -> Wheel:
        with self._lock:
            if self._made is None or not self._made.file.exists():
                self._made = pack_wheel(self._folder)
            return self._made

    def constraints(self) -> str:
        return bundled(CONSTRAINTS).read_text()


def pack_wheel(folder: Path) -> Wheel:
    """Write a wheel of the installed files into `folder`, as the specification of binary distributions says
    (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        raise NotFound(
            "this server cannot hand out its wheel: it runs from files that pip did not install",
            hint="install the server with pip, or install workers by hand",
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{NAME}-{installed.version}-py3-none-any.whl"
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    _write(partial, installed)
    partial.rename(file)
    with file.open("rb") as written:
        return Wheel(file, hashlib.file_digest(written, "sha256").hexdigest())


def _write(file: Path, installed: Distribution) -> None:
    information = f"{NAME}-{installed.version}.dist-info"
    record = []
    # stored, not compressed: another version of zlib would make other bytes, and most of it are pictures and tensors
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as wheel:
        for name, content in [*sorted(_package_files()), *sorted(_information(installed, information))]:
            _add(wheel, name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(content)}\n")
        _add(wheel, f"{information}/RECORD", "".join([*record, f"{information}/RECORD,,\n"]).encode())


def _add(wheel: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, WRITTEN)
    entry.external_attr = MODE << 16
    wheel.writestr(entry, content)


def _package_files() -> Iterator[tuple[str, bytes]]:
    yield from _files_below(INSTALLED, NAME)
    if not (INSTALLED / "share").is_dir():
        for each in (*FOLDERS, CONSTRAINTS):
            yield from _files_below(bundled(each), f"{NAME}/share/{each}")


def _files_below(path: Path, name: str) -> Iterator[tuple[str, bytes]]:
    if path.is_file():
        yield name, path.read_bytes()
    elif path.name != "__pycache__":
        for each in path.iterdir():
            yield from _files_below(each, f"{name}/{each.name}")


def _information(installed: Distribution, folder: str) -> Iterator[tuple[str, bytes]]:
    for name in ("METADATA", "entry_points.txt"):
        yield f"{folder}/{name}", (installed.read_text(name) or "").encode()
    yield f"{folder}/WHEEL", WHEEL.encode()
    for path in installed.files or []:
        if path.parts[:2] == (folder, "licenses"):
            yield path.as_posix(), Path(str(installed.locate_file(path))).read_bytes()
