"""Processes that a test did not start itself: what the kernel says of them."""

from pathlib import Path


def is_running(pid: int) -> bool:
    """A zombie runs no more: where the first process of a container reaps nobody, what has lost its parent stays one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def words_of(pid: int) -> str:
    """Its command's words, each with a zero behind it: none of a process that has ended, even while it is read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def written_bytes(pid: int) -> int:
    """Return how many bytes a process and its threads have written to disks, as the kernel counts them (proc(5)): none on a tmpfs."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))
