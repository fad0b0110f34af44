"""The nodes that are here, of which everything reads all that says where a job could run or why it waits."""

from functools import lru_cache
from operator import itemgetter

from gangline.core.job import Node
from gangline.service.deployment import Deployment

KEPT = 20_000


def load_nodes_here(deployment: Deployment) -> tuple[Node, ...]:
    """Return all nodes that are not gone. One whose row is as it was is made once: that takes longer than to read it."""
    rows = deployment.store.load("nodes_here")
    if not rows:
        return ()
    names = tuple(rows[0].keys())
    values = itemgetter(*names)
    return tuple(_node(names, values(row)) for row in rows)


@lru_cache(maxsize=KEPT)
def _node(names: tuple[str, ...], values: tuple[object, ...]) -> Node:
    return Node(**dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
