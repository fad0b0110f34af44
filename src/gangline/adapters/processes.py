"""What Linux offers a parent process."""

import ctypes
import signal

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)  # loaded before the fork: a child must not


def die_with_parent() -> None:
    """Call between fork and exec: the kernel kills this process when the thread that forked it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
