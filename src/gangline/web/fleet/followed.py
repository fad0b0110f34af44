"""The fleet, and one node, as open pages follow them: looked up every two seconds, and only what differs is sent."""

from collections.abc import Sequence

from gangline.service.deployment import Deployment
from gangline.web.fleet.node import ShownDetail, shown_detail
from gangline.web.fleet.pools import shown_pools
from gangline.web.fleet.shown import AskedNodes, ShownNode, shown_fleet
from gangline.web.frame.rendering import block
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments

FIRST = 60
"""Nodes of the page as it is loaded, and of each further part."""
FOLLOWED = 300
"""Nodes that an open list follows, the first ones: others are as they were when they were shown."""


class FleetScreen:
    """The nodes that were asked for, counts, and for operators the pools."""

    project: str | None = None

    def __init__(self, project: str | None, asked: AskedNodes, *, operates: bool, may: bool) -> None:
        self._of = project
        self._asked = asked
        self._operates = operates
        self._may = may
        self._known: set[str] | None = None
        self._rows: dict[str, ShownNode] = {}
        self._pools: tuple[str, ...] = ()
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return False

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        now_ms = deployment.store.now_ms()
        fleet = shown_fleet(deployment, self._of, self._asked, now_ms)
        parts = {"counts": block("fleet/parts.html", "counts", fleet=fleet, asked=self._asked, oob=True)}
        listed = ""
        if self._operates:
            pools = shown_pools(deployment, fleet, now_ms)
            parts["spending"] = block("fleet/pools.html", "spending", found=pools.spending, oob=True)
            parts |= {
                f"pool {each.name}": block("fleet/pools.html", "state", pool=each, may=self._may, oob=True)
                for each in pools.pools
            }
            names = tuple(each.name for each in pools.pools)
            if self._pools and names != self._pools:
                listed = block("fleet/pools.html", "cards", pools=pools.pools, may=self._may, oob=True)
            self._pools = names
        return listed + self._fragments.changed(parts) + self._moved(fleet.nodes)

    def whole(self) -> str:
        return self._fragments.whole()

    def _moved(self, nodes: Sequence[ShownNode]) -> str:
        """Return what brings the list to these nodes: new ones at its top, until it is loaded again and sorted; others stay in place."""
        known, before = self._known, self._rows
        now = {each.node.id: each for each in nodes}
        # Pages were loaded with those that are read first.
        new = [] if known is None else [node for node in now if node not in known]
        gone = [node for node in before if node not in now]
        for node in gone:
            self._fragments.forget(node)
        followed = (before.keys() & now.keys()) | set(new) | {each.node.id for each in nodes[:FOLLOWED]}
        self._known, self._rows = set(now), {node: now[node] for node in now if node in followed}
        changed = [each for node, each in self._rows.items() if before.get(node) != each]
        sent = self._fragments.changed({each.node.id: self._row(each, oob=True) for each in changed})
        # A page that was loaded a moment ago may have a new node already.
        left = "".join(f'<li id="{node}" hx-swap-oob="delete"></li>' for node in (*gone, *new))
        added = "".join(self._row(now[node], oob=False) for node in new)
        return left + (f'<ol id="nodes" hx-swap-oob="afterbegin">{added}</ol>' if added else "") + sent

    def _row(self, shown: ShownNode, *, oob: bool) -> str:
        return block("fleet/row.html", "row", shown=shown, may=self._may, oob=oob)


class NodeScreen:
    """A node with its gauges, its jobs and its machine. The screen of one that is gone stays as it was last."""

    project: str | None = None

    def __init__(self, node: str, project: str | None, *, may: bool) -> None:
        self._node = node
        self._of = project
        self._may = may
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return False

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        shown = shown_detail(deployment, self._node, self._of, deployment.store.now_ms())
        return self._fragments.changed({name: self._part(name, shown) for name in PARTS})

    def whole(self) -> str:
        return self._fragments.whole()

    def _part(self, name: str, shown: ShownDetail) -> str:
        return block("fleet/node_parts.html", name, shown=shown, may=self._may, oob=True)


PARTS = ("state", "gauges", "facts", "machine", "attempts")
"""The parts of a node's page that change."""
