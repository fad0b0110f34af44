"""A public hub of models, where a name and a revision stand for files."""

from typing import Protocol


class Hub(Protocol):
    def pin(self, repo: str, revision: str) -> str:
        """The commit that `revision` of `repo` stands for now. Raises `NotFound`, `Denied` or `Unreachable`."""
        ...
