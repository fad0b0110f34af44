"""How a test looks again and again at what another process does: without keeping a core busy, which that process needs."""

from threading import Event

MOMENT_S = 0.01


def a_moment() -> None:
    """Wait between two looks. The test's time-out ends what never happens."""
    Event().wait(MOMENT_S)
