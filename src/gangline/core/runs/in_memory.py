"""Decide whether a run's checkpoint or result lies in the memory of its node or on its disk, and say so."""

from pathlib import Path

from gangline.core.words import size_words

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - below it, a folder of one's own that others may only pass through
SHARE_MAX = 0.25
"""The largest share of the memory that is free which the checkpoints and results of a run may take."""
ON_DISK = "checkpoints are written to disk"
AT_ONCE = 2
"""The number of checkpoints that must fit: one that is being uploaded, and one that is being written."""


def lies_in_memory(size: int, *, held: int, free: int) -> bool:
    """Return whether a checkpoint of `size` bytes goes to memory, where `held` bytes of its run lie already and `free` are left.

    Two of its size must fit into `SHARE_MAX` of what would be free without this run, and so must this one beside what is held.

    >>> lies_in_memory(1, held=0, free=8), lies_in_memory(1, held=0, free=7), lies_in_memory(1, held=2, free=6)
    (True, False, False)
    """
    return max(AT_ONCE * size, held + size) <= SHARE_MAX * (held + free)


def largest_in_memory(free: int) -> int:
    """Return the bytes of the largest checkpoint that goes to memory of which `free` bytes are free."""
    return int(SHARE_MAX * free / AT_ONCE)


def place_sentence(size: int, *, held: int, free: int, fits: bool) -> str:
    """Return where a run's checkpoints of `size` bytes lie from now on, and why, for its log."""
    if fits:
        return f"checkpoints are kept in memory: {size_words(size)} each, and {size_words(free)} are free"
    return f"{ON_DISK}: {lack_of_memory(size, held=held, free=free)}"


def lack_of_memory(size: int, *, held: int, free: int) -> str:
    """Return why checkpoints of `size` bytes, 0 if that is not known, do not lie in memory."""
    if not size:
        return f"what is kept there has {size_words(held)}, and {size_words(free)} of memory are free"
    beside = f" beside {size_words(held)} that are kept there" if held else ""
    return f"{AT_ONCE} of {size_words(size)}{beside} do not fit into a quarter of the {size_words(free)} of memory that are free"


def node_place(folder: str, free: int) -> str:
    """Return where the checkpoints of a node's runs lie that has `free` bytes in `folder`, in memory."""
    return f"memory, up to {size_words(largest_in_memory(free))} each ({size_words(free)} are free in {folder}), else on disk"
