"""Rules about machines: who is recognised, and what is forgotten."""

from gangline.ports.server import Join
from gangline.service.fleet import operating
from gangline.service.fleet.health import judge_machines
from gangline.service.fleet.measured.reputation import load_record, machines
from gangline.service.fleet.nodes import gone, join_pool
from tests.sim.mutants.bench import Bench, probe
from tests.sim.mutants.probes import contrast, misbehave

CARD, OTHER = "0" * 64, "1" * 64


def machine_of(bench: Bench, machine: str, *cards: str) -> str:
    """Let a machine join, and return which one the server takes it for."""
    node = join_pool(bench.deployment, Join(machine=machine, name=machine, cards=cards), "default", bench.now_ms).node
    return bench.node(node)["machine"]


@probe()
def a_machine_is_recognised_by_a_card_only_under_a_name_that_never_came(bench: Bench) -> None:
    assert machine_of(bench, "a", CARD) == machine_of(bench, "b", CARD) == machine_of(bench, "c", OTHER, CARD) == "a"
    assert machine_of(bench, "d") == machine_of(bench, "d", CARD) == "d"
    assert machine_of(bench, "e", CARD) == "a", "a card stays with the machine in which it came first"


@probe()
def a_machine_is_judged_in_the_pool_that_it_joined_last(bench: Bench) -> None:
    gone(bench.deployment, bench.join("bad", pool="alpha"), "left", bench.now_ms)
    bench.join("beside", pool="beta")
    node = bench.join("bad", pool="beta")
    misbehave(bench, node)
    misbehave(bench, node)
    contrast(bench)
    judge_machines(bench.deployment, bench.now_ms)
    assert bench.node(node)["state"] == "quarantined"


@probe()
def what_a_machine_did_long_ago_is_not_in_its_record_and_lengthens_no_quarantine(bench: Bench) -> None:
    node = bench.join("bad")
    bench.fail(node, bench.take(node, bench.submit()), "gpu error")
    live = bench.join("busy")
    bench.take(live, bench.submit(seed=2))

    def lost(name: str) -> int:
        return load_record(bench.deployment, bench.store.load("machine", id=name)[0], None, bench.now_ms).lost

    def losses() -> dict[str, int]:
        return {each.id: each.lost for each in machines(bench.deployment, bench.now_ms)}

    for _ in range(2):
        operating.quarantine(bench.deployment, node, bench.now_ms, lasts_s=60, stop=False)
        bench.wait(1)
    assert bench.look("SELECT quarantines FROM machine WHERE id = 'machine-bad'") == [2]
    assert (lost("machine-bad"), lost("machine-busy")) == (1, 0) and losses() == {"machine-bad": 1}
    bench.wait(bench.policy.reputation_s)
    operating.quarantine(bench.deployment, node, bench.now_ms, lasts_s=60, stop=False)
    assert bench.look("SELECT quarantines FROM machine WHERE id = 'machine-bad'") == [1]
    assert lost("machine-bad") == losses()["machine-bad"] == 0
