"""Keep the gauges that nodes send with their requests, and show them. They decide nothing."""

import json
from dataclasses import asdict
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.fleet.gauges import (
    NEWEST,
    Gauges,
    GaugesPoint,
    GaugesView,
    GpuGauges,
    gauge_places,
    history_of,
    point_of,
)
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment


def keep_gauges(deployment: Deployment, node: str, gauges: Gauges, now_ms: int) -> None:
    """Keep a node's gauges as its newest, and as a point of its history where one is due. One short transaction; those of a node that is
    gone are dropped."""
    newest, point = canonical_json(asdict(gauges)), canonical_json(_without_time(point_of(gauges, now_ms)))
    deployment.store.apply(
        *(
            write(
                "keep_gauges",
                node=node,
                place=place.number,
                before=place.before_ms,
                gauges=newest if place.number == NEWEST else point,
                now=now_ms,
            )
            for place in gauge_places(now_ms)
        )
    )


def newest_gauges(row: Row) -> GaugesView | None:
    """Return the newest gauges of a row with the columns `gauges` and `gauges_ms`; None if the node has sent none."""
    if row["gauges"] is None:
        return None
    found = json.loads(row["gauges"])
    gpus = tuple(GpuGauges(**_with_limits(gpu)) for gpu in found.pop("gpus"))
    return GaugesView(**found, gpus=gpus, at_ms=row["gauges_ms"])


def gauges_of(deployment: Deployment, node: str, now_ms: int) -> tuple[GaugesView | None, tuple[GaugesPoint, ...]]:
    """Return the newest gauges of a node, None if there are none, and the points of its last day by time."""
    rows = {row["place"]: row for row in deployment.store.load("gauges_of_node", node=node)}
    newest = rows.pop(NEWEST, None)
    kept = [(place, _as_point(row)) for place, row in rows.items()]
    return newest_gauges(newest) if newest else None, history_of(kept, now_ms)


def _as_point(row: Row) -> GaugesPoint:
    return GaugesPoint(at_ms=row["gauges_ms"], **_with_limits(json.loads(row["gauges"])))


def _with_limits(found: dict[str, Any]) -> dict[str, Any]:
    limits = found.get("limited_by")
    return found if limits is None else found | {"limited_by": tuple(limits)}


def forget_gauges(deployment: Deployment, _now_ms: int) -> None:
    """Delete the gauges of nodes that are gone."""
    deployment.store.apply(write("forget_gauges"))


def _without_time(point: GaugesPoint) -> dict[str, object]:
    """Return the known values of a point; its row has the time."""
    return {name: value for name, value in asdict(point).items() if name != "at_ms" and value is not None}
