"""Pools that operators make: shared by all servers, asked before they are made, and gone without a trace or a bill."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.output import format_time
from gangline.compose.pools import Drivers, OpenedPool, make_entries
from gangline.core.errors import BadInput, Denied, Unreachable, UserError
from gangline.core.specs.fields import Needs
from gangline.ports.pool import NoCapacity, Offer, Pool, PoolOrder
from gangline.ports.server import Beat, Join
from gangline.ports.store import write
from gangline.service.controller import Controller
from gangline.service.driving import AtOnce, RefusedStart
from gangline.service.fleet import pools
from gangline.service.fleet.fleet import settle, tend
from gangline.service.fleet.nodes import join_pool
from gangline.service.jobs import query
from gangline.service.jobs.renew import renew
from gangline.service.recent import Recent
from gangline.service.renting import Renting
from tests.conftest import Typed
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.served import serving
from tests.service.test_http import problem
from tests.service.test_rules import advance, release, succeed
from tests.shop import LARGE, SMALL, Till, make_drivers


def add(service: Service, name: str = "cloud-1", **said: Any) -> dict[str, Any]:
    answer = service.ask("POST", "/v1/pools", json={"name": name, "driver": "shop"} | said)
    assert answer.status_code == 201, answer.text
    return answer.json()


def refused(service: Service, name: str = "cloud-1", **said: Any) -> str:
    answer = service.ask("POST", "/v1/pools", json={"name": name, "driver": "shop"} | said)
    assert answer.status_code in (400, 401, 409, 422, 503), answer.text
    assert [pool["name"] for pool in service.ask("GET", "/v1/pools").json()] == [], "nothing is half made"
    return answer.json()["detail"]


def look(service: Service) -> None:
    service.till.now_ms = service.now_ms
    tend(service.deployment, service.now_ms)


def rented(service: Service) -> list[str]:
    return [row["id"] for row in service.look("SELECT id FROM node WHERE rented = 1 AND state <> 'gone' ORDER BY id")]


def join(service: Service, rental: str, pool: str = "cloud-1") -> str:
    request = Join(machine=f"machine of {rental}", name=rental, node=rental, gpu="RTX 3060", gpu_memory_gb=12)
    return join_pool(service.deployment, request, pool, service.now_ms, rental=rental).node


def add_with_a_node(service: Service) -> str:
    """Add a pool, and have the node that it rents for a job join and listed."""
    add(service)
    service.submit()
    look(service)
    (node,) = rented(service)
    join(service, node)
    look(service)
    return node


@pytest.fixture
def another(service: Service) -> Iterator[Controller]:
    """A second server over the same database, whose till has not been opened."""
    drivers = make_drivers(Till())
    renting = Renting({}, drivers, lambda _name, driver: AtOnce(driver))
    server = replace(
        service.deployment,
        server="another",
        drivers=drivers,
        pools=renting,
        open_pools=renting.refresh,
        recent=Recent(),
    )
    yield Controller(server)


# To make one


def test_a_pool_that_was_made_is_shown_with_what_its_provider_offers(service: Service) -> None:
    made = add(service, nodes_max=3, offers=["sm*"], price_max_usd_per_hour=1.5, trust=2, settings={"town": "Ulm"})
    assert (made["driver"], made["nodes"], made["nodes_max"], made["state"]) == ("shop", 0, 3, "active")
    assert made["because"] == "it has not been asked yet"
    look(service)
    (shown,) = service.ask("GET", "/v1/pools").json()
    assert shown == service.ask("GET", "/v1/pools/cloud-1").json() and shown["because"] == ""
    assert {offer["id"]: offer["excluded"] for offer in shown["offered"]} == {
        "small": "",
        "large": "it is none of the pool's offers (sm*)",
    }
    assert service.till.opened[-1].settings.town == "Ulm"


def test_how_old_the_prices_of_a_catalog_may_be_is_shown_and_nothing_is_said_of_prices_of_now(
    service: Service, typed: Typed
) -> None:
    service.till.offers = [replace(SMALL, priced_ms=1_780_000_000_000), LARGE]
    add(service)
    look(service)
    offered = service.ask("GET", "/v1/pools/cloud-1").json()["offered"]
    assert {offer["id"]: offer["priced_ms"] for offer in offered} == {"small": 1_780_000_000_000, "large": None}
    (row,) = service.deployment.store.load("pools")
    stored = [sorted(offer) for offer in json.loads(row["seen"])["offers"]]
    assert ["priced_ms" in fields for fields in stored] == [True, False], "an earlier server reads the second, too"
    with serving(service.app) as at:
        shown = [typed("pools", "show", "cloud-1", "--server", at.url, "--token", OPERATOR)[1]]
        service.till.offers = [LARGE]
        look(service)
        shown.append(typed("pools", "show", "cloud-1", "--server", at.url, "--token", OPERATOR)[1])
    assert (
        f"of a catalog that may be as old as {format_time(1_780_000_000_000)}" in shown[0] and "catalog" not in shown[1]
    )


@pytest.mark.parametrize(
    ("said", "because"),
    [
        ({"driver": "none"}, "there is no driver none"),
        ({"provider": "theirs"}, "this server has no provider theirs"),
        ({"settings": {"city": "Ulm"}}, "settings of a pool of shop: city: is not a known field"),
        ({"settings": {"town": 5}}, "settings of a pool of shop: town: must be a text, not 5"),
        ({"nodes_min": 3, "nodes_max": 2}, "a pool cannot have at least 3 nodes and at most 2"),
        ({"offers": ["t4"]}, "the pool could rent none of the 2 offers: small: it is none of the pool's offers (t4)"),
        (
            {"price_max_usd_per_hour": 0.05},
            "the pool could rent none of the 2 offers: small: it costs $0.1 an hour, and the pool pays at most $0.05",
        ),
        (
            {"price_max_usd_per_hour": 0.15, "offers": ["large"]},
            "the pool could rent none of the 2 offers: large: it costs $2 an hour, and the pool pays at most $0.15",
        ),
        ({"secret": "no secret"}, "a secret has a name such as SALAD: capital letters, digits and underscores"),
        ({"secret": "../access"}, "a secret has a name such as SALAD: capital letters, digits and underscores"),
        ({"secret": "MISSING"}, "the secret MISSING is not known to this server: there is no GANGLINE_POOL_MISSING"),
        ({"name": "default"}, "there is a pool default already, of the server's own"),
        ({"name": "Ours"}, "Ours cannot be the name of a pool"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_made(
    service: Service, said: dict[str, Any], because: str
) -> None:
    assert refused(service, **said) == because


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Denied("this key is not valid"), 422),
        (Unreachable("the shop is closed"), 503),
        (NoCapacity("nothing is left"), 503),
    ],
)
def test_a_provider_that_refuses_or_does_not_answer_makes_no_pool(service: Service, error: Any, status: int) -> None:
    service.till.refuses = error
    assert refused(service) == error.message
    answer = service.ask("POST", "/v1/pools", json={"name": "cloud-1", "driver": "shop"})
    assert answer.status_code == status, "401 would be about the key of who asks"
    service.till.refuses = None
    add(service)
    service.till.refuses = error
    answer = service.ask("GET", "/v1/pools/cloud-1/instances")
    assert (answer.status_code, answer.json()["detail"]) == (status, error.message)


@pytest.mark.parametrize(
    ("value", "because"),
    [
        ('{"x": 1}', "settings.town: must be a text, a number, true, false, or a list of these"),
        ('["a", {"x": 1}]', "settings.town: must be a text, a number, true, false, or a list of these"),
        ("null", "settings.town: must be a text, a number, true, false, or a list of these"),
        (r'"a\u001b[31m"', "settings.town: has control characters, or more than 200 characters"),
        ("1e999", "settings.town: must be a finite number, not inf"),
        ("NaN", "settings.town: must be a finite number, not nan"),
        ("[1e999]", "settings.town: must be a finite number"),
    ],
)
def test_a_value_that_no_setting_has_is_one_sentence(service: Service, value: str, because: str) -> None:
    body = f'{{"name": "cloud-1", "driver": "shop", "settings": {{"town": {value}}}}}'
    headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
    answer = service.http.request("POST", "/v1/pools", content=body, headers=headers)
    assert problem(answer, 422, "invalid-spec")["detail"] == because
    assert service.ask("GET", "/v1/pools").json() == []


def test_a_misspelt_limit_is_refused_and_not_left_out(service: Service) -> None:
    assert refused(service, max_usd_per_hour=0.2) == "max_usd_per_hour: is not a known field"
    add(service, price_max_usd_per_hour=0.2)
    answer = service.ask("PATCH", "/v1/pools/cloud-1", json={"price_max": 0.1, "nodes_max": 2})
    assert problem(answer, 422, "invalid-spec")["detail"] == "price_max: is not a known field"
    assert service.ask("GET", "/v1/pools/cloud-1").json()["nodes_max"] == 1


def test_a_wrong_project_is_said_although_the_offers_do_not_depend_on_it(service: Service) -> None:
    service.till.refuses_list = BadInput("there is no project dogz")
    assert refused(service) == "there is no project dogz"


def test_of_two_servers_that_add_one_pool_one_makes_it(service: Service, another: Controller) -> None:
    wish = pools.PoolWish(driver="shop")
    theirs = another._deployment
    pools.make_pool(theirs, "cloud-1", wish, service.now_ms)
    with pytest.raises(BadInput, match="there is a pool cloud-1 already"):
        pools.make_pool(service.deployment, "cloud-1", wish, service.now_ms)
    assert [pool.name for pool in pools.pool_views(service.deployment)] == ["cloud-1"]


def test_the_drivers_are_listed_with_the_settings_of_their_pools_and_of_their_providers(service: Service) -> None:
    shop = next(driver for driver in service.ask("GET", "/v1/pool-drivers").json() if driver["name"] == "shop")
    assert [setting["name"] for setting in shop["settings"]] == ["town", "shelves"]
    assert [setting["name"] for setting in shop["provider"]] == ["endpoint"]


# What it rents


def test_what_the_provider_lists_now_is_shown_whatever_the_server_knows(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    (node,) = rented(service)
    (instance,) = service.ask("GET", "/v1/pools/cloud-1/instances").json()
    assert (instance["rental"], instance["billed_to_ms"]) == (node, None)
    ((key, held),) = service.till.instances.items()
    service.till.instances[key] = replace(held, progress="downloading 43 %")
    look(service)
    assert service.ask("GET", f"/v1/nodes/{node}").json()["because"].endswith("; downloading 43 %")
    assert service.ask("GET", "/v1/nodes").json()[0]["because"].endswith("; downloading 43 %")
    join(service, node)
    assert "downloading" not in service.ask("GET", f"/v1/nodes/{node}").json()["because"]
    service.till.instances.clear()
    assert service.ask("GET", "/v1/pools/cloud-1/instances").json() == []
    problem(service.ask("GET", "/v1/pools/none/instances"), 404, "not-found")


def test_a_pool_says_what_its_provider_refused_last(service: Service) -> None:
    add(service, offers=["small"])
    service.till.sold_out = {"small"}
    service.submit()
    look(service)
    shown = service.ask("GET", "/v1/pools/cloud-1").json()
    assert (shown["refused"], shown["refused_ms"]) == ("small: no small is left", service.now_ms)


def test_nodes_are_rented_on_the_pools_terms_and_with_its_trust(service: Service) -> None:
    add(service, nodes_max=4, price_max_usd_per_hour=1.0, trust=3)
    for _ in range(2):
        service.submit(needs=Needs(trust=3))
    service.submit(needs=Needs(gpu_memory_gb=48))
    look(service)
    assert service.till.started == ["small", "small"]
    assert [row["trust"] for row in service.look("SELECT trust FROM node")] == [3, 3]


def test_an_offer_without_a_price_is_rented_only_where_the_pool_has_no_ceiling(service: Service) -> None:
    service.till.offers = [Offer(id="any", price_known=False), replace(SMALL, price_micro_usd_per_hour=900_000)]
    add(service, price_max_usd_per_hour=1.0, nodes_max=4)
    service.submit()
    look(service)
    assert service.till.started == ["small"]


def test_an_offer_that_is_sold_out_is_left_for_the_next_and_asked_for_again_later(service: Service) -> None:
    add(service, nodes_max=4)
    service.till.sold_out = {"small"}
    service.submit()
    look(service)
    assert service.till.started == ["large"]
    service.submit()
    look(service)
    assert service.till.started == ["large", "large"], "it was refused a moment ago"
    service.till.sold_out = set()
    service.wait(31)
    service.submit()
    look(service)
    assert service.till.started == ["large", "large", "small"]


def test_a_provider_that_has_nothing_does_not_hold_up_a_tick_where_refusals_are_forgotten_at_once(
    service: Service,
) -> None:
    add(service, nodes_max=4)
    service.change_policy(start_pause_s=1e-6)
    service.till.sold_out = {"small", "large"}
    service.submit()
    look(service)
    assert service.till.started == [] and rented(service) == []


def test_an_offer_whose_nodes_fail_their_probe_is_left_for_another(service: Service) -> None:
    service.till.offers = [SMALL, replace(SMALL, id="other", price_micro_usd_per_hour=150_000)]
    add(service, nodes_max=4)
    service.submit()
    look(service)
    (node,) = rented(service)
    request = Join(machine="bare", name="bare", node=node, kinds=(), problems={"lora": "torch is not installed"})
    join_pool(service.deployment, request, "cloud-1", service.now_ms, rental=node)
    for _ in range(3):
        service.wait(60)
        look(service)
    assert service.till.started == ["small", "other"]


def test_a_change_holds_from_the_next_look_on_and_the_driver_stays_open(service: Service) -> None:
    add(service, nodes_max=0)
    service.submit()
    look(service)
    assert service.till.started == []
    opened = len(service.till.opened)
    changed = service.ask("PATCH", "/v1/pools/cloud-1", json={"nodes_max": 1, "offers": ["large"]}).json()
    assert (changed["nodes_max"], changed["offers"]) == (1, ["large"])
    look(service)
    assert service.till.started == ["large"] and len(service.till.opened) == opened + 1, "the check alone"
    service.ask("PATCH", "/v1/pools/cloud-1", json={"price_max_usd_per_hour": 5})
    assert service.ask("PATCH", "/v1/pools/cloud-1", json={"any_price": True}).json()["price_max_usd_per_hour"] is None
    look(service)
    service.ask("PATCH", "/v1/pools/cloud-1", json={"settings": {"town": "Bonn"}})
    look(service)
    assert service.till.opened[-1].settings.town == "Bonn"
    problem(service.ask("PATCH", "/v1/pools/cloud-1", json={"nodes_min": 9}), 422, "bad-input")


def test_settings_by_which_its_provider_no_longer_shows_the_nodes_that_a_pool_has_are_refused(service: Service) -> None:
    add(service, nodes_max=2)
    service.submit()
    look(service)
    (node,) = rented(service)
    elsewhere, service.till.instances = service.till.instances, {}
    answer = service.ask("PATCH", "/v1/pools/cloud-1", json={"settings": {"town": "Bonn"}})
    assert problem(answer, 422, "bad-input")["detail"] == (
        "with these settings the provider of cloud-1 does not list its node cloud-1-1, which would be billed on"
    )
    assert service.ask("GET", "/v1/pools/cloud-1").json()["settings"] == {}
    assert service.ask("PATCH", "/v1/pools/cloud-1", json={"nodes_max": 1}).json()["nodes_max"] == 1
    service.till.instances = elsewhere
    changed = service.ask("PATCH", "/v1/pools/cloud-1", json={"settings": {"town": "Bonn"}}).json()
    assert changed["settings"] == {"town": "Bonn"}
    look(service)
    assert rented(service) == [node]


def test_how_many_nodes_there_may_be_and_their_trust_is_changed_while_the_provider_does_not_answer(
    service: Service,
) -> None:
    add(service, nodes_max=9)
    service.till.refuses = Unreachable("the shop is closed")
    changed = service.ask("PATCH", "/v1/pools/cloud-1", json={"nodes_max": 0, "trust": 2}).json()
    assert (changed["nodes_max"], changed["trust"]) == (0, 2)
    answer = service.ask("PATCH", "/v1/pools/cloud-1", json={"nodes_min": 1})
    assert problem(answer, 422, "bad-input")["detail"] == "a pool cannot have at least 1 node and at most 0"
    answer = service.ask("PATCH", "/v1/pools/cloud-1", json={"price_max_usd_per_hour": 1.0})
    assert problem(answer, 503, "unreachable")["detail"] == "the shop is closed"


def test_a_highest_price_and_any_price_contradict_each_other(service: Service) -> None:
    add(service, price_max_usd_per_hour=1.0)
    answer = service.ask("PATCH", "/v1/pools/cloud-1", json={"price_max_usd_per_hour": 2.0, "any_price": True})
    assert problem(answer, 422, "bad-input")["detail"] == "any price and a highest price contradict each other"
    assert service.ask("GET", "/v1/pools/cloud-1").json()["price_max_usd_per_hour"] == 1.0


def test_a_pool_that_was_removed_and_made_again_is_not_asked_by_the_driver_of_the_first(service: Service) -> None:
    add(service)
    look(service)
    first = service.till.opened[-1].id
    service.store.apply(write("set_pool_state", name="cloud-1", state="removing", now=service.now_ms))
    service.store.apply(write("forget_pool", name="cloud-1"))
    add(service)
    look(service)
    assert service.till.opened[-1].id not in ("", first)


def test_a_paused_pool_rents_nothing_and_keeps_who_works(service: Service) -> None:
    add(service, nodes_max=4)
    service.submit()
    look(service)
    (node,) = rented(service)
    join(service, node)
    hold = service.claim(node).hold
    service.ask("POST", "/v1/pools/cloud-1/pause")
    job = service.submit(needs=Needs(gpu_memory_gb=48))
    look(service)
    assert rented(service) == [node] and service.claim_nothing(node)
    assert "the pool cloud-1 is paused" in query.job(service.deployment, PROJECT, job, service.now_ms).summary.because
    advance(service, node, hold)
    service.ask("POST", "/v1/pools/cloud-1/resume")
    look(service)
    assert len(rented(service)) == 2


def test_while_its_offers_are_not_known_its_nodes_are_tended_all_the_same(service: Service) -> None:
    add(service, nodes_max=2)
    service.submit()
    look(service)
    (node,) = rented(service)
    service.till.refuses_offers = BadInput("this class was retired")
    service.submit()
    look(service)
    assert rented(service) == [node]
    assert service.ask("GET", "/v1/pools/cloud-1").json()["because"] == (
        "its provider did not answer: this class was retired"
    )
    service.till.instances = {
        name: replace(found, billed_to_ms=service.now_ms, ended="its machine went offline")
        for name, found in service.till.instances.items()
    }
    look(service)
    assert service.look("SELECT because FROM node")[0]["because"] == "its machine went offline"


def test_what_was_refused_is_given_up_also_while_the_provider_does_not_answer(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    (node,) = rented(service)
    driving = service.deployment.pools["cloud-1"].driving
    assert isinstance(driving, AtOnce)
    driving._refused.append(RefusedStart(node=node, offer="small", because="no small is left"))
    service.till.refuses = Unreachable("the shop is closed")
    look(service)
    assert rented(service) == [] and service.look("SELECT because FROM node")[0]["because"] == "no small is left"


def test_a_pool_says_when_its_provider_answered_last(service: Service) -> None:
    add(service)
    look(service)
    answered_ms = service.now_ms
    service.till.refuses = Unreachable("the shop is closed")
    service.wait(60)
    look(service)
    assert service.ask("GET", "/v1/pools/cloud-1").json()["seen_ms"] == answered_ms


# Several servers


def test_a_server_without_its_turn_asks_no_provider_and_knows_what_was_said(
    service: Service, another: Controller
) -> None:
    add(service)
    look(service)
    Controller(service.deployment).tick(service.now_ms)
    another.tick(service.now_ms)
    theirs = another._deployment
    answer = theirs.recent.offers_of("cloud-1")
    assert answer and answer.offers == (SMALL, LARGE)
    service.till.refuses = Unreachable("the shop is closed")
    service.wait(20)
    look(service)
    assert pools.pool_view(theirs, "cloud-1").because == "its provider did not answer: the shop is closed"


def test_a_server_that_lacks_the_driver_or_the_secret_says_so(service: Service) -> None:
    add(service)
    row = service.store.load("pool", name="cloud-1")[0]
    renting = Renting({}, make_drivers(Till()), lambda _name, driver: AtOnce(driver))
    renting.refresh([dict(row) | {"driver": "of tomorrow"}])
    with pytest.raises(Exception, match="the server whose turn it is cannot ask it: there is no driver of tomorrow"):
        renting["cloud-1"].driving.look(0)


# Two of one provider


def test_two_pools_of_one_account_leave_each_others_nodes_alone_and_each_is_billed_once(service: Service) -> None:
    add(service, "cloud-1", nodes_max=1, offers=["small"])
    add(service, "cloud-2", nodes_max=1, offers=["large"])
    service.submit()
    service.submit(needs=Needs(gpu_memory_gb=48))
    for _ in range(4):
        service.wait(20)
        look(service)
    assert len(service.till.started) == len(rented(service)) == 2
    assert all(found.billed_to_ms is None for found in service.till.instances.values())
    billed = service.look("SELECT node, COUNT(*) AS bills FROM instance GROUP BY node")
    assert {row["node"]: row["bills"] for row in billed} == dict.fromkeys(rented(service), 1)
    service.ask("DELETE", "/v1/pools/cloud-1")
    for _ in range(4):
        service.wait(20)
        look(service)
    assert [pool["name"] for pool in service.ask("GET", "/v1/pools").json()] == ["cloud-2"]
    assert sorted(found.billed_to_ms is None for found in service.till.instances.values()) == [False, True]


# To remove one


def test_a_pool_that_is_removed_while_busy_lets_its_nodes_finish_and_then_is_gone(service: Service) -> None:
    add(service)
    job = service.submit()
    look(service)
    (node,) = rented(service)
    join(service, node)
    hold = service.claim(node).hold
    assert service.ask("DELETE", "/v1/pools/cloud-1").json()["state"] == "removing"
    look(service)
    assert rented(service) == [node] and service.state(job) == "running"
    service.submit()
    advance(service, node, hold)
    succeed(service, node, hold)
    assert service.state(job) == "succeeded" and service.claim_nothing(node)
    for _ in range(3):
        service.wait(20)
        look(service)
    assert rented(service) == [] and all(found.billed_to_ms for found in service.till.instances.values())
    problem(service.ask("GET", "/v1/pools/cloud-1"), 404, "not-found")
    assert list(service.deployment.pools) == [], "its driver is closed"


def test_a_node_that_has_not_joined_is_given_back_with_its_pool(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    assert len(rented(service)) == 1
    service.ask("DELETE", "/v1/pools/cloud-1")
    look(service)
    assert rented(service) == [] and all(found.billed_to_ms for found in service.till.instances.values())


def test_a_pool_is_not_forgotten_while_a_request_for_a_node_may_still_be_on_its_way(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    on_its_way, service.till.instances = service.till.instances, {}
    service.ask("DELETE", "/v1/pools/cloud-1")
    look(service)
    assert rented(service) == []
    service.till.refuses = Unreachable("the shop is closed")
    for _ in range(5):
        service.wait(20)
        look(service)
    shown = service.ask("GET", "/v1/pools/cloud-1").json()
    assert (shown["state"], shown["because"]) == ("removing", "its provider did not answer: the shop is closed")
    service.till.refuses, service.till.instances = None, on_its_way
    for _ in range(5):
        service.wait(20)
        look(service)
    assert all(found.billed_to_ms for found in service.till.instances.values()), "it was stopped when it appeared"
    problem(service.ask("GET", "/v1/pools/cloud-1"), 404, "not-found")


def test_a_pool_whose_requests_rented_nothing_is_forgotten_after_some_lists_without_a_node(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    service.till.instances.clear()
    service.ask("DELETE", "/v1/pools/cloud-1")
    for _ in range(2):
        look(service)
        assert service.ask("GET", "/v1/pools/cloud-1").status_code == 200, "a list may lack an instance once"
        service.wait(20)
    for _ in range(2):
        look(service)
        service.wait(20)
    problem(service.ask("GET", "/v1/pools/cloud-1"), 404, "not-found")


def test_a_pool_that_never_rented_is_forgotten_whether_or_not_its_provider_answers(service: Service) -> None:
    add(service)
    service.till.refuses = Unreachable("the shop is closed")
    service.ask("DELETE", "/v1/pools/cloud-1")
    look(service)
    problem(service.ask("GET", "/v1/pools/cloud-1"), 404, "not-found")


def test_with_stop_its_jobs_are_handed_back(service: Service) -> None:
    add(service)
    job = service.submit()
    look(service)
    (node,) = rented(service)
    join(service, node)
    hold = service.claim(node).hold
    service.ask("DELETE", "/v1/pools/cloud-1?stop=true")
    beat = Beat(phase="training", step=1)
    assert renew(service.deployment, node, hold, beat, service.now_ms).stop
    release(service, node, hold)
    look(service)
    assert service.state(job) == "queued"
    assert "its pool is being removed" in service.look("SELECT because FROM node")[0]["because"]


def test_a_pool_that_is_being_removed_is_neither_changed_nor_resumed(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    service.ask("DELETE", "/v1/pools/cloud-1")
    for method, path in (("PATCH", ""), ("POST", "/resume"), ("POST", "/pause")):
        answer = service.ask(method, f"/v1/pools/cloud-1{path}", json={"nodes_max": 5} if method == "PATCH" else None)
        assert problem(answer, 422, "bad-input")["detail"] == "the pool cloud-1 is being removed"
    assert service.ask("DELETE", "/v1/pools/cloud-1").status_code == 200


def test_a_pool_is_forgotten_only_once_its_bills_are_settled(service: Service) -> None:
    add(service)
    service.submit()
    look(service)
    (node,) = rented(service)
    join(service, node)
    service.wait(100)
    service.ask("DELETE", "/v1/pools/cloud-1")
    for _ in range(4):
        service.wait(20)
        look(service)
    settle(service.deployment)
    billed = service.look("SELECT SUM(micro_usd) AS all_of_it FROM ledger")[0]["all_of_it"]
    (instance,) = service.till.instances.values()
    assert billed and instance.billed_from_ms and instance.billed_to_ms
    price = SMALL.price_micro_usd_per_hour
    assert billed == price * instance.billed_to_ms // 3_600_000 - price * instance.billed_from_ms // 3_600_000


def test_a_pool_with_an_instance_that_its_provider_dropped_without_an_end_is_forgotten_after_ten_minutes(
    service: Service,
) -> None:
    node = add_with_a_node(service)
    service.wait(100)
    service.till.instances.clear()
    for _ in range(10):
        service.wait(20)
        look(service)
    (known,) = service.look("SELECT state, meter_ms FROM node ORDER BY id LIMIT 1")
    assert known["state"] == "gone"
    spent = f"SELECT SUM(micro_usd) AS spent FROM ledger WHERE node = '{node}'"
    (before,) = service.look(spent)
    service.ask("DELETE", "/v1/pools/cloud-1")
    for _ in range(10):
        service.wait(20)
        look(service)
    assert service.ask("GET", "/v1/pools/cloud-1").status_code == 200, "its end may still be shown"
    for _ in range(30):
        service.wait(20)
        look(service)
    problem(service.ask("GET", "/v1/pools/cloud-1"), 404, "not-found")
    assert service.look(spent) == [before] and before["spent"] > 0, "it costs what its node was known to"


def test_a_bill_ends_although_the_provider_shows_the_instance_as_ended_but_not_since_when_it_was_billed(
    service: Service,
) -> None:
    node = add_with_a_node(service)
    service.wait(100)
    (known,) = service.till.instances.values()
    service.till.instances[known.id] = replace(known, billed_from_ms=None, billed_to_ms=service.now_ms)
    service.ask("DELETE", "/v1/pools/cloud-1")
    for _ in range(40):
        service.wait(20)
        look(service)
    (bill,) = service.look(f"SELECT billed_to_ms, settled FROM instance WHERE node = '{node}'")
    assert bill["billed_to_ms"] is not None and bill["settled"] == 1
    problem(service.ask("GET", "/v1/pools/cloud-1"), 404, "not-found")


# Secrets and providers


def test_a_secret_is_found_in_its_variable_or_its_file_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till()
    drivers = make_drivers(till, secrets=tmp_path, url="https://gangline.example.org")

    def secret_of(name: str) -> str:
        drivers.open(PoolOrder(name="p", driver="far-shop", secret=name))
        return till.opened[-1].secret

    monkeypatch.setenv("GANGLINE_POOL_ONE", "of the environment\n")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not a pool's")
    (tmp_path / "TWO").write_text("of a file\n")
    assert (secret_of("ONE"), secret_of("TWO")) == ("of the environment", "of a file")
    for strange in ("AWS_SECRET_ACCESS_KEY", "../x", "/etc/passwd", "one"):
        with pytest.raises(UserError):
            secret_of(strange)
    with pytest.raises(BadInput, match="a pool of far-shop needs a secret"):
        secret_of("")


def test_nodes_elsewhere_need_an_address_of_the_server_that_they_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_POOL_ONE", "x")
    order = PoolOrder(name="p", driver="far-shop", secret="ONE")
    with pytest.raises(UserError, match="nodes of far-shop cannot reach this server, whose address is http://127"):
        make_drivers(Till()).open(order)


def test_a_provider_is_a_section_of_the_servers_settings_and_for_its_driver_alone() -> None:
    till = Till()
    ours = {
        "ours": {"driver": "shop", "endpoint": "https://ours"},
        "theirs": {"driver": "x"},
        "shop": {"where": "here"},
    }
    drivers = make_drivers(till, providers=ours)
    drivers.open(PoolOrder(name="p", driver="shop", provider="ours"))
    assert till.opened[-1].provider.endpoint == "https://ours"
    with pytest.raises(BadInput, match=r"\[providers.shop\]: where: is not a known field"):
        drivers.open(PoolOrder(name="p", driver="shop"))
    with pytest.raises(BadInput, match="the provider theirs is for the driver x, and this pool has shop"):
        drivers.open(PoolOrder(name="p", driver="shop", provider="theirs"))


def test_settings_that_contradict_each_other_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_POOL_ONE", "x")
    drivers = Drivers(make_entries(_no_nodes_here), {}, url="https://gangline.example.org", secrets=None)
    of = {"organization": "acme", "project": "dogs"}

    def said(**settings: object) -> str:
        with pytest.raises(BadInput) as error:
            drivers.open(PoolOrder(name="p", driver="salad", secret="ONE", settings=of | settings))
        return error.value.message

    assert said(memory_gb=1, shared_memory_gb=2) == (
        "settings of a pool of salad: shared_memory_gb is at most memory_gb"
    )
    assert said(image="") == "settings of a pool of salad: image: is empty"
    assert said(priorities=[]) == "settings of a pool of salad: priorities: is empty"


def _no_nodes_here(_: OpenedPool) -> Pool:
    raise AssertionError("nobody asks for nodes of this machine")


def test_a_single_value_is_a_list_where_one_is_meant() -> None:
    till = Till()
    make_drivers(till).open(PoolOrder(name="p", driver="shop", settings={"shelves": "top"}))
    assert till.opened[-1].settings.shelves == ("top",)


# Many at once


def test_a_provider_that_has_nothing_left_is_asked_once_for_each_offer_however_many_nodes_are_wanted(
    service: Service,
) -> None:
    service.till.sold_out = {"small", "large"}
    add(service, nodes_min=20, nodes_max=20)
    look(service)
    asked = service.look("SELECT offer, COUNT(*) AS nodes FROM node WHERE rented = 1 AND refused = 1 GROUP BY offer")
    assert {row["offer"]: row["nodes"] for row in asked} == {"small": 1, "large": 1}
    assert rented(service) == []


def test_nodes_that_are_rented_together_have_a_number_a_token_and_an_instance_each(service: Service) -> None:
    add(service, nodes_min=20, nodes_max=20)
    look(service)
    rows = service.look("SELECT id, number FROM node WHERE rented = 1 ORDER BY number")
    assert [row["number"] for row in rows] == list(range(1, 21))
    tokens = service.look("SELECT rental, hash FROM credential WHERE rental IS NOT NULL")
    assert {row["rental"] for row in tokens} == {row["id"] for row in rows} and len(
        {row["hash"] for row in tokens}
    ) == 20
    assert sorted(each.name for each in service.till.instances.values()) == sorted(rented(service))
    look(service)
    assert len(service.till.started) == 20
