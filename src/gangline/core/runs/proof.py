"""Judge a node's probe: before it joins, a node loads its libraries and checks its GPU, disk and memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gangline.core.server.isolation import LEVELS, IsolationLevel
from gangline.core.specs.kinds import KINDS

CARD, BURST, DISK, MEMORY, PROBE = "card", "burst", "disk", "memory", "probe"
ASPECTS = (CARD, BURST, DISK, MEMORY, PROBE)
"""Aspects of a node that every job needs. `burst` fails if the GPU's results differ from the CPU's, `probe` if the probe did not finish."""

DISK_BYTES_MIN = 4 * 10**9
"""Disk space that is free or that evictable bases use: Stable Diffusion 1.5, the smallest base in use, is 2 GB in half precision, and the
cache leaves as much free for other uses."""
MEMORY_BYTES_MIN = 2 * 10**9
"""The least memory of a machine: the libraries alone take half a gigabyte in each process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a probe. `kinds` are the kinds of jobs whose libraries load; `problems` has a sentence for each other kind and for
    each of `ASPECTS` that failed; `measured` has facts for people, such as the speed of the GPU, which decide no bits."""

    kinds: tuple[str, ...] = tuple(KINDS)
    problems: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[str, str] = field(default_factory=dict)


def unfit(kinds: Iterable[str], problems: Mapping[str, str]) -> str:
    """Return why a node with this proof may have no job at all; empty if it may have some."""
    found = [problems[aspect] for aspect in ASPECTS if aspect in problems]
    if not found and not set(kinds):
        found = [*dict.fromkeys(problems.values())] or ["it has no libraries for any kind of job"]
    return f"failed its probe: {'; '.join(found)}" if found else ""


def limits(problems: Mapping[str, str]) -> str:
    """Return which kinds of jobs a node with this proof may not have, and why; empty if it may have all."""
    return "; ".join(f"no libraries for {kind}: {sentence}" for kind, sentence in problems.items())


def shortages(*, disk_free_bytes: int, folder: str, memory_bytes: int) -> dict[str, str]:
    """Return a sentence for the disk and for the memory if they are too small for any job, by aspect."""
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


NOT_OURS = frozenset(name for name, kind in KINDS.items() if not kind.ours)
CHECKPOINTS_IN = "checkpoints in"
"""Whether a node keeps checkpoints in memory, among what it `measured`."""
ISOLATION = "isolation"
"""The level of a node among what it `measured`; an older node has none."""


def kinds_text(kinds: Iterable[str]) -> str:
    """Return kinds as one text in which `LIKE '%,' || kind || ',%'` finds each of them."""
    return f",{','.join(sorted(kinds))},"


def wanted_kind(kind: str, isolation: IsolationLevel) -> str:
    """Return what a job wants to find among the kinds of its node: its kind, with the isolation that it asks for."""
    return kind if isolation == "none" else f"{kind}/{isolation}"


def isolation_of(wanted: str) -> IsolationLevel:
    """Return the isolation in what a job wants."""
    return LEVELS[max((LEVELS.index(level) for level in LEVELS if wanted.endswith(f"/{level}")), default=0)]


def offered_kinds(kinds: Iterable[str], isolation: str, *, bare_commands: bool = False) -> set[str]:
    """Return what a node offers that has libraries for these kinds and this isolation: each kind at each level up to its own. Programs
    that are not ours need some isolation, unless they may be bare."""
    levels = (
        LEVELS[: LEVELS.index(isolation) + 1] if isolation in LEVELS else LEVELS[:1]
    )  # another's levels mean nothing here
    known = [kind for kind in kinds if len(levels) > 1 or bare_commands or kind not in NOT_OURS]
    return {wanted_kind(kind, level) for kind in known for level in levels}


def why_unwanted(offered: str, wanted: str) -> str:
    """Return what a node lacks that offers these kinds, as a noun phrase; empty if it has what the job wants."""
    kind, _, isolation = wanted.partition("/")
    if has_kind(offered, wanted):
        return ""
    if kind in NOT_OURS and not isolation:
        return "isolation, without which its pool lets no command run"
    return f"isolation {isolation}" if has_kind(offered, kind) else f"libraries for {kind}"


def kinds_in(text: str) -> frozenset[str]:
    """Return the kinds that a text of `kinds_text` names."""
    return frozenset(text.strip(",").split(",")) - {""}


def has_kind(text: str, kind: str) -> bool:
    """Return whether a text of `kinds_text` names this kind."""
    return f",{kind}," in text
