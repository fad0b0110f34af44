"""What a check of a pool has shown, when it has failed, and when it would prove nothing."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.fleet.check import (
    STAGES,
    CheckedJob,
    CheckLimits,
    CheckSight,
    choose_offer,
    left_of,
    reached,
    why_failed,
)
from gangline.core.fleet.nodes import NodeDetail, NodeJob, NodeView
from gangline.core.fleet.pools import InstanceView, OfferView, PoolView

LIMITS = CheckLimits(usd_max=1.0, minutes_max=30.0)
SMALL = OfferView(id="small", gpu="RTX 3060", gpu_memory_gb=12, slots=1, trust=0, price_usd_per_hour=0.1)
LARGE = replace(SMALL, id="large", gpu="H100", price_usd_per_hour=1.9)
POOL = PoolView(name="gpus", driver="shop", nodes=0, nodes_min=0, nodes_max=1, state="active", offered=(SMALL, LARGE))


def a_node(**said: Any) -> NodeDetail:
    facts: dict[str, Any] = {
        "id": "node-1",
        "name": "gpus-1",
        "pool": "gpus",
        "state": "starting",
        "because": "1 job waited; no other node was starting",
        "gpu": "RTX 3060",
        "gpu_memory_gb": 12,
        "slots": 1,
        "slots_taken": 0,
        "trust": 0,
        "price_usd_per_hour": 0.1,
        "price_known": True,
        "rental": "node-1",
        "offer": "small",
        "instance": None,
        "place": "",
        "since_ms": 0,
        "joined_ms": None,
        "seen_ms": 0,
        "problems": {},
        "capabilities": {},
        "jobs": (),
        "machine": None,
    }
    return NodeDetail(**(facts | said))


def seen(job: CheckedJob | None = None, elapsed_s: float = 10.0, **said: Any) -> CheckSight:
    return CheckSight(elapsed_s=elapsed_s, job=job or CheckedJob(state="queued", because="no node"), **said)


JOINED = a_node(state="ready", instance="i-1", joined_ms=5)
DONE = CheckedJob(state="succeeded", because="done", step=40, committed_step=40, node="gpus-1")


def view_of(**said: Any) -> NodeView:
    facts = {
        "id": "node-0",
        "name": "gpus-0",
        "machine": "m",
        "pool": "gpus",
        "state": "ready",
        "because": "",
        "gpu": "",
    }
    return NodeView(**(facts | {"slots": 1, "price_usd_per_hour": 0.1, "seen_ms": 0} | said))


# Before anything is rented


def test_all_offers_that_the_pool_may_rent_are_checked_or_the_one_that_is_named() -> None:
    assert choose_offer(POOL, [], "", LIMITS) == [SMALL, LARGE]
    assert choose_offer(POOL, [], "small", LIMITS) == [SMALL]


@pytest.mark.parametrize(
    ("changes", "here", "offer", "because"),
    [
        ({"editable": False}, [], "", "belongs to the server's own settings"),
        ({"state": "paused"}, [], "", "is paused, so no node would be rented"),
        ({"state": "removing"}, [], "", "is being removed, so no node would be rented"),
        ({"nodes": 1}, [view_of()], "", "gpus-0 has no job and would take the check's job"),
        ({"nodes": 1}, [view_of(state="starting")], "", "gpus-0 is starting and would take the check's job"),
        ({"nodes": 1}, [view_of(state="draining")], "", "may have 1 nodes and has 1, so no node would be rented"),
        ({"because": "its provider did not answer: no key"}, [], "", "nothing can be rented in gpus: its provider did"),
        ({"offered": ()}, [], "", "offers nothing that the pool may rent"),
        ({"offered": (replace(SMALL, excluded="too dear"),)}, [], "small", "does not rent small: too dear"),
        ({}, [], "medium", "has no offer medium now"),
        ({"offered": (SMALL, replace(SMALL, id="other"))}, [], "small", "might rent other instead of small"),
        ({"offered": (replace(SMALL, price_known=False),)}, [], "", "the price of small is not known"),
        ({"offered": (replace(SMALL, price_usd_per_hour=2.5),)}, [], "", "30 minutes of small cost $1.25"),
    ],
)
def test_a_check_that_would_prove_nothing_or_cost_too_much_is_refused(
    changes: dict[str, Any], here: list[NodeView], offer: str, because: str
) -> None:
    with pytest.raises(BadInput) as refused:
        choose_offer(replace(POOL, **changes), here, offer, LIMITS)
    assert because in refused.value.message and refused.value.hint


def test_a_node_whose_slots_are_taken_does_not_hinder_a_check() -> None:
    busy = view_of(jobs=(NodeJob(job="job-1", phase="training", step=1, slots=1),))
    assert choose_offer(replace(POOL, nodes=1, nodes_max=2), [busy], "", LIMITS)


def test_an_unknown_price_is_accepted_if_time_alone_limits_the_check() -> None:
    free = replace(POOL, offered=(replace(SMALL, price_known=False),))
    assert choose_offer(free, [], "", replace(LIMITS, price_known=False))


# While it runs


def test_the_stages_are_reached_one_after_the_other() -> None:
    training = CheckedJob(state="running", because="", step=3, node="gpus-1")
    sights = [
        seen(),
        seen(node=a_node()),
        seen(node=a_node(instance="i-1")),
        seen(node=replace(JOINED, problems={"lora": "no torch"})),
        seen(node=JOINED),
        seen(training, node=JOINED),
        seen(replace(training, committed_step=2), node=JOINED),
        seen(DONE, node=JOINED),
    ]
    assert [len(reached(sight)) for sight in sights] == list(range(8))
    assert reached(sights[-1]) == list(STAGES)[:-1]


@pytest.mark.parametrize(
    ("sight", "because"),
    [
        (seen(CheckedJob(state="failed", because="out of memory")), "its job is failed: out of memory"),
        (seen(replace(DONE, node="gpus-0"), node=JOINED), "its job went to gpus-0, which was not rented for it"),
        (seen(node=a_node(offer="large")), "gpus-1 is of the offer large, not of small"),
        (seen(DONE, node=replace(JOINED, offer="large")), "gpus-1 is of the offer large, not of small"),
        (seen(node=replace(JOINED, problems={"lora": "no torch"})), "gpus-1 failed its probe: no torch"),
        (seen(node=replace(JOINED, state="quarantined", because="bad card")), "gpus-1 failed its probe: bad card"),
        (seen(node=a_node(state="gone", because="exit code 1")), "gpus-1 never joined: exit code 1"),
        (seen(node=replace(JOINED, state="gone", because="taken back")), "gpus-1 is gone: taken back"),
        (seen(refused="small: none is left", refused_s=9.0), "the provider refused small: none is left"),
        (seen(node=JOINED, spent_usd=1.0), "it has cost $1.00, and --max-usd is 1"),
        (seen(elapsed_s=1800.0, node=a_node()), "its job has not succeeded in 30 minutes (gpus-1 has not joined"),
        (seen(elapsed_s=1800.0), "its job has not succeeded in 30 minutes (no node was rented: no node)"),
    ],
)
def test_a_check_fails_with_the_reason(sight: CheckSight, because: str) -> None:
    assert why_failed(sight, LIMITS, {"small"}).startswith(because)


@pytest.mark.parametrize(
    "sight",
    [
        seen(),
        seen(node=a_node()),
        seen(node=JOINED, spent_usd=0.99),
        seen(DONE, elapsed_s=1801.0, node=replace(JOINED, state="gone")),
        seen(refused="small: none is left", refused_s=1.0),
        seen(node=a_node(), refused="large: none is left", refused_s=60.0),
    ],
)
def test_a_check_that_may_still_succeed_goes_on(sight: CheckSight) -> None:
    assert why_failed(sight, LIMITS, {"small"}) == ""


def test_only_running_instances_of_its_own_rentals_are_left() -> None:
    ours = InstanceView(
        id="i-1", rental="node-1", place="", billed_from_ms=None, billed_to_ms=None, ended="", progress=""
    )
    theirs, ended = replace(ours, rental="node-2"), replace(ours, billed_to_ms=5)
    assert left_of([theirs, ended, ours], {"node-1"}) == [ours]
