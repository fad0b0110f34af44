"""How a test looks again and again at what another process does: without keeping a core busy, which that process needs."""

from collections.abc import Callable
from threading import Event

MOMENT_S = 0.01


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds. The test's time-out ends what never happens."""
    while not condition():
        a_moment()


def a_moment() -> None:
    """Wait between two looks."""
    Event().wait(MOMENT_S)
