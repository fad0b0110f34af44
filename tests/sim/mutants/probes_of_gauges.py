"""Rules about what nodes measure of themselves."""

from dataclasses import replace
from typing import Any

from gangline.core.fleet.gauges import Gauges, GpuGauges
from gangline.ports.server import Hold
from gangline.ports.store import write
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


GIB = 2**30
SPILLS = replace(
    GAUGES,
    gpu_memory_spills=True,
    gpus=(GpuGauges(memory_used_bytes=12 * GIB, memory_bytes=12 * GIB, temperature_c=93, limited_by=()),),
)
HOT = replace(SPILLS, gpu_memory_spills=False, gpus=(replace(SPILLS.gpus[0], limited_by=("heat",)),))


def train(bench: Bench, node: str, hold: Hold, gauges: Gauges, step: int = 2, beside: str = "", **said: Any) -> str:
    """Train for three minutes, while the node `beside` asks for work. Return why the server then asks the attempt to stop."""
    for _ in range(6):
        bench.wait(30)
        keep_gauges(bench.deployment, node, gauges, bench.now_ms)
        bench.beat(node, hold, step, seconds_per_step=12.0, **said)
        if beside:
            bench.claim_nothing(beside)
    bench.tick()
    return bench.beat(node, hold, step + 1, seconds_per_step=12.0).stop


@probe()
def a_job_that_spilled_gets_a_larger_card_and_never_asks_for_less_than_before(bench: Bench) -> None:
    job, small = bench.submit(), bench.join("small", gpu_memory_gb=12)
    hold, large = bench.take(small, job), bench.join("large", gpu_memory_gb=24)
    bench.deployment.store.apply(write("raise_need", id=job, gpu_memory_gb=8))
    assert train(bench, small, hold, SPILLS, beside=large, memory_bytes=20 * GIB).startswith("its GPU memory")
    bench.release(small, hold)
    bench.deployment.store.apply(write("raise_need", id=job, gpu_memory_gb=8))
    assert bench.look("SELECT gpu_memory_gb FROM job WHERE id = ?", job) == [20]
    assert bench.look("SELECT COUNT(*) FROM ban") == bench.look("SELECT COUNT(*) FROM strike") == [0]
    bench.claim_nothing(small)


@probe()
def a_job_that_spilled_stays_where_nothing_larger_is_or_can_be_rented(bench: Bench) -> None:
    job, small = bench.submit(), bench.join("small", gpu_memory_gb=12)
    hold = bench.take(small, job)
    assert train(bench, small, hold, SPILLS, memory_bytes=10**12) == ""
    assert train(bench, small, hold, SPILLS, step=4) == ""
    assert bench.events(job).count("slowed") == 1
    assert bench.look("SELECT gpu_memory_gb FROM job WHERE id = ?", job) == [0]


def work_on_peers(bench: Bench) -> None:
    for number in range(4):
        peer = bench.join(f"peer-{number}", gpu_memory_gb=12)
        hold = bench.take(peer, bench.submit(seed=number))
        bench.advance(peer, hold)
        bench.succeed(peer, hold)
        gone(bench.deployment, peer, "left", bench.now_ms)


@probe()
def a_job_that_spilled_beside_faster_machines_needs_no_larger_card(bench: Bench) -> None:
    work_on_peers(bench)
    half = replace(SPILLS, gpus=(replace(SPILLS.gpus[0], memory_used_bytes=6 * GIB),))
    large = bench.join("large", gpu_memory_gb=24)
    for step, stop in ((2, "the memory of its card is full"), (84, "")):
        node, job = bench.join(f"small {step}", gpu_memory_gb=12), bench.submit(seed=9)
        hold = bench.take(node, job)
        assert train(bench, node, hold, half, step=step, beside=large, memory_bytes=20 * GIB)[:30] == stop
        bench.succeed(node, hold)
        assert bench.look("SELECT gpu_memory_gb FROM job WHERE id = ?", job) == [0]


@probe()
def a_driver_that_no_longer_answers_keeps_no_job_on_a_slow_machine(bench: Bench) -> None:
    work_on_peers(bench)
    node, job = bench.join("slow"), bench.submit(seed=9)
    keep_gauges(bench.deployment, node, HOT, bench.now_ms)
    hold, silent = bench.take(node, job), replace(HOT, gpus=(replace(HOT.gpus[0], limited_by=None),))
    stops = [train(bench, node, hold, silent) for _ in range(4)]
    assert stops[0] == "" and stops[-1].startswith("too slow beside its peers")


@probe()
def a_throttled_card_gives_its_job_away_for_a_quarter_of_a_strike_and_a_full_one_for_none(bench: Bench) -> None:
    work_on_peers(bench)
    for gauges, why, quarters in ((HOT, "its card is throttled", [1]), (SPILLS, "the memory of its card is full", [])):
        node, job = bench.join(f"slow {why}"), bench.submit(seed=9)
        hold = bench.take(node, job)
        assert train(bench, node, hold, gauges).startswith(why)
        bench.release(node, hold)
        assert bench.look("SELECT quarters FROM strike WHERE job = ?", job) == quarters
        assert bench.look("SELECT attempts_failed FROM job WHERE id = ?", job) == [0]
        bench.claim_nothing(node)
        fresh = bench.join(f"fresh {why}")
        bench.succeed(fresh, bench.take(fresh, job))
