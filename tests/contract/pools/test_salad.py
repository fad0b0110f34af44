"""The `salad` driver against a stand-in for SaladCloud: the contract, and what is Salad's own about nodes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response

from gangline.adapters.pools.salad import driver
from gangline.adapters.pools.salad.driver import REQUESTS_MAX
from gangline.adapters.pools.salad.request import START
from gangline.adapters.pools.salad.settings import SaladPoolSettings, SaladSettings
from gangline.adapters.pools.salad.settings import SaladProvider as Addresses
from gangline.compose.pools import OpenedPool, make_entries
from gangline.compose.server import new_id
from gangline.core.errors import BadInput, NotFound, TooMany, Unreachable
from gangline.ports.pool import Rental, WithLogs, WithReallocation
from tests.contract.pools.salad import GROUPS, KEY, SERVER, FakeSalad, SaladProvider, nothing, problem, web_page
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
    names,
    rental,
    start,
)
from tests.servers import served

LOOK = f"GET {GROUPS}"


@pytest.fixture
def provider(cloud: FakeSalad, url: str) -> SaladProvider:
    return SaladProvider(cloud, url)


class TestSalad(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite):
    """Names are unique at Salad: no two groups have one."""


# A group is a node


def test_a_node_is_a_group_of_one_replica_that_gets_what_its_worker_needs_to_join(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    ask(provider, "node-a")
    (asked,) = cloud.created
    assert (asked["name"], asked["replicas"], asked["autostart_policy"]) == ("gl-node-a-p1", 1, True)
    assert asked["container"]["environment_variables"] == rental("node-a").environment()
    assert "a secret" not in " ".join(asked["container"]["command"])
    assert asked["container"]["resources"] == {
        "cpu": 4,
        "memory": 16 * 1024,
        "shm_size": 2 * 1024,
        "storage_amount": 50 * 1024**3,
        "gpu_classes": [cloud.classes[0]["id"]],
    }


def test_a_node_that_is_to_prove_its_machine_is_told_where_the_proof_is(cloud: FakeSalad, url: str) -> None:
    ask(SaladProvider(cloud, url, SaladSettings(prove_machines=True)), "node-a")
    (asked,) = cloud.created
    assert asked["container"]["environment_variables"]["GANGLINE_IDENTITY_URL"] == "http://169.254.169.254"


def test_the_machine_of_a_node_is_the_one_where_salad_shows_it_now(provider: SaladProvider, cloud: FakeSalad) -> None:
    ask(provider, "node-a")
    assert alive(provider, "node-a").machine == ""
    seen = []
    for _ in range(2):
        provider.run("node-a")
        cloud.advance(60)
        seen.append((alive(provider, "node-a").machine, cloud.instances["gl-node-a-p1"][0]["machine_id"]))
        cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)")
    assert all(listed == shown for listed, shown in seen) and seen[0] != seen[1]


@pytest.mark.parametrize("name", ["Node", "node_a", "node-a-", "", "n" * 61, "node/../x", "knöten"])
def test_a_name_that_salad_does_not_allow_is_refused_before_it_is_sent(
    provider: SaladProvider, cloud: FakeSalad, name: str
) -> None:
    offer = provider.driver.offers()[0].id
    with pytest.raises(BadInput, match="Salad allows no container group"):
        provider.driver.start(offer, rental(name))
    assert cloud.created == []


def test_a_variable_that_is_too_long_for_salad_is_refused(provider: SaladProvider) -> None:
    long = Rental(name="node-a", server="http://nowhere/" + "x" * 1000, token="a secret")
    with pytest.raises(BadInput, match="GANGLINE_SERVER has more than 1000 characters"):
        provider.driver.start(provider.driver.offers()[0].id, long)


def test_how_far_the_start_of_a_node_is_is_said_and_only_a_running_one_is_billed(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    ask(provider, "node-a")
    cloud.groups["gl-node-a-p1"]["current_state"] |= {"status": "pending"}
    instances, cloud.instances["gl-node-a-p1"] = cloud.instances["gl-node-a-p1"], []
    seen = [found(provider, "node-a")]
    cloud.groups["gl-node-a-p1"]["current_state"] |= {"status": "deploying"}
    cloud.instances["gl-node-a-p1"] = instances
    seen.append(found(provider, "node-a"))
    for state in ({"state": "downloading", "pulling_progress": 42.6}, {"state": "creating"}):
        cloud.change("gl-node-a-p1", 0, **state)
        cloud.advance(20)
        seen.append(found(provider, "node-a"))
    assert [each.progress for each in seen] == [
        "Salad prepares its image",
        "waiting for a machine",
        "downloading 43 %",
        "creating its container",
    ]
    assert [each.billed_from_ms for each in seen] == [None] * 4
    assert [bool(each.place) for each in seen] == [False, False, True, True]
    cloud.change("gl-node-a-p1", 0, state="running")
    runs_ms = cloud.now_ms
    cloud.advance(300)
    running = found(provider, "node-a")
    assert (running.billed_from_ms, running.progress) == (runs_ms, "")


def test_a_node_that_never_ran_ends_without_a_bill(provider: SaladProvider) -> None:
    ask(provider, "node-a")
    alive(provider, "node-a")
    provider.end_by_hand("node-a")
    ended = found(provider, "node-a")
    assert ended.billed_from_ms is None and ended.billed_to_ms is not None
    assert ended.ended == "its container group was deleted"


def test_a_node_is_billed_until_it_was_last_seen_running(provider: SaladProvider, cloud: FakeSalad) -> None:
    start(provider, "node-a")
    ran_ms = cloud.now_ms
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)")
    cloud.advance(600)
    alive(provider, "node-a")
    provider.end_by_hand("node-a")
    assert found(provider, "node-a").billed_to_ms == ran_ms


def test_a_group_that_was_stopped_by_hand_has_ended_and_is_removed_as_it_counts_against_the_quota(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    start(provider, "node-a")
    cloud.stop_by_hand("gl-node-a-p1")
    ended = found(provider, "node-a")
    assert (ended.ended, ended.billed_to_ms) == ("its container group was stopped", cloud.now_ms)
    assert not deletions(cloud), "one list may be wrong"
    found(provider, "node-a")
    assert len(deletions(cloud)) == 1
    found(provider, "node-a")
    assert cloud.groups == {} and found(provider, "node-a") == ended


def test_one_list_that_is_wrong_about_a_group_deletes_nothing(provider: SaladProvider, cloud: FakeSalad) -> None:
    before = start(provider, "node-a")
    instances = cloud.instances["gl-node-a-p1"]
    for _ in range(3):
        cloud.stop_by_hand("gl-node-a-p1")
        assert found(provider, "node-a").ended
        cloud.instances["gl-node-a-p1"] = instances
        cloud.groups["gl-node-a-p1"]["current_state"]["status"] = "running"
        assert found(provider, "node-a") == before
    assert not deletions(cloud)


def test_a_list_that_does_not_say_how_many_instances_run_is_no_list(provider: SaladProvider, cloud: FakeSalad) -> None:
    before = start(provider, "node-a")
    said = '{"items": [{"name": "gl-node-a-p1", "current_state": {"status": "stopped"%s}}]}'
    for counts in ("", ', "instance_status_counts": {"running_count": 0}'):
        cloud.answers[LOOK] = Response(said % counts, media_type="application/json")
        with pytest.raises(Unreachable, match="is missing"):
            provider.driver.list()
    cloud.answers.clear()
    assert provider.driver.list() == [before]


def test_a_group_that_is_stopped_on_the_way_to_its_first_instance_is_starting(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    ask(provider, "node-a")
    first, cloud.instances["gl-node-a-p1"] = cloud.instances["gl-node-a-p1"], []
    for status in ("pending", "stopped", "stopped"):
        cloud.groups["gl-node-a-p1"]["current_state"]["status"] = status
        assert alive(provider, "node-a").billed_from_ms is None
    cloud.groups["gl-node-a-p1"]["current_state"]["status"] = "deploying"
    cloud.instances["gl-node-a-p1"] = first
    provider.run("node-a")
    assert alive(provider, "node-a").billed_from_ms is not None


def test_a_group_that_stays_stopped_has_ended_also_for_a_server_that_did_not_see_it_run(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    start(provider, "node-a")
    cloud.stop_by_hand("gl-node-a-p1")
    again = provider.restarted()
    assert [each.ended for each in again.list()] == [""]
    cloud.advance(300)
    assert [each.ended for each in again.list()] == ["its container group was stopped"]
    for _ in range(2):
        again.list()
    assert cloud.groups == {}


def test_a_group_that_runs_after_all_has_not_ended(provider: SaladProvider, cloud: FakeSalad) -> None:
    before = start(provider, "node-a")
    instances = cloud.instances["gl-node-a-p1"]
    cloud.stop_by_hand("gl-node-a-p1")
    with cloud.suffers(Fault.DEAF):
        assert found(provider, "node-a").ended
    cloud.instances["gl-node-a-p1"] = instances
    cloud.groups["gl-node-a-p1"]["current_state"]["status"] = "running"
    assert alive(provider, "node-a") == before


def test_a_group_that_is_stopped_runs_until_its_instance_has_stopped(provider: SaladProvider, cloud: FakeSalad) -> None:
    start(provider, "node-a")
    cloud.groups["gl-node-a-p1"]["current_state"]["status"] = "stopped"
    assert found(provider, "node-a").billed_to_ms is None


def test_an_image_that_salad_cannot_prepare_is_the_reason_of_the_end(provider: SaladProvider, cloud: FakeSalad) -> None:
    ask(provider, "node-a")
    state = {"status": "failed", "description": "manifest unknown"}
    cloud.groups["gl-node-a-p1"]["current_state"] |= state
    cloud.instances["gl-node-a-p1"] = []
    assert found(provider, "node-a").ended == "Salad could not prepare its image: manifest unknown"


def test_what_has_ended_is_forgotten_after_a_while(provider: SaladProvider, cloud: FakeSalad) -> None:
    start(provider, "node-a")
    provider.end_by_hand("node-a")
    assert found(provider, "node-a").ended
    cloud.advance(700)
    assert provider.driver.list() == []


def test_an_end_that_is_noticed_late_stays_in_the_list_as_long(provider: SaladProvider, cloud: FakeSalad) -> None:
    start(provider, "node-a")
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)")
    cloud.advance(3600)
    alive(provider, "node-a")
    provider.end_by_hand("node-a")
    ended = found(provider, "node-a")
    assert ended.billed_to_ms is not None and cloud.now_ms - ended.billed_to_ms > 3_600_000
    cloud.advance(500)
    assert provider.driver.list() == [ended]
    cloud.advance(100)
    assert provider.driver.list() == []


# A node that Salad moves


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ("Instance Interrupted (Priority)", "Salad gave its machine to work of a higher priority"),
        ("Instance Interrupted (Node Offline)", "its machine went offline"),
        ("Instance Interrupted (Requested Disk Space Exceeded)", "it used more disk than it had asked for"),
        (
            "Instance Reallocated by Platform",
            "Salad moved it away from a machine that was too slow to start or had a bad network",
        ),
        (
            "Instance Exited:137 (Likely Out of System Memory)",
            "its container exited with 137 (likely out of system memory)",
        ),
        ("Instance Interrupted (New\x1b[2J)", r"Salad says: Instance Interrupted (New\x1b[2J)"),
    ],
)
def test_a_node_on_another_machine_is_the_same_instance_in_another_place_with_salads_reason(
    provider: SaladProvider, cloud: FakeSalad, event: str, reason: str
) -> None:
    before = start(provider, "node-a")
    assert before.place == cloud.instances["gl-node-a-p1"][0]["id"] and before.moved == ""
    cloud.place_anew("gl-node-a-p1", event)
    lost = alive(provider, "node-a")
    assert (lost.id, lost.place, lost.progress) == (before.id, "", "waiting for a machine")
    provider.run("node-a")
    after = alive(provider, "node-a")
    assert (after.id, after.billed_from_ms, after.moved) == (before.id, before.billed_from_ms, reason)
    assert after.place == cloud.instances["gl-node-a-p1"][0]["id"] != before.place


def test_a_move_between_two_looks_that_leaves_all_counts_as_they_were_is_found_in_rotation(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    before = start(provider, "node-a")
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)", "running")
    looks = 0
    while alive(provider, "node-a").place == before.place:
        looks += 1
    assert looks <= 13, "a minute of looks"


def test_a_reason_is_of_the_instance_that_was_left_and_not_of_an_earlier_one(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    start(provider, "node-a")
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)", "creating")
    alive(provider, "node-a")
    cloud.advance(30)
    cloud.place_anew("gl-node-a-p1", "Instance Running", "creating")
    cloud.advance(30)
    assert alive(provider, "node-a").moved == "Salad moved it to another machine"


def test_a_node_that_is_cut_off_and_runs_on_beside_its_replacement_stays_the_node_until_it_goes(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    before = start(provider, "node-a")
    cloud.instances["gl-node-a-p1"].append(
        cloud.instances["gl-node-a-p1"][0] | {"id": "another", "update_time": "2030-01-01T00:00:00Z"}
    )
    assert alive(provider, "node-a").place == before.place
    cloud.change("gl-node-a-p1", 0, state="stopping")
    assert alive(provider, "node-a").place == "another"


def test_the_time_between_two_machines_is_not_billed(provider: SaladProvider, cloud: FakeSalad) -> None:
    start(provider, "node-a")
    cloud.advance(600)
    assert alive(provider, "node-a").unbilled == ()
    cloud.advance(2)
    lost_ms = cloud.now_ms
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)", "creating")
    cloud.advance(60)
    assert alive(provider, "node-a").unbilled == (), "it is not known how long it will be"
    cloud.advance(60)
    cloud.change("gl-node-a-p1", -1, state="running")
    runs_ms = cloud.now_ms
    cloud.advance(60)
    assert alive(provider, "node-a").unbilled == ((lost_ms, runs_ms),)
    cloud.advance(600)
    assert alive(provider, "node-a").unbilled == ((lost_ms, runs_ms),)


def test_without_a_reason_of_salads_a_node_is_not_billed_since_it_was_last_seen_running(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    start(provider, "node-a")
    ran_ms = cloud.now_ms
    cloud.place_anew("gl-node-a-p1", "Instance Created", "creating")
    cloud.advance(30)
    alive(provider, "node-a")
    provider.run("node-a")
    runs_ms = cloud.now_ms
    cloud.advance(30)
    assert alive(provider, "node-a").unbilled == ((ran_ms, runs_ms),)


def test_a_move_that_is_found_late_was_not_billed_since_salad_says_that_it_began(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    before = start(provider, "node-a")
    cloud.advance(100)
    lost_ms = cloud.now_ms
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Priority)", "creating")
    cloud.advance(200)
    provider.run("node-a")
    runs_ms = cloud.now_ms
    cloud.advance(100)
    moved = alive(provider, "node-a")
    assert moved.place != before.place and moved.unbilled == ((lost_ms, runs_ms),)


def test_a_bad_machine_is_left_by_our_own_ban_and_that_is_the_reason(provider: SaladProvider, cloud: FakeSalad) -> None:
    assert isinstance(provider.driver, WithReallocation)
    before = start(provider, "node-a")
    provider.driver.reallocate(before.id, "banned from job-1")
    after = alive(provider, "node-a")
    assert after.id == before.id and after.place not in ("", before.place)
    assert after.moved == "banned from job-1"
    cloud.place_anew("gl-node-a-p1", "Instance Interrupted (Node Offline)", "running")
    cloud.advance(60)
    assert alive(provider, "node-a").moved == "its machine went offline"


def test_moves_are_asked_for_within_half_of_what_salad_allows_in_a_minute(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    instance = start(provider, "node-a").id
    with pytest.raises(TooMany) as refusal:
        for _ in range(20):
            provider.driver.reallocate(instance, "banned")
            alive(provider, "node-a")
    assert sum(each.endswith("/reallocate") for each in cloud.requests) == 5
    cloud.advance(refusal.value.wait_whole_s)
    provider.driver.reallocate(instance, "banned")


def test_a_node_without_a_machine_needs_no_other(provider: SaladProvider, cloud: FakeSalad) -> None:
    ask(provider, "node-a")
    instance = alive(provider, "node-a").id
    provider.driver.reallocate(instance, "banned")
    assert not any(each.endswith("/reallocate") for each in cloud.requests)
    with pytest.raises(NotFound):
        provider.driver.reallocate("my-own-work", "banned")


# A node that is stopped


def deletions(cloud: FakeSalad) -> list[str]:
    return [each for each in cloud.requests if each.startswith("DELETE ")]


def stop_all_for_a_minute(provider: SaladProvider) -> int:
    """Let the service stop all nodes that are listed as running, in each look. Return how many those were at last."""
    running = list[str]()
    for _ in range(4):
        running = [each.id for each in provider.driver.list() if each.billed_to_ms is None]
        for instance in running:
            provider.driver.stop(instance)
        provider.cloud.advance(10)
    return len(running)


@pytest.mark.parametrize("count", [45, 170])
def test_nodes_that_take_minutes_to_stop_are_all_seen_to_end_and_few_requests_are_sent(
    provider: SaladProvider, cloud: FakeSalad, count: int
) -> None:
    many(cloud, count)
    for _ in range(40):
        provider.driver.list()
    cloud.advance(60)
    cloud.removal_looks = 10
    left, asked = list[int](), list[int]()
    for _ in range(6):
        cloud.requests.clear()
        left.append(stop_all_for_a_minute(provider))
        asked.append(len(cloud.requests))
    assert left[0] == count and left[-1] == 0
    assert max(asked) <= max(REQUESTS_MAX, 2 * count)
    assert {each.ended for each in provider.driver.list()} == {"it was stopped"}


def test_a_removal_is_asked_for_again_after_a_minute_while_the_group_is_listed(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    instance = start(provider, "node-a").id
    with cloud.suffers(Fault.DEAF):
        for removals in (1, 2, 3):
            for _ in range(4):
                provider.driver.stop(instance)
                provider.driver.list()
            assert len(deletions(cloud)) == removals
            cloud.advance(45)


def test_whether_a_node_that_was_stopped_is_gone_is_asked_beyond_half_of_the_quota(
    provider: SaladProvider, cloud: FakeSalad, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = start(provider, "node-a").id
    start(provider, "node-b")
    monkeypatch.setattr(driver, "REQUESTS_MAX", 0)
    provider.driver.stop(stopped)
    provider.end_by_hand("node-b")
    for _ in range(2):
        listed = {each.name: each.ended for each in provider.driver.list()}
    assert listed == {"node-a": "it was stopped", "node-b": ""}


def test_a_removal_is_asked_for_again_each_minute_also_while_no_list_has_the_group(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    instance = start(provider, "node-a").id
    provider.driver.stop(instance)
    cloud.answers[f"GET {GROUPS}/{instance}"] = web_page(502)
    for _ in range(3):
        cloud.advance(60)
        provider.driver.list()
        provider.driver.stop(instance)
    assert len(deletions(cloud)) == 4
    cloud.answers.clear()
    assert found(provider, "node-a").ended == "it was stopped"


def test_removals_that_fail_keep_nothing_else_from_being_asked(provider: SaladProvider, cloud: FakeSalad) -> None:
    many(cloud, 2)
    for instance in provider.driver.list():
        cloud.answers[f"DELETE {GROUPS}/{instance.id}"] = web_page(502)
        with pytest.raises(Unreachable):
            provider.driver.stop(instance.id)
    many(cloud, 3)
    assert alive(provider, "node-2").billed_from_ms is not None


def test_a_removal_that_salad_refuses_as_one_is_under_way_fails_nothing(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    instance = start(provider, "node-a").id
    for status in (409, 400):
        cloud.answers[f"DELETE {GROUPS}/{instance}"] = problem(status, "Conflict", "The group is being deleted.")
        provider.driver.stop(instance)
        assert alive(provider, "node-a").id == instance
        cloud.advance(60)
    cloud.answers.clear()
    provider.driver.stop(instance)
    provider.driver.list()
    assert found(provider, "node-a").ended == "it was stopped" and cloud.groups == {}


# How often Salad is asked


def test_a_look_at_nodes_that_stay_as_they_are_is_one_request(provider: SaladProvider, cloud: FakeSalad) -> None:
    for name in ("node-a", "node-b"):
        start(provider, name)
    cloud.requests.clear()
    for _ in range(5):
        provider.driver.list()
    assert cloud.requests == [LOOK] * 5


def many(cloud: FakeSalad, count: int) -> None:
    for number in range(count):
        cloud.add(body_of(f"gl-node-{number}-p1"))
        cloud.run(f"gl-node-{number}-p1")


def body_of(name: str) -> dict[str, Any]:
    container = {"image": "x", "resources": {"cpu": 1, "memory": 1024, "storage_amount": 1 << 30}}
    return {"name": name, "container": container, "replicas": 1, "autostart_policy": True, "restart_policy": "always"}


@pytest.fixture
def small_quota(monkeypatch: pytest.MonkeyPatch) -> int:
    """A quota that 40 groups exceed as 200 exceed Salad's, of which the driver uses half."""
    assert REQUESTS_MAX == 120
    monkeypatch.setattr(driver, "REQUESTS_MAX", 24)
    return 24


def test_instances_are_asked_for_in_rotation_within_half_the_quota(
    provider: SaladProvider, cloud: FakeSalad, small_quota: int
) -> None:
    many(cloud, 40)
    for minute in range(4):
        cloud.requests.clear()
        for _ in range(12):
            listed = provider.driver.list()
        assert len(cloud.requests) <= small_quota + 12, minute
    assert len(listed) == 40 and all(each.place and each.billed_from_ms is not None for each in listed)


def test_what_changed_is_asked_for_before_what_only_is_due(
    provider: SaladProvider, cloud: FakeSalad, small_quota: int
) -> None:
    many(cloud, 40)
    for _ in range(48):
        provider.driver.list()
    cloud.place_anew("gl-node-39-p1", "Instance Interrupted (Priority)", "creating")
    questions = list[str]()
    while not questions:
        cloud.requests.clear()
        provider.driver.list()
        questions = [each for each in cloud.requests if each.endswith("/instances")]
    assert questions[0] == f"{LOOK}/gl-node-39-p1/instances"


def test_one_group_that_gets_no_answer_does_not_keep_the_others_from_being_asked_for(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    many(cloud, 3)
    cloud.answers["gl-node-0-p1/instances"] = Response("{", media_type="application/json")
    listed = {each.name: each for each in provider.driver.list()}
    assert listed["node-0"].place == "" and listed["node-1"].place and listed["node-2"].place
    cloud.answers.clear()
    provider.driver.list()
    assert all(each.place for each in provider.driver.list())


def test_groups_that_never_get_an_answer_come_last_at_the_next_look(provider: SaladProvider, cloud: FakeSalad) -> None:
    many(cloud, 4)
    broken = Response("{", media_type="application/json")
    cloud.answers |= {f"gl-node-{number}-p1/instances": broken for number in range(3)}
    assert not any(each.place for each in provider.driver.list())
    assert [bool(each.place) for each in provider.driver.list()] == [False] * 3 + [True]


def test_groups_that_were_deleted_after_the_list_keep_no_other_from_being_asked_for(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    many(cloud, 5)
    cloud.answers |= {f"gl-node-{number}-p1/instances": nothing() for number in range(4)}
    assert [bool(each.place) for each in provider.driver.list()] == [False] * 4 + [True]


def test_a_list_without_a_group_that_exists_ends_nothing(provider: SaladProvider, cloud: FakeSalad) -> None:
    before = start(provider, "node-a")
    cloud.answers[LOOK] = Response('{"items": []}', media_type="application/json")
    assert provider.driver.list() == [before]
    cloud.answers.clear()
    assert provider.driver.list() == [before]


# Why did it never join?


def test_logs_are_salads_events_and_what_the_container_printed(provider: SaladProvider, cloud: FakeSalad) -> None:
    assert isinstance(provider.driver, WithLogs)
    instance = start(provider, "node-a")
    cloud.happen("gl-node-a-p1", "Instance Downloading", cloud.instances["gl-node-a-p1"][0])
    cloud.printed["gl-node-a-p1"] = ["http://nowhere/worker.sh cannot be fetched; trying again in 10 s"]
    cloud.printed["gl-node-b-p1"] = ["another's"]
    lines = provider.driver.logs(instance.id).splitlines()
    assert [line.partition(" ")[2] for line in lines] == ["Salad: Instance Downloading", *cloud.printed["gl-node-a-p1"]]
    provider.end_by_hand("node-a")
    assert provider.driver.logs(instance.id).endswith("trying again in 10 s"), "they outlive the group"
    with pytest.raises(NotFound):
        provider.driver.logs("my-own-work")


# Whose groups


def test_two_pools_in_one_project_leave_each_others_nodes_alone(
    provider: SaladProvider, cloud: FakeSalad, url: str
) -> None:
    other = SaladProvider(cloud, url, mark="p2")
    first = start(provider, "node-a")
    ask(other, "node-b")
    cloud.run("gl-node-b-p2")
    second = alive(other, "node-b")
    assert (provider.driver.list(), other.driver.list()) == ([first], [second])
    provider.driver.stop(second.id)
    with pytest.raises(NotFound):
        provider.driver.reallocate(second.id, "banned")
    assert other.driver.list() == [second] and not deletions(cloud)


def unmarked(cloud: FakeSalad, node: str, server: str) -> str:
    """Rent a node as release 0.2 did."""
    group = body_of(f"gl-{node}")
    group["container"] |= {"environment_variables": Rental(name=node, server=server, token="a secret").environment()}
    cloud.add(group)
    cloud.run(f"gl-{node}")
    return f"gl-{node}"


def test_a_node_that_release_02_rented_for_this_server_is_listed_followed_and_stopped(
    provider: SaladProvider, cloud: FakeSalad
) -> None:
    cloud.replicas_quota = 9
    old = unmarked(cloud, "node-old", SERVER)
    others = unmarked(cloud, "node-other", "https://another.example.org")
    cloud.add(body_of("gl-nobodys"))
    cloud.add(body_of("gl-node-x-p2") | {"container": cloud_container(cloud, old)})
    assert names(provider.driver) == ["node-old"]
    before = alive(provider, "node-old")
    assert before.id == old and before.place
    cloud.place_anew(old, "Instance Interrupted (Node Offline)", "running")
    cloud.advance(60)
    assert alive(provider, "node-old").moved == "its machine went offline"
    assert "Node Offline" in provider.driver.logs(old)
    provider.driver.stop(others)
    provider.driver.stop(old)
    for _ in range(2):
        provider.driver.list()
    assert found(provider, "node-old").ended == "it was stopped"
    assert sorted(cloud.groups) == ["gl-nobodys", "gl-node-other", "gl-node-x-p2"]


def cloud_container(cloud: FakeSalad, group: str) -> dict[str, object]:
    known = cloud.groups[group]["container"]
    return known | {"resources": {"cpu": 1, "memory": 1024, "storage_amount": 1 << 30}}


def test_names_of_groups_are_short_enough_for_the_longest_prefix(cloud: FakeSalad, url: str) -> None:
    entry = make_entries(lambda opened: pytest.fail(opened.name))["salad"]
    of = SaladPoolSettings(organization="acme", project="dogs", prefix="p" * 20)
    made = entry.make(
        OpenedPool(name="gpus", id=new_id("pool"), settings=of, provider=Addresses(endpoint=url), secret=KEY)
    )
    node = new_id("node")
    made.start(made.offers()[0].id, rental(node))
    (group,) = cloud.groups
    assert group.startswith(f"{'p' * 20}-{node}-") and len(group) <= 63 and names(made) == [node]


def test_groups_of_another_prefix_are_another_servers(provider: SaladProvider, cloud: FakeSalad) -> None:
    cloud.replicas_quota = 9
    for name in ("glx-node-b-p1", "gl", "node-gl-p1", "gl-p1", "gl--p1"):
        cloud.add(body_of(name) | {"display_name": "other"})
    start(provider, "node-a")
    assert names(provider.driver) == ["node-a"]


# What a node runs first


@pytest.mark.parametrize("programs", [("curl",), ("wget",), ("python3",)], ids=lambda each: each[0])
def test_a_node_fetches_the_worker_from_the_server_and_runs_it_with_its_place(
    tmp_path: Path, programs: tuple[str, ...]
) -> None:
    app, asked = FastAPI(), list[str]()

    @app.get("/worker.sh")
    def script() -> Response:
        asked.append("worker.sh")
        if len(asked) == 1:
            return Response("not yet", 503)
        return Response('echo "$GANGLINE_NODE at $GANGLINE_PLACE with $GANGLINE_TOKEN as $$"', media_type="text/x-sh")

    (tmp_path / "sleep").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "sleep").chmod(0o755)
    for program in ("sh", "mktemp", *programs):
        (tmp_path / program).symlink_to(found_program(program))
    with served(app) as url:
        environment = {**Rental(name="node-a", server=url, token="a secret").environment(), "SALAD_INSTANCE_ID": "i-1"}
        node = subprocess.Popen(
            [tmp_path / "sh", "-c", START],
            env={**environment, "PATH": str(tmp_path), "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        printed, warned = node.communicate()
    # It is the container's first process, so that a request to stop reaches it.
    assert (node.returncode, printed) == (0, f"node-a at i-1 with a secret as {node.pid}\n")
    assert "worker.sh cannot be fetched; trying again in 10 s" in warned and len(asked) == 2


def found_program(name: str) -> Path:
    """Return a program of this machine. The interpreter is this one: another might be a script that needs more of the path."""
    if name == "python3":
        return Path(sys.executable).resolve()
    return next(place for folder in os.get_exec_path() if (place := Path(folder, name)).exists())
