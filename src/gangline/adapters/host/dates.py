"""When restored files were written: some scripts go on from the newest by its time."""

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Event

FEW, TICK_S = 256, 0.001
"""Of so many files the order in which they were written is restored in their inodes' times as well."""


def date_files(come: Path, paths: list[str], written_ns: Mapping[str, int]) -> None:
    """Each file gets back when it was written; and in that order when it was changed last, as some scripts go by that."""
    changed_ns = 0
    for path in sorted(paths, key=lambda path: (written_ns.get(path, 0), path)):
        at = come / path
        when_ns = written_ns.get(path) or at.stat().st_mtime_ns
        os.utime(at, ns=(when_ns, when_ns))
        while len(paths) <= FEW and at.stat().st_ctime_ns <= changed_ns:  # until the kernel's clock has moved on
            Event().wait(TICK_S)
            os.utime(at, ns=(when_ns, when_ns))
        changed_ns = at.stat().st_ctime_ns
