"""The nodes as the screen lists them: filtered, sorted and counted by state, each with its gauges and its speed beside its peers."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, cast, get_args

from annotated_types import MaxLen
from fastapi import Depends, Query

from gangline.core.fleet.gauges import GAUGES_EVERY_S, GaugesPoint, GaugesView, point_of
from gangline.core.fleet.nodes import NodeView
from gangline.core.job import NodeState
from gangline.service.deployment import Deployment
from gangline.service.fleet.measured.speeds import NodeSpeed, node_speeds
from gangline.service.fleet.operating import nodes

NodeOrder = Literal["name", "state", "gpu", "load", "memory", "temperature", "disk", "speed", "price"]
ORDERS: Mapping[NodeOrder, str] = {
    "name": "by name",
    "state": "by state",
    "gpu": "by GPU",
    "load": "busiest first",
    "memory": "fullest memory first",
    "temperature": "hottest first",
    "disk": "fullest disk first",
    "speed": "slowest first",
    "price": "most expensive first",
}
assert set(ORDERS) == set(get_args(NodeOrder)), "every order says what it is"
STATES: tuple[NodeState, ...] = tuple(state for state in get_args(NodeState) if state != "gone")
OLD_MS = round(3 * GAUGES_EVERY_S * 1000)
"""Gauges that are older than this say little of now."""
AskedText = Annotated[str, Query(), MaxLen(200)]


@dataclass(frozen=True, slots=True)
class AskedNodes:
    """Which nodes, and in which order. Empty texts ask for all."""

    pool: str = ""
    state: str = ""
    search: str = ""
    sort: NodeOrder = "name"

    def as_pairs(self) -> list[tuple[str, str]]:
        """Return what is asked as the fields of an address."""
        given = (("pool", self.pool), ("state", self.state), ("search", self.search))
        return [
            *((name, text) for name, text in given if text),
            *([("sort", self.sort)] if self.sort != "name" else []),
        ]

    def lets_through(self, node: NodeView) -> bool:
        texts = (node.name, node.id, node.machine, node.gpu, node.because, *(job.job for job in node.jobs))
        wanted = self.search.lower()
        return (
            self.pool in ("", node.pool)
            and self.state in ("", node.state)
            and (not wanted or any(wanted in text.lower() for text in texts))
        )


async def _asked(
    pool: AskedText = "", state: AskedText = "", search: AskedText = "", sort: AskedText = ""
) -> AskedNodes:
    order = cast(NodeOrder, sort) if sort in ORDERS else "name"
    return AskedNodes(pool=pool.strip(), state=state.strip(), search=search.strip(), sort=order)


NodesAsked = Annotated[AskedNodes, Depends(_asked)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNode:
    """A node, its `speed` if the session sees its job, and its gauges in shares: `old` ones are of a while ago. When it was heard of last
    is left out, as that changes without anything to see."""

    node: NodeView
    speed: NodeSpeed | None
    gauges: GaugesPoint | None
    old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFleet:
    """The `nodes` that were asked for, and of `every` node how many there are in each state and in each pool."""

    nodes: Sequence[ShownNode]
    every: int
    states: Mapping[str, int]
    pools: Mapping[str, Mapping[str, int]]
    views: Sequence[NodeView]


def shown_fleet(deployment: Deployment, project: str | None, asked: AskedNodes, now_ms: int) -> ShownFleet:
    """Load the nodes. Jobs are shown to their own project, and to operators (`project` is None)."""
    found, speeds = nodes(deployment, project, now_ms), node_speeds(deployment)
    shown = [_shown(node, speeds.get(node.id), now_ms) for node in found if asked.lets_through(node)]
    counted = Counter(node.state for node in found)
    pools: dict[str, Counter[str]] = {}
    for node in found:
        pools.setdefault(node.pool, Counter())[node.state] += 1
    return ShownFleet(
        nodes=sorted(shown, key=_ORDERED[asked.sort]),
        every=len(found),
        states={state: counted[state] for state in STATES if counted[state]},
        pools={pool: pools[pool] for pool in sorted(pools)},
        views=found,
    )


def shares_of(gauges: GaugesView | None) -> GaugesPoint | None:
    return point_of(gauges, gauges.at_ms) if gauges else None


def is_old(gauges: GaugesView | None, now_ms: int) -> bool:
    return gauges is not None and now_ms - gauges.at_ms > OLD_MS


def _shown(node: NodeView, speed: NodeSpeed | None, now_ms: int) -> ShownNode:
    return ShownNode(
        node=replace(node, seen_ms=0, gauges=None),
        speed=speed if node.jobs else None,
        gauges=shares_of(node.gauges),
        old=is_old(node.gauges, now_ms),
    )


def _name(shown: ShownNode) -> tuple[object, ...]:
    """Sort names as people do: default-9 before default-10."""
    text, _, number = shown.node.name.rpartition("-")
    return (
        (text, int(number), shown.node.id)
        if number.isdecimal() and len(number) < 10
        else (shown.node.name, 0, shown.node.id)
    )


def _highest(value: Callable[[ShownNode], float | None]) -> Callable[[ShownNode], tuple[object, ...]]:
    def key(shown: ShownNode) -> tuple[object, ...]:
        found = value(shown)
        return (found is None, -(found or 0), *_name(shown))

    return key


def _gauge(name: str) -> Callable[[ShownNode], tuple[object, ...]]:
    return _highest(lambda shown: getattr(shown.gauges, name) if shown.gauges else None)


def _load(shown: ShownNode) -> float | None:
    gauges = shown.gauges
    if gauges is None:
        return None
    return gauges.cpu_load if gauges.gpu_utilisation is None else gauges.gpu_utilisation


_ORDERED: Mapping[NodeOrder, Callable[[ShownNode], tuple[object, ...]]] = {
    "name": _name,
    "state": lambda shown: (STATES.index(shown.node.state), *_name(shown)),  # type: ignore[arg-type]
    "gpu": lambda shown: (shown.node.gpu, *_name(shown)),
    "load": _highest(_load),
    "memory": _gauge("gpu_memory_share"),
    "temperature": _gauge("temperature_c"),
    "disk": _gauge("disk_share"),
    "speed": _highest(lambda shown: (shown.speed.ratio or 0.0) if shown.speed else None),
    "price": _highest(lambda shown: shown.node.price_usd_per_hour if shown.node.price_known else None),
}
