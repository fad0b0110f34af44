"""A node's proof of itself: what it found out before it joined, when it loaded its libraries and looked at card, disk and memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gangline.core.specs.kinds import KINDS

CARD, BURST, DISK, MEMORY, PROBE = "card", "burst", "disk", "memory", "probe"
ASPECTS = (CARD, BURST, DISK, MEMORY, PROBE)
"""What every job needs of a node. `burst`: the card computes something else than the CPU; `probe`: the proof itself broke off."""

DISK_BYTES_MIN = 4 * 10**9
"""Free for bases and runs, or taken by bases that may go: Stable Diffusion 1.5, the smallest base in use, is 2 GB in half precision, and
the cache leaves as much to others."""
MEMORY_BYTES_MIN = 2 * 10**9
"""Of the machine: the libraries alone take half a gigabyte in each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """`kinds`: the kinds of jobs whose libraries load. `problems`: a sentence for each kind that is not among them, and for each of
    `ASPECTS` that is not as it should be. `measured`: facts for people, such as the speed of the card; they decide no bits."""

    kinds: tuple[str, ...] = tuple(KINDS)
    problems: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)


def unfit(kinds: Iterable[str], problems: Mapping[str, str]) -> str:
    """Return why a node with this proof may have no job at all; empty where it may have some."""
    found = [problems[aspect] for aspect in ASPECTS if aspect in problems]
    if not found and not set(kinds):
        found = [*dict.fromkeys(problems.values())] or ["it has the libraries of no kind of job"]
    return f"failed its probe: {'; '.join(found)}" if found else ""


def limits(problems: Mapping[str, str]) -> str:
    """Return which kinds of jobs a node with this proof may not have, and why; empty where it may have all."""
    return "; ".join(f"no libraries for {kind}: {sentence}" for kind, sentence in problems.items())


def shortages(*, disk_free_bytes: int, folder: str, memory_bytes: int) -> dict[str, str]:
    """Return a sentence for each of disk and memory that is too small for any job."""
    found = {}
    if disk_free_bytes < DISK_BYTES_MIN:
        found[DISK] = (
            f"{folder} has {disk_free_bytes / 1e9:.1f} GB free and a job needs at least {DISK_BYTES_MIN / 1e9:g} GB:"
            " free some, or choose another disk with --home"
        )
    if memory_bytes < MEMORY_BYTES_MIN:
        found[MEMORY] = (
            f"the machine has {memory_bytes / 1e9:.1f} GB of memory and a job needs at least {MEMORY_BYTES_MIN / 1e9:g} GB"
        )
    return found


def kinds_text(kinds: Iterable[str]) -> str:
    """Return kinds as one text in which `LIKE '%,' || kind || ',%'` finds each of them."""
    return f",{','.join(sorted(kinds))},"


def kinds_in(text: str) -> frozenset[str]:
    """Return the kinds that a text of `kinds_text` names."""
    return frozenset(text.strip(",").split(",")) - {""}


def has_kind(text: str, kind: str) -> bool:
    """Tell whether a text of `kinds_text` names this kind."""
    return f",{kind}," in text
