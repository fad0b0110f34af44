"""A public hub of models, where a name and a revision stand for files."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """`sha256` is None of small files, which the hub knows by another hash."""

    path: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """What a revision stands for now. A `gated` one is read by those alone whose token its owner let in; `licence` may be empty,
    and `pipeline`, its class in diffusers."""

    commit: str
    gated: bool
    licence: str
    files: tuple[HubFile, ...]
    pipeline: str = ""


class Hub(Protocol):
    """Every call may raise `NotFound`, `Denied` or `Unreachable`."""

    def pin(self, repo: str, revision: str) -> str:
        """The commit that `revision` of `repo` stands for now. A commit stands for itself."""
        ...

    def look(self, repo: str, revision: str) -> HubModel: ...

    def read(self, repo: str, commit: str, path: str, part: range | None = None) -> bytes:
        """A file, or a part of it."""
        ...
