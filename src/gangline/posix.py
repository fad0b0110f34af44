"""What Linux offers a process that Python has no one call for."""

import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # loaded before the fork: a child must not


def die_with_parent() -> None:
    """Call between fork and exec: the kernel kills this process when the thread that forked it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def flush(path: Path) -> None:
    """A file's bytes, or a folder's names, are on the disk on return."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
