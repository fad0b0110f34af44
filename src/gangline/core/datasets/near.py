"""Find photos that look alike by their difference hashes (dHash, N. Krawetz, "Kind of Like That", 2013)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

DISTANCE_MAX = 4
"""Bits of 64 in which the hashes of two photos may differ that look alike: a copy at another size or quality differs in 0 to 3."""
BITS = 64
COMPARISONS_MAX = 2_000_000
"""About a second of work. Only photos that nearly all look alike need more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPhotos:
    """Each photo that looks like an earlier one, with that one and their distance. `complete`: all were compared."""

    pairs: list[tuple[str, str, int]]
    complete: bool


def near_photos(photos: Sequence[tuple[str, str]]) -> NearPhotos:
    """Return the photos (path and hash in hexadecimal) that look like an earlier one, in the order of the earlier ones.

    Two hashes that differ in at most four bits have one of five pieces of their bits in common, so only those with a common piece are
    compared.
    """
    of_hash: dict[int, list[str]] = defaultdict(list)
    for path, likeness in photos:
        of_hash[int(likeness, 16)].append(path)
    nearest = dict[int, tuple[int, int]]()  # of a hash: an earlier one that is near, and their distance
    left = COMPARISONS_MAX
    order = {each: place for place, each in enumerate(of_hash)}
    for first, second in _candidates(of_hash):
        left -= 1
        if left < 0:
            break
        distance = (first ^ second).bit_count()
        if distance <= DISTANCE_MAX:
            early, late = sorted((first, second), key=order.__getitem__)
            nearest[late] = min(nearest.get(late, (distance, early)), (distance, early), key=lambda near: near[0])
    return NearPhotos(pairs=sorted(_pairs(of_hash, nearest)), complete=left >= 0)


def _pairs(of_hash: dict[int, list[str]], nearest: dict[int, tuple[int, int]]) -> Iterator[tuple[str, str, int]]:
    for each, paths in of_hash.items():
        for path in paths[1:]:
            yield paths[0], path, 0
        if each in nearest:
            distance, early = nearest[each]
            yield of_hash[early][0], paths[0], distance


def _candidates(hashes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of hashes that have a piece in common; some of them twice."""
    pieces = DISTANCE_MAX + 1
    for number in range(pieces):
        low, high = number * BITS // pieces, (number + 1) * BITS // pieces
        mask = ((1 << (high - low)) - 1) << low
        alike: dict[int, list[int]] = defaultdict(list)
        for each in hashes:
            alike[each & mask].append(each)
        for group in alike.values():
            for place, first in enumerate(group):
                for second in group[place + 1 :]:
                    yield first, second
