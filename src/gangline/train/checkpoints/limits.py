"""The microbatch sizes that fit the phases of a run here: a note in its directory, for ranks that are started again.

The search cannot happen inside a process group: an error in a backward pass leaves DDP and FSDP in a state in which they train nothing. So
a rank that runs out of memory notes what to try next and ends, and the launcher starts all ranks again.
"""

import json
import os
from pathlib import Path

NOTE = "microbatch.json"


def read_limits(directory: Path) -> dict[int, int]:
    """Return the microbatch size to try, for each phase that memory ran out in."""
    try:
        return {int(phase): samples for phase, samples in json.loads((directory / NOTE).read_text()).items()}
    except FileNotFoundError:
        return {}


def lower_limit(directory: Path, phase: int, samples: int) -> None:
    """Write the note atomically: several ranks may write it at once, all with the same content."""
    note = {str(number): limit for number, limit in (read_limits(directory) | {phase: samples}).items()}
    partial = directory / f".{NOTE}.{os.getpid()}"
    partial.write_text(json.dumps(note))
    partial.rename(directory / NOTE)


def forget_limits(directory: Path) -> None:
    (directory / NOTE).unlink(missing_ok=True)
