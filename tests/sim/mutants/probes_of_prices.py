"""What nodes cost and how many may join by a token. Each is a sentence that holds."""

from typing import Any

from gangline.core.errors import TooMany
from gangline.ports.pool import Offer
from gangline.ports.server import Committed, Join
from gangline.service.access.access import Terms, create_join_token
from gangline.service.fleet import nodes
from gangline.service.fleet.nodes import leave_pool
from gangline.service.jobs.samples import give_way
from tests.sim.mutants.bench import POOL, PRICE, Bench, probe
from tests.sim.mutants.probes_of_samples import EVERY

UNPRICED = Offer(id="any", price_known=False)
UNKNOWN = "a pool of which nobody said the price"
HOUR_S = 3600


def token(bench: Bench, pool: str = UNKNOWN, **terms: Any) -> str:
    """The id of a new join token."""
    made = create_join_token(bench.deployment, pool, name="t", lasts_s=None, now_ms=bench.now_ms, terms=Terms(**terms))
    return made.join_token.id


def join(bench: Bench, name: str, join_token: str, pool: str = UNKNOWN) -> str:
    """The id of a node; empty where the token lets no more in."""
    try:
        request = Join(machine=f"machine-{name}", name=name)
        return nodes.join_pool(bench.deployment, request, pool, bench.now_ms, join_token=join_token).node
    except TooMany:
        return ""


def unpriced(bench: Bench) -> str:
    return join(bench, "unpriced", token(bench))


@probe()
def a_token_lets_in_so_many_nodes_at_once(bench: Bench) -> None:
    join(bench, "of another token", token(bench))
    two = token(bench, nodes_max=2)
    first = join(bench, "a", two)
    assert first and join(bench, "b", two) and not join(bench, "c", two)
    leave_pool(bench.deployment, first, bench.now_ms)
    assert join(bench, "c", two) and not join(bench, "d", two)
    assert join(bench, "d", token(bench))


@probe()
def a_token_lets_in_so_many_nodes_an_hour(bench: Bench) -> None:
    join(bench, "of another token", token(bench))
    two = token(bench, nodes_per_hour=2)
    for name in ("a", "b"):
        leave_pool(bench.deployment, join(bench, name, two), bench.now_ms)
    assert not join(bench, "c", two)
    bench.wait(HOUR_S + 1)
    assert join(bench, "c", two)


@probe()
def what_the_token_says_goes_before_what_the_pool_says(bench: Bench) -> None:
    said = bench.node(join(bench, "a", token(bench, POOL, price_usd_per_hour=0.0, trust=3), POOL))
    assert (said["price_micro_usd_per_hour"], said["price_known"], said["trust"]) == (0, 1, 3)
    of_pool = bench.node(join(bench, "b", token(bench, POOL), POOL))
    assert (of_pool["price_micro_usd_per_hour"], of_pool["price_known"], of_pool["trust"]) == (PRICE, 1, 0)
    assert bench.node(unpriced(bench))["price_known"] == 0


@probe()
def a_budget_is_spent_on_no_node_whose_price_is_not_known(bench: Bench) -> None:
    job, node = bench.submit(), unpriced(bench)
    bench.budget(100)
    bench.claim_nothing(node)
    assert "the price of unpriced is not known" in bench.because(job)
    bench.budget(None)
    bench.take(node, job)


@probe()
def a_budget_that_is_set_in_the_midst_of_a_claim_counts(bench: Bench) -> None:
    job, node = bench.submit(), unpriced(bench)
    bench.meanwhile("enter", lambda: bench.budget(100))
    bench.claim_nothing(node)
    assert bench.state(job) == "queued"


@probe(offers=[UNPRICED])
def nothing_is_rented_for_a_budget_where_the_price_is_not_known(bench: Bench) -> None:
    job = bench.submit()
    bench.budget(100)
    bench.tend()
    assert bench.rented() == [] and f"the price of a node of {POOL} is not known" in bench.because(job)
    bench.budget(None)
    bench.tend()
    assert len(bench.rented()) == 1


@probe()
def pictures_wait_for_no_node_whose_price_a_budget_does_not_know(bench: Bench) -> None:
    trainer, job = bench.join("a"), bench.submit(sample_every_steps=EVERY)
    hold = bench.take(trainer, job)
    unpriced(bench)
    bench.budget(100)
    assert bench.commit(trainer, hold, EVERY) == Committed(render=True)
    bench.budget(None)
    assert bench.commit(trainer, hold, 2 * EVERY) == Committed(render=False)


@probe(egress_usd_per_gb=1e6)
def pictures_give_way_to_no_job_that_its_budget_keeps_out(bench: Bench) -> None:
    """Else they would be stopped, claimed again and stopped for as long as it waits."""
    trainer, job = bench.join("a"), bench.submit(sample_every_steps=EVERY)
    hold = bench.take(trainer, job)
    nodes = [unpriced(bench)]
    assert bench.commit(trainer, hold, EVERY) == Committed(render=False)
    rendering = bench.claim(nodes[0])
    bench.budget(1e9, "poor")
    bench.submit("poor")

    def stop() -> str:
        bench.wait(20)
        give_way(bench.deployment, bench.now_ms)
        return bench.store.load("attempt", id=rendering.hold.attempt)[0]["stop"]

    assert stop() == "", "of a price that is not known"
    bench.store.look("UPDATE node SET price_known = 1, price_micro_usd_per_hour = 1000000 WHERE id = ?", nodes[0])
    for usd in (0.24, 0.26):  # a reservation is 0.25 dollars of time, and 0.018 for the egress of its inputs
        bench.budget(usd, "poor")
        assert stop() == "", usd
    bench.budget(1e9, "poor")
    assert stop() == "training waits for this node"
