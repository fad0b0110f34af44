"""Rentals: who becomes their nodes, and what a provider's moves change. Each is a sentence that holds."""

import sqlite3

from gangline.core.errors import Denied
from gangline.ports.server import Join
from gangline.ports.store import write
from gangline.service.access.access import identify
from gangline.service.fleet import nodes
from tests.sim.mutants.bench import POOL, Bench, probe, refused


def rent(bench: Bench) -> tuple[str, str]:
    """A job, and the node and instance that are rented for it."""
    bench.submit()
    bench.tend()
    node = bench.rented()[0]
    return node, bench.provider.instance_of(node)


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
    following = write("move_rental", id="another", left=rental, place="", because="", now=bench.now_ms)
    assert refused(sqlite3.IntegrityError, lambda: bench.store.apply(following))


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
