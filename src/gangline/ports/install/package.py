"""The program itself, as a server hands it to machines that shall work for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel of the version that runs here: its file, whose name tools read, and the file's SHA-256."""

    file: Path
    sha256: str


class Package(Protocol):
    def wheel(self) -> Wheel:
        """Return the wheel, which is made at the first call; its bytes depend on the installed files only.

        Raise `NotFound` if it cannot be made.
        """
        ...

    def constraints(self) -> str:
        """Return the versions of libraries that this version was tested with, as pip reads them."""
        ...
