"""The `skypilot` driver against a stand-in for SkyPilot's API server: the contract, and what is SkyPilot's own about nodes."""

import json
from dataclasses import replace
from typing import Any

import pytest
from fastapi import Response
from fastapi.responses import JSONResponse

from gangline.adapters.pools.fetching import FETCH_WORKER
from gangline.adapters.pools.skypilot.request import cluster_name
from gangline.adapters.pools.skypilot.settings import SkyPilotProvider as SkyPilotSection
from gangline.compose.notices import check_notice
from gangline.compose.pools import OpenedPool, make_entries
from gangline.core.errors import BadInput, NotFound
from gangline.ports.pool import NoCapacity, Pool, WithLogs
from tests.contract.pools.skypilot import NO_MACHINE, TOKEN, WANTED, FakeSkyPilot, SkyPilotProvider, row
from tests.contract.pools.suite import (
    Fault,
    HandSuite,
    ListSuite,
    LostAnswerSuite,
    PoolSuite,
    RefusalSuite,
    StubbornSuite,
    alive,
    ask,
    found,
    has_ended,
    names,
    rental,
    start,
)
from tests.waiting import until


@pytest.fixture
def cloud() -> FakeSkyPilot:
    return FakeSkyPilot()


@pytest.fixture
def provider(cloud: FakeSkyPilot, url: str) -> SkyPilotProvider:
    return SkyPilotProvider(cloud, url)


class TestSkyPilot(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite):
    """Names are unique at SkyPilot: no two clusters have one."""


# A cluster is a node


def test_a_node_is_a_cluster_of_one_spot_machine_that_gets_what_its_worker_needs_to_join(
    cloud: FakeSkyPilot, url: str
) -> None:
    provider = SkyPilotProvider(cloud, url, replace(WANTED, labels=("team=dogs",)))
    ask(provider, "node-a")
    (asked,) = cloud.launched
    task = json.loads(asked["task"])
    assert (asked["cluster_name"], asked["retry_until_up"]) == ("gl-node-a-p1", False)
    assert task["envs"] | task["secrets"] == rental("node-a").environment() and list(task["secrets"]) == [
        "GANGLINE_TOKEN"
    ]
    assert task["run"] == FETCH_WORKER and not {"setup", "num_nodes", "file_mounts"} & set(task)
    assert task["resources"] == {
        "infra": "runpod/CA",
        "instance_type": "1x_RTX4090",
        "accelerators": {"RTX4090": 1},
        "use_spot": True,
        "disk_size": 100,
        "image_id": "docker:pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime",
        "labels": {"team": "dogs"},
    }


@pytest.mark.parametrize(
    ("cloud_name", "notice"), [("AWS", "aws"), ("GCP", "gcp"), ("Azure", "azure"), ("Lambda", None)]
)
def test_a_node_watches_for_its_clouds_notice_where_that_cloud_gives_one(
    cloud: FakeSkyPilot, url: str, cloud_name: str, notice: str | None
) -> None:
    cloud.catalog, cloud.enabled = [row(cloud_name, "RTX4090", 1.0, 0.5, "east")], [cloud_name.lower()]
    ask(SkyPilotProvider(cloud, url), "node-a")
    told = json.loads(cloud.launched[0]["task"])["envs"].get("GANGLINE_NOTICE")
    assert told == notice
    check_notice(told or "")  # as the worker does


@pytest.mark.parametrize("name", ["Node", "node_a", "node-a-", "", "n" * 61, "node/../x", "knöten"])
def test_a_name_that_is_none_of_a_cluster_is_refused_before_it_is_sent(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, name: str
) -> None:
    offer = provider.driver.offers()[0].id
    with pytest.raises(BadInput, match="SkyPilot's clusters are not named"):
        provider.driver.start(offer, rental(name))
    assert cloud.launched == []


def test_how_far_a_start_is_is_said_and_it_is_billed_from_when_the_cloud_has_rented_a_machine(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    ask(provider, "node-a")
    seen = [found(provider, "node-a")]
    for step in (cloud.provision, cloud.rent, cloud.run):
        step("gl-node-a-p1")
        seen.append(found(provider, "node-a"))
    assert [each.progress for each in seen] == [
        "waiting for SkyPilot",
        "Provisioning on runpod in CA",
        "Instances launched on runpod in CA",
        "",
    ]
    launched_ms = cloud.clusters["gl-node-a-p1"]["launched_at"] * 1000
    assert [each.billed_from_ms for each in seen] == [None, None, launched_ms, launched_ms]


def test_a_machine_that_was_rented_and_removed_between_two_looks_is_billed(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    ask(provider, "node-a")
    cloud.provision("gl-node-a-p1")
    assert found(provider, "node-a").billed_from_ms is None
    rented = {"reason": "Instances launched on runpod in CA", "transitioned_at": cloud.now_ms // 1000}
    cloud.events[cloud.clusters["gl-node-a-p1"]["cluster_hash"]] = [rented]
    cloud.advance(30)
    cloud.looks_to_remove = 0
    provider.driver.stop("gl-node-a-p1")
    until(has_ended(provider, "node-a"))
    ended = found(provider, "node-a")
    assert ended.billed_from_ms is not None and ended.billed_to_ms == ended.billed_from_ms + 30_000


# Whose a cluster is


def test_pools_of_one_skypilot_server_neither_list_nor_stop_each_others_nodes(cloud: FakeSkyPilot, url: str) -> None:
    make = make_entries(_no_nodes_here)["skypilot"].make
    section = SkyPilotSection(endpoint=url)
    first, second = (
        make(OpenedPool(name="clouds", id=f"pool-{number}", settings=WANTED, provider=section, secret=TOKEN))
        for number in "12"
    )
    for pool in (first, second):
        pool.start(pool.offers()[0].id, rental("node-a"))
    mine, others = first.list(), second.list()
    assert [each.id for each in mine + others] == ["gl-node-a-pool-1", "gl-node-a-pool-2"]
    first.stop(others[0].id)
    assert names(second) == ["node-a"]
    with pytest.raises(NotFound):
        first.logs(others[0].id)


def _no_nodes_here(opened: OpenedPool) -> Pool:
    raise AssertionError(f"{opened.name} is no pool of this machine")


def test_a_name_that_a_cloud_cuts_off_still_tells_nodes_of_one_pool_apart() -> None:
    first, second = (
        cluster_name("pool-0199a1b2c3d4e5f6a7b", f"node-0199a1b2c3d{random}") for random in ("4e5f6a7b", "5e5f6a7b")
    )
    assert first[:23] != second[:23]  # Google's names have 35 characters; SkyPilot's own mark takes 12 of them


# A launch that fails


@pytest.mark.parametrize("status", ["UP", "INIT"])
def test_what_a_failed_launch_leaves_is_billed_and_removed_until_it_is_gone(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, status: str
) -> None:
    ask(provider, "node-a")
    cloud.rent("gl-node-a-p1")
    alive(provider, "node-a")
    cloud.fail_launch("gl-node-a-p1", "CommandError", "Failed to set up the runtime.\nmore", leaves=status)
    with cloud.suffers(Fault.DEAF):
        left = found(provider, "node-a")
        left = found(provider, "node-a")
        assert left.billed_to_ms is None and left.billed_from_ms is not None
        assert left.progress == "its launch failed: Failed to set up the runtime; it is being removed"
    cloud.advance(60)
    until(has_ended(provider, "node-a"))
    ended = found(provider, "node-a")
    assert ended.ended == "its launch failed: Failed to set up the runtime" and cloud.clusters == {}


def test_a_server_that_starts_anew_knows_which_cluster_a_failed_launch_has_left(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    start(provider, "node-b")
    ask(provider, "node-a")
    cloud.rent("gl-node-a-p1")
    cloud.launch_of("gl-node-a-p1")["status"] = "CANCELLED"
    cloud.clusters["gl-node-a-p1"]["status"] = "UP"
    again = provider.restarted()
    until(lambda: names(again) == ["node-b"])
    assert list(cloud.clusters) == ["gl-node-b-p1"]


def test_a_launch_that_fails_at_once_leaves_nothing_and_says_why(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    cloud.places = 0
    said = r"^SkyPilot found no machine: RunPod \(CA\) — .*: Failed to acquire resources in all zones in CA$"
    with pytest.raises(NoCapacity, match=said):
        ask(provider, "node-a")
    assert [body["cluster_name"] for path, body in cloud.bodies if path == "/down"] == ["gl-node-a-p1"]


def test_what_a_launch_that_failed_at_once_has_left_is_removed_by_one_request(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(made: dict[str, Any], body: dict[str, Any]) -> None:
        cloud.provision("gl-node-a-p1")
        cloud.fail_launch("gl-node-a-p1", "CommandError", "Failed to set up the runtime.", leaves="INIT")

    monkeypatch.setattr(cloud, "_do_launch", fails)
    with pytest.raises(BadInput):
        ask(provider, "node-a")
    left = found(provider, "node-a")
    assert left.progress == "its launch failed: Failed to set up the runtime; it is being removed"
    provider.driver.stop(left.id)
    until(has_ended(provider, "node-a"))
    assert [body["cluster_name"] for path, body in cloud.bodies if path == "/down"] == ["gl-node-a-p1"]


def test_an_offer_of_which_a_launch_found_no_machine_later_is_left_out_for_ten_minutes(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    before = provider.driver.offers()
    ask(provider, "node-a")
    cloud.provision("gl-node-a-p1")
    cloud.fail_launch("gl-node-a-p1", "ResourcesUnavailableError", NO_MACHINE)
    assert provider.driver.offers() == before
    until(has_ended(provider, "node-a"))
    ended = found(provider, "node-a")
    assert ended.billed_from_ms is None and "Failed to acquire resources in all zones in CA" in ended.ended
    assert [each.id for each in provider.driver.offers()] == ["runpod/US/rtx4090"]
    cloud.advance(600)
    assert [each.id for each in provider.driver.offers()] == [each.id for each in before]


def test_a_launch_that_has_not_begun_is_canceled_by_a_stop(provider: SkyPilotProvider, cloud: FakeSkyPilot) -> None:
    ask(provider, "node-a")
    provider.driver.stop("gl-node-a-p1")
    assert cloud.launch_of("gl-node-a-p1")["status"] == "CANCELLED"
    assert found(provider, "node-a").ended == "it was stopped"


# What ends a node


def test_a_cluster_that_was_stopped_by_hand_has_ended_and_is_removed(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    start(provider, "node-a")
    cloud.clusters["gl-node-a-p1"]["status"] = "STOPPED"
    assert found(provider, "node-a").ended == "its cluster was stopped"
    until(lambda: provider.driver.list() and cloud.clusters == {})


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("All nodes terminated, cleaning up the cluster.", "its machine was ended at the cloud"),
        (
            "Cluster was autodowned (idle timeout).",
            "it was removed as it was idle, by an autostop that somebody has set",
        ),
        ("Cluster was terminated by user bob (request ID: y).", "its cluster was removed with SkyPilot"),
    ],
)
def test_a_node_ends_when_and_why_skypilots_last_event_says(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, reason: str, said: str
) -> None:
    start(provider, "node-a")
    cloud.advance(100)
    cloud.end("gl-node-a-p1", reason)
    at_ms = cloud.now_ms
    cloud.advance(500)
    ended = found(provider, "node-a")
    assert (ended.ended, ended.billed_to_ms) == (said, at_ms // 1000 * 1000)


@pytest.mark.parametrize("answer", [None, JSONResponse({"detail": "busy"}, 503), "ValueError", "Some\x1bthing new."])
def test_a_node_that_a_list_lacks_has_not_ended_before_an_event_says_so(
    provider: SkyPilotProvider, cloud: FakeSkyPilot, monkeypatch: pytest.MonkeyPatch, answer: Response | str | None
) -> None:
    running = start(provider, "node-a")
    cluster = cloud.clusters["gl-node-a-p1"]
    with monkeypatch.context() as answers:
        if isinstance(answer, Response):
            answers.setitem(cloud.answers, "/cluster_events", answer)
        elif answer == "ValueError":
            answers.setattr(cloud, "_do_cluster_events", lambda made, _: cloud.fail(made, answer, "no hash"))
        elif answer:
            cloud.happen("gl-node-a-p1", answer)
        del cloud.clusters["gl-node-a-p1"]
        for _ in range(3):
            assert provider.driver.list() == []
        cloud.clusters["gl-node-a-p1"] = cluster
        assert provider.driver.list() == [running]
    cloud.advance(1)
    cloud.end("gl-node-a-p1", "All nodes terminated, cleaning up the cluster.")
    assert found(provider, "node-a").ended == "its machine was ended at the cloud"


def test_a_node_that_lists_lack_for_ten_minutes_is_asked_for_no_more(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    start(provider, "node-a")
    del cloud.clusters["gl-node-a-p1"]
    provider.driver.list()
    cloud.advance(601)
    provider.driver.list()
    cloud.bodies.clear()
    assert provider.driver.list() == [] and [path for path, _ in cloud.bodies] == ["/status"]


def test_an_end_that_was_noticed_late_is_listed_for_ten_minutes_all_the_same(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    start(provider, "node-a")
    cloud.end("gl-node-a-p1", "All nodes terminated, cleaning up the cluster.")
    cloud.advance(3600)
    ended = found(provider, "node-a")
    cloud.advance(590)
    assert provider.driver.list() == [ended] and ended.billed_to_ms is not None
    cloud.advance(10)
    assert provider.driver.list() == []


def test_why_a_cluster_cannot_be_removed_is_shown_while_it_is_billed(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    instance = start(provider, "node-a")
    cloud.down_fails = "The cloud's credentials have expired.\nTraceback"
    provider.driver.stop(instance.id)
    provider.driver.list()
    shown = alive(provider, "node-a")
    assert shown.progress == "SkyPilot could not remove it: The cloud's credentials have expired"
    cloud.down_fails = ""
    cloud.advance(60)
    provider.driver.stop(instance.id)
    until(has_ended(provider, "node-a"))


def test_a_removal_that_takes_its_time_is_requested_once_a_minute_and_by_the_driver_itself(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    instance = start(provider, "node-a")
    cloud.looks_to_remove = 5
    progress = set[str]()
    for _ in range(5):
        provider.driver.stop(instance.id)
        progress.add(alive(provider, "node-a").progress)
    assert [path for path, _ in cloud.bodies].count("/down") == 1 and progress == {""}
    assert found(provider, "node-a").ended == "it was stopped"

    other = start(provider, "node-b")
    with cloud.suffers(Fault.DEAF):
        provider.driver.stop(other.id)
        for _ in range(3):
            alive(provider, "node-b")
    cloud.advance(60)
    until(has_ended(provider, "node-b"))
    assert [path for path, _ in cloud.bodies].count("/down") == 3


def test_a_launch_that_goes_on_after_a_stop_is_canceled_at_each_look(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    ask(provider, "node-a")
    cloud.rent("gl-node-a-p1")
    with cloud.suffers(Fault.DEAF):
        for _ in range(3):
            provider.driver.stop("gl-node-a-p1")
            alive(provider, "node-a")
    paths = [path for path, _ in cloud.bodies]
    assert (paths.count("/api/cancel"), paths.count("/down")) == (3, 1)


def test_one_look_is_three_requests_however_many_nodes_there_are(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    cloud.places = 50
    for number in range(20):
        ask(provider, f"node-{number}")
        cloud.run(f"gl-node-{number}-p1")
    for _ in range(3):
        provider.driver.list()
    cloud.bodies.clear()
    before = len(cloud.requests)
    assert len(provider.driver.list()) == 20
    assert [path for path, _ in cloud.bodies] == ["/status"] and len(cloud.requests) == before + 1


# Why did it never join?


def test_logs_are_what_happened_then_how_it_was_made_and_what_it_printed(
    provider: SkyPilotProvider, cloud: FakeSkyPilot
) -> None:
    assert isinstance(provider.driver, WithLogs)
    instance = start(provider, "node-a")
    happened = {"reason": "Provisioning on runpod in CA", "transitioned_at": 1}
    cloud.events[cloud.clusters["gl-node-a-p1"]["cluster_hash"]] = [happened]
    cloud.printed = {"/provision_logs": "\x1b[31mcreated\x1b[0m\n", "/logs": "worker.sh cannot be fetched\n"}
    lines = ["SkyPilot: Provisioning on runpod in CA", "created", "worker.sh cannot be fetched"]
    assert provider.driver.logs(instance.id).splitlines() == lines
    with pytest.raises(NotFound):
        provider.driver.logs("my-own-work")
