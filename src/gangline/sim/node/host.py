"""Simulate the disk of a node."""

from pathlib import Path
from typing import Any

from gangline.core.files import UNKNOWN_SHA256, File
from gangline.core.runs import contract
from gangline.core.runs.contract import Manifest
from gangline.core.specs.spec import with_defaults
from gangline.ports.trainer import Saved


class SimHost:
    """The `host` port of a node: the files on its disk. The cache lives as long as the node."""

    def __init__(self) -> None:
        self.files: dict[Path, str] = {}
        self.specs: dict[Path, dict[str, Any]] = {}
        self.resume: dict[Path, Manifest] = {}
        self.saved: dict[Path, Saved] = {}
        self.unfinished: dict[Path, File] = {}

    def cached(self, sha256: str) -> Path:
        return Path(f"/cache/{sha256}")

    def lay_out(self, attempt: str, spec: dict[str, Any]) -> Path:
        directory = Path(f"/runs/{attempt}")
        self.specs[directory] = with_defaults(spec)
        return directory

    def input_path(self, directory: Path, path: str) -> Path:
        return directory / contract.INPUTS / path

    def place_cached(self, directory: Path, path: str, file: File) -> bool:
        return self.cached(file.sha256) in self.files

    def make_room(self, room_bytes: int) -> None:
        """Do nothing: a simulated disk is never full."""

    def remember_base(self, base: str, files: tuple[File, ...]) -> None:
        """Do nothing: no simulated node starts again with the same disk."""

    def bases(self) -> tuple[str, ...]:
        return ()

    def place_prepared(self, directory: Path, key: str, manifest: dict[str, Any]) -> None:
        raise AssertionError("simulated trainers prepare nothing")

    def leave_out(self, directory: Path, parts: tuple[str, ...]) -> None:
        assert not parts, "nothing is prepared, so nothing is left out"

    def take_back(self, directory: Path) -> None:
        """Do nothing: simulated trainers make no links."""

    def place_checkpoint(
        self, directory: Path, step: int, manifest: dict[str, Any], size: int, *, on_disk: bool = False
    ) -> Path:
        self.resume[directory] = contract.parse_manifest(manifest)
        return directory / contract.RESUME / contract.checkpoint_name(step)

    def drop_resumed(self, directory: Path) -> None:
        self.resume.pop(directory, None)

    def remove_run(self, directory: Path) -> None:
        self.discard(directory)

    def discard(self, path: Path) -> None:
        if self.saved.pop(path, None):
            return
        if path.parent.name == contract.RESUME:
            self.resume.pop(path.parent.parent, None)
        if path in self.specs:
            del self.specs[path]
            self.unfinished = {at: file for at, file in self.unfinished.items() if not at.is_relative_to(path)}
            self.resume.pop(path, None)
            self.saved = {folder: saved for folder, saved in self.saved.items() if not folder.is_relative_to(path)}
            self.files = {file: sha256 for file, sha256 in self.files.items() if not file.is_relative_to(path)}

    def written(self, path: Path, file: File) -> File:
        """Return what a file will be whose parts are uploaded while it is written; any other one is `file` itself."""
        saved = self.saved.get(path.parent)
        found = saved.manifest.files[0] if saved else self.unfinished.get(path.parent, file)
        return found if file.sha256 == UNKNOWN_SHA256 else file

    def arrived(self, path: Path, file: File) -> None:
        self.files[path] = file.sha256
