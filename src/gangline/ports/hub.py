"""A public hub of models, where a name and a revision identify files."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file on the hub. `sha256` is None for small files, which the hub knows by another hash."""

    path: str
    bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A model at a revision. A `gated` one can be read only with a token that its owner admitted.

    `licence` may be empty, and so may `pipeline`, its class in diffusers.
    """

    commit: str
    gated: bool
    licence: str
    files: tuple[HubFile, ...]
    pipeline: str = ""


class Hub(Protocol):
    """Every call may raise `NotFound`, `Denied` or `Unreachable`."""

    def pin(self, repo: str, revision: str) -> str:
        """Return the commit that `revision` of `repo` stands for now. A commit stands for itself."""
        ...

    def look(self, repo: str, revision: str) -> HubModel: ...

    def read(self, repo: str, commit: str, path: str, part: range | None = None) -> bytes:
        """Return the content of a file, or a part of it."""
        ...
