"""What parts train: SDXL and Stable Diffusion 2 with random weights, or tiny ones. Made once, kept in a folder."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Made:
    """A base's folder, and its files as a spec names them: hashing gigabytes anew in each part would take longer than many cases."""

    folder: Path
    files: tuple[Any, ...]


@dataclass(frozen=True)
class Scale:
    """SDXL and Stable Diffusion 2 as they are, or tiny ones."""

    tiny: bool
    folder: Path

    @property
    def side(self) -> int:
        return 64 if self.tiny else 1024

    @property
    def exact_side(self) -> int:
        return 64 if self.tiny else 512

    @property
    def precision(self) -> str:
        return "fp32" if self.tiny else "bf16"

    @property
    def batches(self) -> dict[int, int]:
        """By side, those of the two published phases on one card."""
        return {32: 4} if self.tiny else {256: 256, 512: 128}

    @cached_property
    def sdxl(self) -> Made:
        from benchmarks.random_bases import files_of, make_base
        from tests.inputs import BASE

        return Made(BASE, files_of(BASE)) if self.tiny else self._once("sdxl", make_base)

    @cached_property
    def sd2(self) -> Made:
        return self._once("sd2", make_tiny_sd2 if self.tiny else make_sd2)

    def _once(self, name: str, make: Callable[[Path], object]) -> Made:
        from benchmarks.random_bases import files_of

        from gangline.core.files import File

        folder, stamp = self.folder / name, self.folder / f"{name}.made"
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)  # half of it, where its making was cut off
            make(folder)
            stamp.write_text(json.dumps([asdict(file) for file in files_of(folder)]))
        return Made(folder, tuple(File(**file) for file in json.loads(stamp.read_text())))


def make_sd2(folder: Path) -> None:
    from benchmarks.random_bases import make_sd2

    make_sd2(folder)


def make_tiny_sd2(folder: Path) -> None:
    from tests.train.bases import save_tiny

    save_tiny(folder, "sd2")
