"""A program of the user's, with everything that it starts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

ShowOutput = Callable[[int, bytes], None]
"""Is given what was printed: 1 for standard output, 2 for standard error."""


class Command(Protocol):
    """Ends with who started it, however that one ends."""

    @property
    def code(self) -> int | None:
        """The program's exit code as shells tell it (128 and the number of a signal that ended it); None while it runs."""
        ...

    @property
    def gone(self) -> bool:
        """Whether none of what it started is left either."""
        ...

    @property
    def processes(self) -> int:
        """How many processes a launcher made of it, as far as their environment tells (WORLD_SIZE); else 1."""
        ...

    def signal(self, number: int) -> None:
        """To the program and what it started, as a terminal does."""
        ...

    def kill(self) -> None:
        """All of it, at once."""
        ...

    def wait(self, seconds: float) -> None:
        """Until something of this changes, or so long."""
        ...

    def close(self) -> None:
        """Kill what is left, and show what was printed to its end."""
        ...


StartCommand = Callable[[Sequence[str], ShowOutput, Mapping[str, str]], Command]
"""Starts a command without a shell. Settings go into its environment, but for those that ours has. Raises
`UserError` where there is no such program."""
