"""Files of this machine, and models, as a user names them: paths, or names on the hub."""

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.specs.fields import Base, HubBase
from gangline.data.bases import files_of_base, files_of_vae

HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+(@[\w./-]+)?$")


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files of this machine, to be uploaded under their names below a folder. A spec has them in its folder `into`, if there is one."""

    below: Path
    paths: list[Path]
    into: str = ""

    def beside(self, names: list[str]) -> "LocalFiles":
        return LocalFiles(self.below, [self.below / name for name in names], self.into)

    @property
    def names(self) -> list[str]:
        """The names below the folder of this machine."""
        return [path.relative_to(self.below).as_posix() for path in self.paths]

    def placed(self, sent: tuple[File, ...]) -> tuple[File, ...]:
        """Return these files, in the order of `paths`, under their names in the spec."""
        return tuple(replace(file, path=self._name(path)) for path, file in zip(self.paths, sent, strict=True))

    @property
    def bytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)

    def unsent(self) -> tuple[File, ...]:
        """Return the files as a spec lists them, without reading them: their hashes are stand-ins."""
        return tuple(self._file(path, hashlib.sha256(self._name(path).encode()).hexdigest()) for path in self.paths)

    def described(self) -> tuple[File, ...]:
        """Return the files as a spec lists them once they are sent. This reads all of them."""
        from gangline.wire.hashing import hashes

        return tuple(self._file(path, hashes(path)[0]) for path in self.paths)

    def _name(self, path: Path) -> str:
        name = path.relative_to(self.below).as_posix()
        return f"{self.into}/{name}" if self.into else name

    def _file(self, path: Path, sha256: str) -> File:
        return File(path=self._name(path), bytes=path.stat().st_size, sha256=sha256)


ModelChoice = Base | LocalFiles


def no_base() -> BadInput:
    return BadInput(
        "there is no base model",
        hint="pass --base with a folder, a .safetensors file, a hub id or a name that `gangline bases ls` lists",
    )


def find_base(given: str | Base) -> ModelChoice:
    """Return the base with this name, path or hub id. Raises `BadInput` if it is not a complete base."""
    if not isinstance(given, str):
        return given
    return as_hub(given) or _model(Path(given), files_of_base(Path(given)))


def find_vae(given: str | Base) -> ModelChoice:
    if not isinstance(given, str):
        return given
    return as_hub(given) or _model(Path(given), files_of_vae(Path(given)))


def _model(path: Path, files: list[Path]) -> LocalFiles:
    return LocalFiles(path if path.is_dir() else path.parent, files)


def as_hub(given: str) -> HubBase | None:
    if Path(given).exists() or not HUB_ID.match(given) or given.startswith((".", "/")):
        return None
    repo, _, revision = given.partition("@")
    return HubBase(repo=repo, revision=revision or "main")
