"""What was once wrong with scaling, and is not to come back."""

from dataclasses import replace
from pathlib import Path

import pytest

from gangline.adapters.hub import HuggingFaceHub
from gangline.adapters.objects.local import LocalObjects
from gangline.adapters.store.sqlite import SqliteStore
from gangline.core.fleet.autoscale import Drain, PoolLimits, Rented, StartNode
from gangline.core.fleet.choice import OfferFacts
from gangline.core.fleet.needs import NodeShape, QueuedWork
from gangline.core.fleet.plan import PoolNow, plan
from gangline.core.policy import Policy
from gangline.core.specs.spec import parse_spec
from gangline.ports.pool import Instance, Offer, Rental
from gangline.ports.store import write
from gangline.service.deployment import Deployment, RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet.fleet import tend
from gangline.service.jobs.submit import queue

POLICY = Policy()
NOW_MS = 10_000_000
SHAPE = NodeShape(pool="default", kinds=",lora,")
IDLE = Rented(
    id="a",
    rental="a",
    state="ready",
    since_ms=0,
    idle_since_ms=NOW_MS,
    heard_ms=NOW_MS,
    instance="i",
    missing=0,
    shape=SHAPE,
)
STUCK = QueuedWork(project="p", wanted="lora", workload="w", jobs=1, since_ms=0, stuck=True)
SMALL = Offer(id="small", gpu="RTX 3060", gpu_memory_gb=12, price_micro_usd_per_hour=100)
LARGE = Offer(id="large", gpu="H100", gpu_memory_gb=80, price_micro_usd_per_hour=9_000)

PHOTO = {"path": "a.png", "bytes": 1, "sha256": "0" * 64}
SPEC = {"kind": "lora", "base": {"repo": "a/b", "revision": "0" * 40}, "photos": [PHOTO], "prompt": "sks dog"}


def limits(least: int, most: int) -> PoolLimits:
    return PoolLimits(name="default", nodes_min=least, nodes_max=most)


def planned(limits: PoolLimits, nodes: list[Rented], *needs: QueuedWork) -> list[object]:
    offer = OfferFacts(offer="offer", shape=SHAPE, price_micro_usd_per_hour=100_000)
    pool = PoolNow(limits=limits, nodes=nodes, offers=[offer], starts_max=9)
    return [*plan([pool], [], needs, [], NOW_MS, POLICY)["default"]]


def test_an_idle_node_counts_towards_the_minimum() -> None:
    assert planned(limits(1, 4), [IDLE]) == []


def test_a_node_that_leaves_is_within_the_maximum_until_it_is_gone() -> None:
    leaving = replace(IDLE, state="draining")
    assert planned(limits(0, 1), [leaving], replace(STUCK, stuck=False)) == []


def test_a_full_pool_makes_room_for_jobs_that_may_have_none_of_its_nodes() -> None:
    full = [replace(IDLE, idle_since_ms=0), replace(IDLE, id="b", rental="b", idle_since_ms=0)]
    actions = planned(limits(0, 2), full, replace(STUCK, jobs=2))
    assert [action.node for action in actions if isinstance(action, Drain)] == ["a", "b"]


def test_where_nothing_is_here_nobody_is_said_to_refuse() -> None:
    (start,) = planned(limits(0, 2), [], STUCK)
    assert start == StartNode("offer", "1 job waited; no other node was starting")


class Shop:
    """A provider with endless room that remembers what it was asked for."""

    def __init__(self, *offers: Offer) -> None:
        self.started: list[str] = []
        self.looks = 0
        self._offers = offers

    def offers(self) -> list[Offer]:
        return list(self._offers)

    def start(self, offer: str, rental: Rental) -> None:
        self.started.append(offer)

    def stop(self, instance: str) -> None:
        pass

    def list(self) -> list[Instance]:
        self.looks += 1
        return []


@pytest.mark.parametrize(
    ("needs", "offers", "rented"),
    [
        ({}, (SMALL, LARGE), ["small"]),
        ({"gpu_memory_gb": 48}, (SMALL, LARGE), ["large"]),
        ({"gpu": "H100"}, (SMALL, LARGE), ["large"]),
        ({"gpu": "H100"}, (SMALL,), []),
        ({"slots": 4}, (SMALL, replace(LARGE, slots=8)), ["large"]),
        ({"slots": 4}, (SMALL, LARGE), []),
    ],
)
def test_only_a_node_that_a_waiting_job_could_have_is_rented(
    tmp_path: Path, needs: dict[str, object], offers: tuple[Offer, ...], rented: list[str]
) -> None:
    store = SqliteStore(tmp_path / "db.sqlite")
    shop = Shop(*offers)
    at = Deployment(
        store=store,
        objects=LocalObjects(tmp_path / "objects", "secret"),
        hub=HuggingFaceHub(""),
        policy=POLICY,
        new_id=lambda kind: f"{kind}-{len(shop.started)}",
        new_secret=lambda kind: f"{kind} secret {len(shop.started)}",
        up_since_ms=0,
        pools={"default": RentedPool(limits(0, 4), AtOnce(shop))},
    )
    store.apply(write("add_blob", project="p", sha256=PHOTO["sha256"], bytes=PHOTO["bytes"], now=0))
    queue(at, "p", parse_spec(SPEC | {"needs": needs}), name="", request=None, now_ms=0)
    tend(at, NOW_MS)
    tend(at, NOW_MS + 1)
    assert shop.started == rented
    store.close()
