"""What the exit codes of a run's ranks say together."""

from gangline.core.runs.contract import EXIT_DONE, EXIT_OUT_OF_MEMORY, EXIT_PEER_GONE, EXIT_STOPPED

PATIENCE_S = {EXIT_STOPPED: 60, EXIT_PEER_GONE: 5}
"""So long may the others go on: they may still be writing, or the one that is gone has not yet said why. After any other failure none
may: they would wait for a rank that does not answer any more."""


def more_telling(found: int, code: int) -> int:
    """Return which of two exit codes says more about why a run ended. Of two failures the first does: the other may follow from it."""
    return code if _weight(code) > _weight(found) else found


def _weight(code: int) -> int:
    return {EXIT_DONE: 0, EXIT_PEER_GONE: 1, EXIT_OUT_OF_MEMORY: 3}.get(code, 2)
