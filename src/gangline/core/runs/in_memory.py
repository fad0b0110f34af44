"""Decide whether a run's checkpoint or result lies in the memory of its node or on its disk, and say so."""

SHARE_MAX = 0.25
"""The largest share of the memory that is free which the checkpoints and results of a run may take."""
AT_ONCE = 2
"""The number of checkpoints that must fit: one that is being uploaded, and one that is being written."""
GB = 1e9


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
        return f"checkpoints are kept in memory: {size / GB:.2f} GB each, and {free / GB:.1f} GB are free"
    beside = f" beside {held / GB:.2f} GB that are kept there" if held else ""
    return (
        f"checkpoints are written to disk: {AT_ONCE} of {size / GB:.2f} GB{beside} do not fit into a quarter of the {free / GB:.1f} GB of "
        "memory that are free"
    )


def node_place(folder: str, free: int) -> str:
    """Return where the checkpoints of a node's runs lie that has `free` bytes in `folder`, in memory."""
    return f"memory, up to {largest_in_memory(free) / GB:.2f} GB each ({free / GB:.1f} GB are free in {folder}), else on disk"
