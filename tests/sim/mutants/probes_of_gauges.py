"""Rules about what nodes measure of themselves."""

from gangline.core.fleet.gauges import Gauges
from gangline.service.fleet.measured.gauges import forget_gauges, keep_gauges
from gangline.service.fleet.nodes import gone
from tests.sim.mutants.bench import Bench, probe

GAUGES = Gauges(memory_used_bytes=1, memory_bytes=2, disk_free_bytes=3, disk_bytes=4)


def measure(bench: Bench, node: str) -> None:
    keep_gauges(bench.deployment, node, GAUGES, bench.now_ms)


def measured(bench: Bench) -> set[str]:
    return set(bench.look("SELECT node FROM node_gauges"))


@probe()
def gauges_of_a_node_that_is_gone_are_deleted_and_no_more_are_kept(bench: Bench) -> None:
    here, left = bench.join("here"), bench.join("left")
    measure(bench, here)
    measure(bench, left)
    gone(bench.deployment, left, "left", bench.now_ms)
    forget_gauges(bench.deployment, bench.now_ms)
    assert measured(bench) == {here}
    measure(bench, left)
    assert measured(bench) == {here}


@probe()
def the_first_gauges_of_a_minute_are_its_point(bench: Bench) -> None:
    node = bench.join()
    bench.wait(60 - bench.now_ms % 60_000 / 1000)
    began_ms = bench.now_ms
    for _ in range(2):
        measure(bench, node)
        bench.wait(30)
    times = bench.look("SELECT at_ms FROM node_gauges ORDER BY place")
    assert times[:2] == [began_ms + 30_000, began_ms]
