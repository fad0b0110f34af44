"""Count waiting jobs by what they need of a node, and set the nodes that are here or coming against them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gangline.core.runs.proof import has_kind


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedWork:
    """Waiting jobs of a project that ask the same of a node. `wanted` is their kind, with the isolation that they ask for (as `wanted_kind`
    in `gangline.core.runs.proof`). `gpu`, `pool` and `numerics` are empty if any will do.

    If they are `stuck`, no working node may take them. The first has waited since `since_ms`. `steps` and `save_s`, the time between two
    checkpoints, are means, as is `download_bytes`; `least_bytes` is the smallest download. `left` is what their project's budget has left
    (None: it has no budget), in micro-dollars.
    """

    project: str
    wanted: str
    workload: str
    jobs: int
    since_ms: int
    stuck: bool = False
    gpu: str = ""
    gpu_memory_gb: float = 0
    trust: int = 0
    slots: int = 1
    pool: str = ""
    numerics: str = ""
    steps: float = 1
    save_s: float = 0
    download_bytes: float = 0
    least_bytes: int = 0
    left: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """What decides which jobs a node may take. `numerics` are empty where they are not known yet."""

    pool: str
    gpu: str = ""
    gpu_memory_gb: float = 0
    trust: int = 0
    slots: int = 1
    kinds: str
    numerics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Free slots of a node. It has had them for long if it is `old`: then it can take none of the jobs that wait for long. One that is
    `coming` may take any job that fits, as nothing is known against it yet."""

    node: str
    shape: NodeShape
    free: int
    coming: bool = False
    old: bool = False


def fits(need: QueuedWork, shape: NodeShape) -> bool:
    """Return whether a node of this shape could run these jobs, apart from bans. Unknown numerics may be any."""
    return (
        need.gpu_memory_gb <= shape.gpu_memory_gb
        and need.slots <= shape.slots
        and need.trust <= shape.trust
        and need.gpu in ("", shape.gpu)
        and need.pool in ("", shape.pool)
        and ("" in (need.numerics, shape.numerics) or need.numerics == shape.numerics)
        and has_kind(shape.kinds, need.wanted)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """Which nodes the waiting jobs are left to. `left` is the number of jobs of each need that have none; `by_pool` is the number of those
    that a pool's nodes cover, of each need."""

    left: list[int]
    nodes: frozenset[str]
    by_pool: list[dict[str, int]]


def cover(needs: Sequence[QueuedWork], rooms: Iterable[Room], *, recent_ms: int) -> Cover:
    """Leave jobs to the nodes that are coming or have free slots; those that only few nodes may take come first.

    Jobs that have waited since before `recent_ms` are not left to old rooms: these would have taken them.
    """
    alike: dict[tuple[NodeShape, bool, bool, int], list[str]] = defaultdict(list)
    for room in rooms:
        alike[room.shape, room.coming, room.old, room.free].append(room.node)
    left = [need.jobs for need in needs]
    by_pool: list[dict[str, int]] = [{} for _ in needs]
    used: set[str] = set()
    smallest_first = sorted(alike, key=_small_first)
    for index in sorted(range(len(needs)), key=lambda index: _narrow_first(needs[index])):
        need = needs[index]
        for key in smallest_first:
            shape, coming, old, free = key
            may = coming or (not need.stuck and not (old and need.since_ms < recent_ms))
            if not left[index] or free < need.slots or not may or not fits(need, shape):
                continue
            each, nodes = free // need.slots, alike[key]
            taken = nodes[: -(-left[index] // each)]
            jobs = min(left[index], each * len(taken))
            last = jobs - each * (len(taken) - 1)  # on the last of them
            alike[key] = nodes[len(taken) :]
            alike[shape, coming, old, free - each * need.slots] += taken[:-1]
            alike[shape, coming, old, free - last * need.slots] += taken[-1:]
            left[index] -= jobs
            by_pool[index][shape.pool] = by_pool[index].get(shape.pool, 0) + jobs
            used.update(taken)
        # Most needs find nothing left: the rooms are sorted again only after some were taken.
        if by_pool[index]:
            alike = defaultdict(list, {key: nodes for key, nodes in alike.items() if nodes})
            smallest_first = sorted(alike, key=_small_first)
    return Cover(left=left, nodes=frozenset(used), by_pool=by_pool)


def _narrow_first(need: QueuedWork) -> tuple[bool, bool, bool, float, int, int, int]:
    return (
        not need.pool,
        not need.gpu,
        not need.numerics,
        -need.gpu_memory_gb,
        -need.slots,
        -need.trust,
        need.since_ms,
    )


def _small_first(key: tuple[NodeShape, bool, bool, int]) -> tuple[bool, bool, float, int, int, str, str]:
    """Order rooms: those of working nodes first, the newest ones before the old, and of these the least that fits."""
    shape, coming, old, free = key
    return coming, old, shape.gpu_memory_gb, shape.trust, free, shape.pool, shape.gpu
