"""How many samples a GPU computes at a time, from numbers alone."""

from collections.abc import Callable

USED_MAX = 0.9
"""The part of the memory that a first guess fills: the rest is for what grows otherwise than with the samples, and for fragments."""


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest power of two, or `most` itself, that fits; 0 where not even 1 does."""
    found, count = 0, 1
    while fits(count):
        found = count
        if count == most:
            break
        count = min(2 * count, most)
    return found


def first_guess(peaks: tuple[int, int], *, room: int, to_come: int, most: int) -> int:
    """Return how many of `most` samples are expected to fit; at least 1, which was seen to.

    All in bytes: `peaks` are the most that a pass of one sample and of two had allocated, `room` is what this process may allocate in
    all, `to_come` what later steps keep besides.
    """
    one, two = peaks
    each = max(0, two - one)
    return max(1, largest(most, lambda count: one + (count - 1) * each + to_come <= USED_MAX * room))


def settled(asked: int | None, limit: int, kept: int) -> int:
    """Return the microbatch of a phase, or 0 where it is to be found: what its spec asks for, else the least of what memory was found
    to have room for in this run (`limit`) and what its checkpoint was made with (`kept`); 0 says that nothing is known."""
    return asked or min((known for known in (limit, kept) if known), default=0)
