"""Rentals: who becomes their nodes, and what a provider's moves change. Each is a sentence that holds."""

import sqlite3
from dataclasses import replace
from functools import partial
from typing import Any

from gangline.core.errors import BadInput, Denied, Unreachable
from gangline.core.specs.fields import Needs
from gangline.ports.pool import MachineIdentity, Offer
from gangline.ports.server import Join
from gangline.ports.store import write
from gangline.service.access.access import identify
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet import nodes, operating, pools
from gangline.service.fleet.pools import PoolWish
from gangline.service.jobs import steer
from gangline.service.renting import Renting
from tests.shop import SMALL, Till, make_drivers
from tests.sim.mutants.bench import POOL, PRICE, Bench, probe, refused


def rent(bench: Bench) -> tuple[str, str]:
    """A job, and the node and instance that are rented for it."""
    bench.submit()
    bench.tend()
    node = bench.rented()[0]
    return node, bench.provider.instance_of(node)


@probe()
def a_node_that_ends_before_it_has_joined_is_not_rented_again_at_once(bench: Bench) -> None:
    _, instance = rent(bench)
    bench.provider.stop(instance)
    bench.wait(5)
    for _ in range(2):
        bench.tend()
        assert bench.rented() == []
    bench.wait(bench.policy.start_pause_s)
    bench.tend()
    assert len(bench.rented()) == 1


TWO_OFFERS = [
    Offer(id="steady", price_micro_usd_per_hour=PRICE),
    Offer(id="often lost", price_micro_usd_per_hour=PRICE * 9 // 10),
]


EIGHT = [
    Offer(id="one", price_micro_usd_per_hour=PRICE),
    Offer(id="eight", slots=8, price_micro_usd_per_hour=7 * PRICE),
]


@probe(offers=EIGHT)
def a_node_of_eight_slots_is_rented_for_eight_jobs_not_for_one(bench: Bench) -> None:
    bench.submit(seed=0)
    bench.tend()
    assert [row[0] for row in bench.store.look("SELECT offer FROM node")] == ["one"]
    for seed in range(1, 9):
        bench.submit(seed=seed)
    bench.tend()
    assert [row[0] for row in bench.store.look("SELECT offer FROM node ORDER BY id")] == ["one", "eight"]


@probe(nodes_max=4)
def a_node_that_leaves_a_job_for_long_is_given_back_and_another_one_is_rented(bench: Bench) -> None:
    node, _ = rent(bench)
    bench.tend()
    join(bench, "idle", node)
    bench.wait(bench.policy.idle_s + 1)
    bench.tend()
    assert bench.node(node)["state"] in ("draining", "gone")
    assert len(set(bench.rented()) - {node}) == 1


@probe(nodes_min=1, nodes_max=4)
def a_node_that_was_idle_for_long_is_left_a_job_that_has_just_come(bench: Bench) -> None:
    bench.tend()
    bench.tend()
    (node,) = bench.rented()
    join(bench, "idle", node)
    bench.wait(bench.policy.idle_s + 1)
    bench.submit()
    bench.tend()
    assert bench.rented() == [node]


@probe(nodes_max=2)
def a_pool_rents_no_more_than_its_most_beside_what_it_has(bench: Bench) -> None:
    node, _ = rent(bench)
    bench.tend()
    join(bench, "busy", node)
    bench.claim(node)
    for seed in range(1, 4):
        bench.submit(seed=seed)
    bench.tend()
    assert len(bench.rented()) == 2


LARGER = [
    Offer(id="small", gpu_memory_gb=24, price_micro_usd_per_hour=PRICE),
    Offer(id="large", gpu_memory_gb=80, price_micro_usd_per_hour=5 * PRICE),
]


@probe(nodes_min=1, nodes_max=1, offers=LARGER)
def a_node_of_the_minimum_makes_room_for_a_job_that_it_cannot_run(bench: Bench) -> None:
    bench.tend()
    bench.tend()
    (node,) = bench.rented()
    join(bench, "small", node)
    bench.submit(needs=Needs(gpu_memory_gb=48))
    bench.wait(bench.policy.idle_s + 1)
    bench.tend()
    assert bench.node(node)["state"] in ("draining", "gone")


@probe(nodes_max=3, offers=TWO_OFFERS)
def an_offer_whose_node_fails_its_probe_gives_way(bench: Bench) -> None:
    node, _ = rent(bench)
    bench.tend()
    bench.join("bare", node=node, kinds=(), problems={"lora": "torch is not installed"})
    bench.wait(bench.policy.start_pause_s + 1)
    bench.tend()
    bench.tend()
    offers = [row[0] for row in bench.store.look("SELECT offer FROM node ORDER BY id")]
    assert offers == ["often lost", "steady"]


@probe(nodes_max=4)
def a_job_that_is_banned_from_one_node_is_left_to_another(bench: Bench) -> None:
    job, node = bench.submit(), bench.join("bad")
    bench.join("good")
    bench.store.look(
        f"INSERT INTO ban (job, machine, because, at_ms) VALUES ('{job}', '{bench.node(node)['machine']}', '', 0)"
    )
    bench.store.look("UPDATE job SET fencing = 1")
    bench.tend()
    assert bench.rented() == []


@probe(nodes_max=4)
def for_a_job_that_is_banned_from_every_node_one_is_rented_once_it_may_be_tried_again(bench: Bench) -> None:
    node = bench.join("bad")
    bench.submit()
    bench.claim(node)
    job = bench.submit(seed=1)
    machine = bench.node(node)["machine"]
    bench.store.look(f"INSERT INTO ban (job, machine, because, at_ms) VALUES ('{job}', '{machine}', '', 0)")
    bench.store.look(f"UPDATE job SET fencing = 1, ready_ms = {bench.now_ms + 60_000} WHERE id = '{job}'")
    bench.tend()
    assert bench.rented() == []
    bench.wait(60)
    bench.tend()
    assert len(bench.rented()) == 1


def lose_all(bench: Bench) -> list[str]:
    """Let the provider take back all nodes after a minute, and return the offers of those that come for them."""
    for node in bench.rented():
        bench.provider.stop(bench.provider.instance_of(node))
    bench.wait(60)
    bench.tend()
    bench.wait(bench.policy.start_pause_s)
    bench.tend()
    return [row[0] for row in bench.store.look("SELECT offer FROM node WHERE state <> 'gone' ORDER BY id")]


@probe(nodes_max=3, offers=TWO_OFFERS)
def an_offer_whose_nodes_are_lost_gives_way_to_a_steady_one(bench: Bench) -> None:
    for seed in range(3):
        bench.submit(seed=seed)
    bench.tend()
    bench.tend()
    assert bench.store.look("SELECT DISTINCT offer FROM node")[0][0] == "often lost"
    bench.wait(60)
    assert lose_all(bench) == ["steady"] * 3


@probe(nodes_max=3, offers=TWO_OFFERS)
def nodes_that_were_to_go_are_not_lost_to_their_offer(bench: Bench) -> None:
    for seed in range(3):
        bench.submit(seed=seed)
    bench.tend()
    bench.tend()
    for number, node in enumerate(bench.rented()):
        bench.join(f"m-{number}", node=node)
        operating.drain(bench.deployment, node, bench.now_ms, stop=False)
    nodes.gone(bench.deployment, node, "taken away before it had ended", bench.now_ms, lost=True)
    assert bench.store.look("SELECT SUM(lost) FROM node")[0][0] == 0
    bench.tend()
    bench.tend()
    assert bench.store.look("SELECT SUM(lost) FROM node WHERE state = 'gone'")[0][0] == 0


def join(bench: Bench, name: str, rental: str | None, node: str = "", place: str = "") -> str:
    request = Join(machine=f"machine-{name}", name=name, node=node, place=place)
    return nodes.join_pool(bench.deployment, request, POOL, bench.now_ms, rental=rental).node


def opened(bench: Bench, rental: str) -> str | None:
    return identify(bench.deployment, bench.provider.tokens[rental], "join", bench.now_ms).rental


@probe()
def a_join_token_of_another_rental_makes_nobody_its_node(bench: Bench) -> None:
    bench.submit(prompt="another")
    node, _ = rent(bench)
    other = bench.rented()[1]
    for strange in (None, other):
        assert refused(Denied, lambda strange=strange: join(bench, "strange", strange, node))
    assert bench.node(node)["state"] == bench.node(other)["state"] == "starting"
    assert join(bench, "expected", node, node) == node


@probe()
def a_rental_has_one_worker(bench: Bench) -> None:
    node, _ = rent(bench)
    assert join(bench, "first", node) == node == join(bench, "first", node)
    assert refused(Denied, lambda: join(bench, "second", node))


@probe()
def the_token_of_a_rental_ends_with_it(bench: Bench) -> None:
    node, instance = rent(bench)
    bench.submit()
    bench.tend()
    other = next(found for found in bench.rented() if found != node)
    assert opened(bench, node) == node
    bench.provider.stop(instance)
    bench.tend()
    assert refused(Denied, lambda: opened(bench, node)) and opened(bench, other) == other


@probe()
def a_node_that_its_provider_moved_is_fenced_and_the_next_one_joins_from_the_new_place_alone(bench: Bench) -> None:
    rental, instance = rent(bench)
    bench.provider.move(instance, "place-1")
    bench.tend()
    first = join(bench, "first", rental, place="place-1")
    bench.claim(first)
    assert refused(Denied, lambda: join(bench, "second", rental, place="place-2"))
    bench.wait(60)
    bench.provider.move(instance, "place-2", "Priority")
    bench.tend()
    assert is_over(bench, first) and bench.node(first)["because"] == "Priority"
    [second] = bench.rented()
    assert second != first and bench.node(second)["state"] == "starting" and opened(bench, rental) == rental
    assert refused(Denied, lambda: join(bench, "first", rental, place="place-1"))
    assert join(bench, "second", rental, place="place-2") == second
    bench.claim(second)
    bench.tend()
    assert bench.rented() == [second] and bench.provider.running() == [instance]


def is_over(bench: Bench, node: str) -> bool:
    return bench.node(node)["state"] == "gone" and not bench.look("SELECT attempt FROM lease WHERE node = ?", node)


@probe()
def a_place_is_noted_until_somebody_joins_from_it(bench: Bench) -> None:
    rental, instance = rent(bench)
    for place in ("place-1", "place-2"):
        bench.provider.move(instance, place)
        bench.tend()
    assert bench.rented() == [rental]
    assert refused(Denied, lambda: join(bench, "late", rental, place="place-1"))
    assert join(bench, "in time", rental, place="place-2") == rental


@probe()
def a_worker_that_joins_before_its_place_is_listed_stays_there(bench: Bench) -> None:
    rental, instance = rent(bench)
    assert join(bench, "early", rental, place="place-1") == rental
    bench.provider.move(instance, "place-1")
    bench.tend()
    assert bench.rented() == [rental]
    bench.provider.move(instance, "place-2")
    bench.tend()
    assert bench.rented() != [rental]


@probe()
def a_place_that_changes_while_a_worker_joins_is_followed(bench: Bench) -> None:
    rental, instance = rent(bench)
    bench.provider.move(instance, "place-1")
    bench.tend()
    bench.provider.move(instance, "place-2")
    bench.meanwhile("place_node", lambda: join(bench, "first", rental, place="place-1"))
    bench.tend()
    bench.tend()
    assert bench.node(rental)["state"] == "gone"


@probe()
def nobody_joins_from_a_place_that_changes_meanwhile(bench: Bench) -> None:
    rental, instance = rent(bench)
    bench.provider.move(instance, "place-2")
    bench.meanwhile("node_joined", bench.tend)
    assert refused(Denied, lambda: join(bench, "first", rental, place="place-1"))
    assert bench.node(rental)["state"] == "starting"


@probe()
def the_schema_refuses_a_rental_two_nodes(bench: Bench) -> None:
    rental, _ = rent(bench)
    following = write(
        "move_rental", id="another", left=rental, place="", shown_machine="", leaves="", because="", now=bench.now_ms
    )
    assert refused(sqlite3.IntegrityError, lambda: bench.store.apply(following))


def make_pool(bench: Bench, name: str = "more", **wish: Any) -> Till:
    """A pool of a shop that sells what the jobs of a bench need, beside the bench's own."""
    till = Till(offers=[SMALL], now_ms=bench.now_ms)
    drivers = make_drivers(till)
    renting = Renting(bench.deployment.pools, drivers, lambda _name, driver: AtOnce(driver))
    bench.deployment = replace(bench.deployment, drivers=drivers, pools=renting, open_pools=renting.refresh)
    pools.make_pool(bench.deployment, name, PoolWish(driver="shop", **wish), bench.now_ms)
    return till


def pool_row(bench: Bench, name: str = "more") -> dict[str, Any]:
    return next((dict(row) for row in bench.store.load("pools") if row["name"] == name), {})


@probe()
def of_two_servers_that_add_one_pool_one_is_told_that_it_exists(bench: Bench) -> None:
    make_pool(bench)
    wish = PoolWish(driver="shop")
    bench.meanwhile("add_pool", lambda: pools.make_pool(bench.deployment, "again", wish, bench.now_ms))
    assert refused(BadInput, lambda: pools.make_pool(bench.deployment, "again", wish, bench.now_ms))


@probe()
def of_two_changes_of_a_pool_at_once_both_hold(bench: Bench) -> None:
    make_pool(bench)
    bench.meanwhile("set_pool", lambda: pools.set_pool(bench.deployment, "more", {"trust": 3}, bench.now_ms))
    pools.set_pool(bench.deployment, "more", {"nodes_max": 7}, bench.now_ms)
    assert (pool_row(bench)["trust"], pool_row(bench)["nodes_max"]) == (3, 7)


@probe()
def a_pool_that_is_being_removed_is_not_resumed(bench: Bench) -> None:
    make_pool(bench)
    for state, resumes in (("removing", False), ("active", True), ("paused", True)):
        act = partial(pools.set_pool_state, bench.deployment, "more", state, bench.now_ms)
        assert refused(BadInput, act) == resumes
    assert pool_row(bench)["state"] == "removing"


@probe(nodes_max=0)
def a_pool_is_forgotten_once_it_is_to_be_removed_and_its_nodes_are_gone_and_paid(bench: Bench) -> None:
    till, forget = make_pool(bench), write("forget_pool", name="more")
    bench.store.apply(forget)
    assert pool_row(bench), "nobody asked for that"
    bench.submit()
    bench.tend()
    [node] = bench.rented()
    pools.set_pool_state(bench.deployment, "more", "removing", bench.now_ms)
    bench.store.apply(forget)
    assert pool_row(bench), "it has a node"
    bench.tend()
    till.now_ms = bench.now_ms
    nodes.gone(bench.deployment, node, "left", bench.now_ms)
    bench.store.apply(forget)
    assert pool_row(bench), "its bill is not settled"
    for _ in range(3):
        bench.wait(5)
        till.now_ms = bench.now_ms
        bench.tend()
    assert not pool_row(bench)
    assert not bench.look("SELECT id FROM instance WHERE settled = 0")


def bill_of(bench: Bench, node: str) -> int | None:
    return bench.look(f"SELECT billed_to_ms FROM instance WHERE node = '{node}'")[0]


@probe(node_silent_s=3600)
def a_bill_ends_with_its_node_if_no_list_shows_for_ten_minutes_what_became_of_it(bench: Bench) -> None:
    lost, working = bench.rent(2)
    hold = bench.claim(working).hold
    bench.wait(60)
    bench.tend()
    gone_ms = bench.now_ms
    nodes.gone(bench.deployment, lost, "left", gone_ms)
    for node in (lost, working):
        bench.provider.lose(bench.provider.instance_of(node))
    for seconds in (1, 1, 1, 596):
        bench.wait(seconds)
        bench.beat(working, hold)
        bench.tend()
        assert bill_of(bench, lost) is None
    bench.wait(2)
    bench.beat(working, hold)
    bench.tend()
    assert bill_of(bench, lost) == gone_ms and not bench.look(
        f"SELECT 1 FROM instance WHERE node = '{lost}' AND settled = 0"
    )
    assert bill_of(bench, working) is None, "its node is heard of"


def assert_bill_ends_by_the_third_list(bench: Bench, node: str) -> None:
    for ends in (False, False, True):
        bench.wait(700)
        bench.tend()
        assert (bill_of(bench, node) is not None) == ends


@probe()
def a_bill_does_not_end_by_two_lists_however_much_later_they_are(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.tend()
    nodes.gone(bench.deployment, node, "left", bench.now_ms)
    bench.provider.lose(bench.provider.instance_of(node))
    assert_bill_ends_by_the_third_list(bench, node)


@probe()
def a_bill_ends_whose_instance_is_shown_as_ended_but_not_since_when_it_was_billed(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.tend()
    instance = bench.provider.instance_of(node)
    nodes.gone(bench.deployment, node, "left", bench.now_ms)
    known = bench.provider._instances[instance]
    bench.provider._instances[instance] = replace(known, billed_from_ms=None, billed_to_ms=bench.now_ms)
    assert_bill_ends_by_the_third_list(bench, node)


@probe()
def a_bill_whose_end_is_seen_at_last_ends_then(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.tend()
    instance = bench.provider.instance_of(node)
    nodes.gone(bench.deployment, node, "left", bench.now_ms)
    bench.provider.lose(instance)
    for _ in range(2):
        bench.wait(700)
        bench.tend()
    [bill], from_ms, to_ms = (
        bench.look(f"SELECT id FROM instance WHERE node = '{node}'"),
        bench.now_ms - 1000,
        bench.now_ms,
    )
    seen = write("see_instance", id=bill, node=node, billed_from_ms=from_ms, billed_to_ms=to_ms)
    bench.meanwhile("end_unseen", lambda: bench.store.apply(seen))
    bench.wait(700)
    bench.tend()
    assert bill_of(bench, node) == to_ms


@probe()
def an_end_that_is_seen_after_one_was_assumed_is_settled_anew_and_once(bench: Bench) -> None:
    bench.submit()
    bench.tend()
    bench.wait(30)
    [node] = bench.rented()
    join(bench, "rented", node)
    bench.tend()
    found = bench.provider._instances.pop(bench.provider.instance_of(node))
    nodes.gone(bench.deployment, node, "left", bench.now_ms)
    for _ in range(3):
        bench.wait(700)
        bench.tend()
    assumed_ms = bill_of(bench, node)
    assert assumed_ms and bench.look(f"SELECT settled FROM instance WHERE node = '{node}'") == [1]
    ended = replace(found, billed_to_ms=assumed_ms + 60_000)
    bench.provider._instances[found.id] = ended
    for _ in range(3):
        bench.tend()
        bench.wait(5)
    of_node = f"FROM ledger WHERE node = '{node}'"
    assert bench.look(f"SELECT SUM(micro_usd) {of_node}") == [bench.provider.invoice()[node]]
    assert bench.look(f"SELECT COUNT(*) {of_node} AND cause = 'start-up'") == [1]


@probe()
def a_node_that_never_had_a_machine_does_not_count_as_lost_to_its_offer(bench: Bench) -> None:
    for seconds, lost in ((0, 0), (10, 1)):
        node, instance = rent(bench)
        bench.wait(seconds)
        bench.provider.stop(instance)
        bench.tend()
        assert bench.look(f"SELECT lost FROM node WHERE id = '{node}' AND state = 'gone'") == [lost]
        bench.wait(bench.policy.start_pause_s + 1)


@probe()
def what_other_pools_have_keeps_no_pool(bench: Bench) -> None:
    make_pool(bench, nodes_max=0)
    rent(bench)
    bench.join("by hand", pool="more")
    pools.set_pool_state(bench.deployment, "more", "removing", bench.now_ms)
    bench.tend()
    assert not pool_row(bench)


@probe()
def with_stop_the_jobs_of_a_pool_are_handed_back_and_no_others(bench: Bench) -> None:
    make_pool(bench, nodes_max=0)
    node, _ = rent(bench)
    join(bench, "rented", node)
    hold = bench.claim(node).hold
    pools.set_pool_state(bench.deployment, "more", "removing", bench.now_ms, stop=True)
    assert not bench.beat(node, hold).stop


@probe(nodes_max=0)
def nodes_of_a_pool_that_is_removed_get_no_more_work_and_others_do(bench: Bench) -> None:
    make_pool(bench, nodes_max=2)
    first, second = bench.submit(), bench.submit(prompt="another")
    bench.tend()
    ours = [join(bench, name, name) for name in bench.rented()]
    by_hand = bench.join("by hand", pool="more")
    pools.set_pool_state(bench.deployment, "more", "removing", bench.now_ms)
    bench.tend()
    assert all(bench.claim_nothing(node) for node in ours)
    assert bench.claim(by_hand).job in (first, second)


@probe()
def of_two_quarantines_at_once_both_count(bench: Bench) -> None:
    node = bench.join()

    def quarantine(seconds: float) -> None:
        operating.quarantine(bench.deployment, node, bench.now_ms, lasts_s=seconds, stop=False)

    bench.meanwhile("quarantine_machine", lambda: quarantine(60))
    quarantine(600)
    assert bench.look("SELECT quarantined_until_ms FROM machine") == [bench.now_ms + 600_000]


@probe()
def all_nodes_of_a_rental_together_cost_what_its_provider_bills(bench: Bench) -> None:
    rental, instance = rent(bench)
    bench.provider.move(instance, "place-1")
    bench.tend()
    join(bench, "first", rental, place="place-1")
    bench.wait(100)
    bench.provider.move(instance, "place-2")
    bench.tend()
    bench.wait(50)
    [second] = bench.rented()
    join(bench, "second", rental, place="place-2")
    bench.wait(100)
    bench.provider.stop(instance)
    bench.tend()
    [billed] = bench.look("SELECT SUM(micro_usd) FROM ledger WHERE node IN (?, ?)", rental, second)
    assert billed == bench.provider.invoice()[rental]


class MovingProvider:
    """The bench's provider, which moves an instance to another machine when it is asked to."""

    def __init__(self, bench: Bench) -> None:
        self.offers, self.start = bench.provider.offers, bench.provider.start
        self.stop, self.list = bench.provider.stop, bench.provider.list
        self.asked: list[str] = []

    def reallocate(self, instance: str, because: str) -> None:
        self.asked.append(instance)


def rent_on_a_bad_machine(bench: Bench) -> tuple[MovingProvider, str, str]:
    """A provider that moves instances, and a rental of it on a machine, with its instance."""
    provider = MovingProvider(bench)
    limits = bench.deployment.pools[POOL].limits
    bench.deployment = replace(bench.deployment, pools={POOL: RentedPool(limits, AtOnce(provider))})
    rental, instance = rent(bench)
    bench.provider.move(instance, "place-1")
    bench.tend()
    join(bench, "bad", rental, place="place-1")
    return provider, rental, instance


@probe(nodes_max=1)
def a_machine_in_quarantine_is_given_back_where_no_work_waits(bench: Bench) -> None:
    provider, rental, instance = rent_on_a_bad_machine(bench)
    [job] = bench.look("SELECT id FROM job")
    steer.cancel(bench.deployment, job, bench.now_ms)
    operating.quarantine(bench.deployment, rental, bench.now_ms, lasts_s=60, stop=False)
    assert bench.provider.running() == [instance], "a tick decides what becomes of it"
    bench.tend()
    assert provider.asked == [] == bench.provider.running()


@probe(nodes_max=1)
def a_machine_in_quarantine_is_left_by_its_rental_and_nobody_joins_from_there(bench: Bench) -> None:
    provider, rental, instance = rent_on_a_bad_machine(bench)
    operating.quarantine(bench.deployment, rental, bench.now_ms, lasts_s=60, stop=False)
    assert bench.provider.running() == [instance], "a tick decides what becomes of it"
    for _ in range(2):
        bench.tend()
    assert provider.asked == [instance] == bench.provider.running()
    [following] = bench.rented()
    for place in ("", "place-1"):
        assert refused(Denied, lambda place=place: join(bench, "bad", rental, place=place))
    bench.provider.move(instance, "place-2")
    bench.tend()
    assert join(bench, "good", rental, place="place-2") == following
    bench.claim(following)


class ProvingProvider(MovingProvider):
    """It signs tokens of the form `MACHINE on INSTANCE`."""

    demands_identity = True

    def identify(self, token: str) -> MachineIdentity:
        machine, _, instance = token.partition(" on ")
        return MachineIdentity(machine=machine, instance=instance)

    def learn_to_identify(self) -> None: ...


@probe()
def a_node_that_is_to_prove_its_machine_joins_as_the_one_that_its_provider_shows(bench: Bench) -> None:
    limits = bench.deployment.pools[POOL].limits
    bench.deployment = replace(bench.deployment, pools={POOL: RentedPool(limits, AtOnce(ProvingProvider(bench)))})
    rental, instance = rent(bench)

    def prove(identity: str, place: str = "place-1") -> str:
        request = Join(machine="another", name="a", node=rental, place=place, identity=identity)
        return nodes.join_pool(bench.deployment, request, POOL, bench.now_ms, rental=rental).node

    true = f"m-1 on {instance}"
    assert refused(Unreachable, lambda: prove(true)), "its provider did not show it yet"
    bench.provider.move(instance, "place-1", machine="m-1")
    bench.tend()
    for wrong in ("", f"m-2 on {instance}", "m-1 on another"):
        assert refused(Denied, lambda wrong=wrong: prove(wrong))
    assert prove(true) == rental and bench.node(rental)["machine"] == "m-1"
    bench.provider.move(instance, "place-2", machine="m-2")
    bench.tend()
    assert refused(Denied, lambda: prove(true, "place-2"))
    [following] = bench.rented()
    assert prove(f"m-2 on {instance}", "place-2") == following and bench.node(following)["machine"] == "m-2"
    by_hand = bench.join("by hand", pool=POOL)
    assert bench.node(by_hand)["machine"] == "machine-by hand"


@probe(idle_s=1000)
def what_a_provider_did_not_bill_is_in_no_ledger_and_counts_once(bench: Bench) -> None:
    rental, instance = rent(bench)
    bench.submit(prompt="another")
    bench.tend()
    [other] = {*bench.rented()} - {rental}
    began_ms = bench.now_ms
    for name in (rental, other):
        join(bench, name, name)
    bench.wait(100)
    # In this order: each span of an instance that is seen overlaps none of before, or one that counts already.
    seen = [(40, 50), (40, 50), (30, 40), (50, 60), (55, 58), (25, 35), (59, 70)]
    for from_s, to_s in seen:
        bench.provider.bill_not(instance, (began_ms + from_s * 1000, began_ms + to_s * 1000))
        bench.tend()
        bench.provider.bill_not(instance)
    bench.provider.bill_not(bench.provider.instance_of(other), (began_ms + 45_000, began_ms + 52_000))
    bench.tend()
    for name in (rental, other):
        bench.provider.stop(bench.provider.instance_of(name))
    bench.tend()
    spent = [bench.look("SELECT SUM(micro_usd) FROM ledger WHERE node = ?", name)[0] for name in (rental, other)]
    assert spent == [70 * PRICE // 3600, 93 * PRICE // 3600]
