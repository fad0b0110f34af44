"""Run a user's program together with every process that it starts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

ShowOutput = Callable[[int, bytes], None]
"""Called with the program's output: file descriptor (1: standard output, 2: standard error) and bytes."""


class Command(Protocol):
    """A running program. It ends when the process that started it ends, however that happens."""

    @property
    def code(self) -> int | None:
        """The program's exit code as shells report it (128 plus the number of a signal that ended it); None while it runs."""
        ...

    @property
    def gone(self) -> bool:
        """Return whether the program and every process that it started are gone."""
        ...

    @property
    def processes(self) -> int:
        """The number of processes that a launcher started for it, as far as their environment shows (WORLD_SIZE); else 1."""
        ...

    def signal(self, number: int) -> None:
        """Send a signal to the program and the processes that it started, as a terminal does."""
        ...

    def kill(self) -> None:
        """Kill all its processes at once."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until one of these properties changes, at most this long."""
        ...

    def close(self) -> None:
        """Kill the remaining processes, and show the rest of their output."""
        ...


StartCommand = Callable[[Sequence[str], ShowOutput, Mapping[str, str]], Command]
"""Starts a command without a shell. Settings are added to its environment, unless our own environment has them already.

Raises `UserError` if there is no such program.
"""
