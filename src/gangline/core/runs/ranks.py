"""Combine the exit codes of a run's ranks."""

from gangline.core.runs.contract import EXIT_DONE, EXIT_OUT_OF_MEMORY, EXIT_PEER_GONE, EXIT_STOPPED

PATIENCE_S = {EXIT_STOPPED: 60, EXIT_PEER_GONE: 5}
"""Seconds that the other ranks may continue after one exits with this code: they may still be writing, or the rank that failed has not
exited yet. After any other failure they are stopped at once, as they would wait for a rank that no longer answers."""


def more_telling(found: int, code: int) -> int:
    """Return the exit code that better explains why a run ended; of two failures the first, as the other may follow from it."""
    return code if _weight(code) > _weight(found) else found


def _weight(code: int) -> int:
    return {EXIT_DONE: 0, EXIT_PEER_GONE: 1, EXIT_OUT_OF_MEMORY: 3}.get(code, 2)
