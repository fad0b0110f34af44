"""Find out whether a process has a file open for writing: by a read lease of the kernel, else by a scan of all processes."""

import os
from contextlib import suppress
from pathlib import Path

from gangline.core.errors import UserError
from gangline.posix import is_written

PROBE_BYTES = 65_536


def tells_writers(state: Path) -> bool:
    """Return whether leases detect writers here; some file systems do not support them. Raises `UserError` if the disk is full."""
    probe = state / "probe"
    try:
        with probe.open("wb") as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
            written = is_written(probe)
        closed = is_written(probe)
    except OSError as error:
        raise UserError(
            f"nothing can be written in {state}: {error.strerror}",
            hint="free some space, or name a folder on a larger disk in --checkpoints",
        ) from None
    finally:
        probe.unlink(missing_ok=True)
    return (written, closed) == (True, False)


def has_writer(path: Path) -> bool:
    """Return whether a process has the file open for writing, as far as this user may look into processes."""
    try:
        stat = path.stat()
    except FileNotFoundError:  # it was renamed or deleted since it was listed
        return False
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            found = handle.stat()
            if (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino) and _for_writing(handle):
                return True
    return False


def _for_writing(handle: Path) -> bool:
    flags = (handle.parents[1] / "fdinfo" / handle.name).read_text().split("flags:")[1].split()[0]
    return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))
