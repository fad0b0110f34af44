"""Choose the microbatch: how many samples a GPU computes at a time. This module knows numbers only, no torch."""

from collections.abc import Callable

USED_MAX = 0.9
"""The share of memory that the first guess may fill: the rest is for memory that does not grow linearly, and for fragmentation."""


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest power of two, or `most` itself, that fits; 0 if not even 1 does."""
    found, count = 0, 1
    while fits(count):
        found = count
        if count == most:
            break
        count = min(2 * count, most)
    return found


def first_guess(peaks: tuple[int, int], *, room: int, to_come: int, most: int) -> int:
    """Return how many of `most` samples are expected to fit; at least 1, as one was seen to fit.

    All sizes are in bytes: `peaks` are the peak allocations of a pass with one sample and with two, `room` is what this process may
    allocate in total, `to_come` is what later steps keep in addition.
    """
    one, two = peaks
    each = max(0, two - one)
    return max(1, largest(most, lambda count: one + (count - 1) * each + to_come <= USED_MAX * room))


def settled(asked: int | None, limit: int, kept: int) -> int:
    """Return the microbatch of a phase, or 0 if it must still be found.

    The spec's (`asked`) is used if given; else the smaller of the one that was found to fit in this run (`limit`) and the one that the
    checkpoint was made with (`kept`), where 0 means unknown.
    """
    return asked or min((known for known in (limit, kept) if known), default=0)
