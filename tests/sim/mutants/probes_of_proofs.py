"""What nodes prove of themselves before they join, and what follows from it. Each is a sentence that holds."""

from typing import Any

from gangline.core.specs.fields import Needs
from gangline.service.fleet.health import begin_trials
from gangline.service.fleet.nodes import gone, leave_pool
from tests.sim.mutants.bench import POOL, Bench, probe
from tests.sim.mutants.probes_of_samples import EVERY, pair

LACKS = "lance is not installed"
BARE: dict[str, Any] = {"kinds": (), "problems": dict.fromkeys(("lora", "sample", "scratch"), "torch is not installed")}
NO_LORAS: dict[str, Any] = {"kinds": ("sample", "scratch"), "problems": {"lora": LACKS}}
NO_SCRATCH: dict[str, Any] = {"kinds": ("lora", "sample"), "problems": {"scratch": LACKS}}


def scratch(bench: Bench, seed: int, **changes: Any) -> str:
    """A job of another kind, as far as its placing goes."""
    job = bench.submit(seed=seed, **changes)
    bench.store.look("UPDATE job SET kind = 'scratch', wanted = 'scratch' WHERE id = ?", job)
    return job


def rented_bare(bench: Bench, machine: str = "bare") -> None:
    """The node that is coming turns out to have no libraries, and is given back."""
    bench.tend()
    bench.tend()
    node = next(node for node in bench.rented() if bench.node(node)["state"] == "starting")
    bench.join(machine, node=node, **BARE)
    bench.tend()
    bench.tend()
    assert node not in bench.rented()


def started(bench: Bench) -> int:
    """How many nodes were rented so far."""
    return bench.look("SELECT COUNT(*) FROM node WHERE rented = 1")[0]


@probe()
def a_node_without_libraries_gets_no_job_and_one_on_the_same_machine_that_has_them_does(bench: Bench) -> None:
    job, node = bench.submit(), bench.join("a", **BARE)
    assert bench.claim_nothing(node) == "a is quarantined: failed its probe: torch is not installed"
    bench.take(bench.join("a"), job)


@probe()
def a_node_that_failed_its_probe_is_not_tried_before_it_has_proved_itself(bench: Bench) -> None:
    node = bench.join("a", **BARE)
    begin_trials(bench.deployment, bench.now_ms)
    assert bench.node(node)["state"] == "quarantined"


@probe()
def a_card_that_computed_wrong_and_passes_now_is_on_trial(bench: Bench) -> None:
    bench.join("a", problems={"burst": "the card computes wrong"})
    assert bench.node(bench.join("a"))["state"] == "on_trial"
    bench.join("b", problems={"card": "its driver is too old"})
    assert bench.node(bench.join("b"))["state"] == "ready"


@probe()
def jobs_that_a_node_has_no_libraries_for_hide_none_that_it_has(bench: Bench) -> None:
    for seed in range(17):
        scratch(bench, seed, priority=5)
        bench.store.look("UPDATE job SET fencing = 1 WHERE id = ?", scratch(bench, 100 + seed, priority=5))
    node, job = bench.join("a", **NO_SCRATCH), bench.submit(seed=99)
    again = bench.submit(seed=98)
    bench.store.look("UPDATE job SET fencing = 1 WHERE id = ?", again)
    hold = bench.take(node, again)
    bench.succeed(node, hold)
    bench.take(node, job)


@probe()
def pictures_go_to_no_node_without_libraries_for_them(bench: Bench) -> None:
    found = pair(bench)
    bare = bench.join("c", gpu_memory_gb=24, kinds=("lora",), problems={"sample": LACKS})
    assert bench.claim_nothing(bare) == f"c has no libraries for sample: {LACKS}"
    assert bench.claim(found.other).kind == "sample"


@probe()
def nor_do_they_wait_for_one(bench: Bench) -> None:
    found = pair(bench)
    base = bench.look("SELECT base FROM job WHERE id = ?", found.job)[0]
    bench.join("c", gpu_memory_gb=24, kinds=("lora",), problems={"sample": LACKS}, bases=(base,))
    assert bench.claim(found.other).kind == "sample"


@probe()
def pictures_give_way_to_no_job_that_their_node_lacks_libraries_for(bench: Bench) -> None:
    trainer, other = bench.join("a", gpu_memory_gb=24), bench.join("b", gpu_memory_gb=24, **NO_SCRATCH)
    hold = bench.take(trainer, bench.submit(sample_every_steps=EVERY))
    bench.commit(trainer, hold, EVERY)
    rendering = bench.claim(other).hold
    scratch(bench, 5)
    bench.wait(2 * bench.policy.claim_interval_s)
    bench.tick()
    said = bench.beat(other, rendering, 0, phase="rendering", loss=None, seconds_per_step=None, training_s=None)
    assert said.stop == ""


@probe()
def a_job_that_asks_for_a_sandbox_and_its_pictures_wait_for_a_node_with_one(bench: Bench) -> None:
    job = bench.submit(needs=Needs(isolation="sandbox"), sample_every_steps=EVERY)
    bare, user = bench.join("a"), bench.join("b", measured={"isolation": "uid"})
    for node in (bare, user):
        bench.claim_nothing(node)
    boxed, other = (bench.join(name, measured={"isolation": "sandbox"}) for name in ("c", "d"))
    bench.commit(boxed, bench.take(boxed, job), EVERY)
    assert bench.claim_nothing(bare) == "a has no isolation sandbox"
    assert bench.claim(other).kind == "sample"


@probe()
def a_job_that_no_node_here_has_libraries_for_gets_another_node(bench: Bench) -> None:
    able, other = bench.rent(2)
    for node in (able, other):
        bench.succeed(node, bench.claim(node).hold)
    bench.store.look("UPDATE node SET kinds = ',lora,' WHERE id = ?", other)
    gone(bench.deployment, able, "the provider took it back", bench.now_ms)
    scratch(bench, 50)
    bench.tend()
    assert started(bench) == 3


@probe()
def a_pool_whose_nodes_lack_the_libraries_for_a_job_rents_none_for_it_until_it_is_looked_at_again(bench: Bench) -> None:
    bench.submit(seed=1)
    bench.tend()
    bench.tend()
    node = bench.rented()[0]
    bench.join("a", node=node, **NO_SCRATCH)
    bench.claim(node)
    scratch(bench, 50)
    by_hand = bench.join("by hand", pool=POOL)
    bench.wait(10)
    bench.tend()
    assert started(bench) == 1
    leave_pool(bench.deployment, by_hand, bench.now_ms)
    bench.submit(seed=2)
    bench.tend()
    bench.tend()
    assert started(bench) == 2
    other = bench.rented()[-1]
    bench.join("b", node=other, **NO_SCRATCH)
    bench.claim(other)
    bench.wait(bench.policy.lacking_s)
    bench.tend()
    assert started(bench) == 3


@probe()
def a_job_that_every_node_here_lacks_libraries_for_fails_in_the_end(bench: Bench) -> None:
    job, other = scratch(bench, 1), bench.submit(seed=2)
    bench.tend()
    bench.wait(bench.policy.unmatched_s + 1)
    for node in bench.rented():
        bench.join(node, node=node, **NO_SCRATCH)
    bench.tick()
    assert (bench.state(job), bench.state(other)) == ("failed", "queued")


@probe()
def a_ban_yields_where_the_other_nodes_lack_the_libraries(bench: Bench) -> None:
    job, node = bench.submit(), bench.join("a")
    other = bench.join("b", **NO_LORAS)
    bench.fail(node, bench.take(node, job))
    for _ in range(40):
        bench.wait(bench.policy.ban_yields_s / 20)
        bench.tick()
        if "bans lifted" in bench.events(job):
            return
        bench.claim_nothing(node)
        bench.claim_nothing(other)
    assert "bans lifted" in bench.events(job)


@probe(nodes_max=1)
def nodes_that_fail_their_probe_are_rented_again_after_a_pause_that_doubles(bench: Bench) -> None:
    bench.submit(needs=Needs(pool=POOL))
    bench.join("by hand", pool=POOL, **BARE)
    for pause_s in (30, 60, 120):
        rented_bare(bench)
        bench.join("elsewhere")
        before = started(bench)
        bench.wait(pause_s - 1)
        bench.tend()
        assert started(bench) == before
        bench.wait(1)
        bench.tend()
        assert started(bench) == before + 1


@probe(nodes_max=4)
def until_one_passes_its_probe_one_node_at_a_time_is_rented(bench: Bench) -> None:
    for seed in range(4):
        bench.submit(seed=seed)
    bench.tend()
    bench.tend()
    first, *others = bench.rented()
    assert len(others) == 3
    bench.join("bare", node=first, **BARE)
    bench.wait(bench.policy.start_pause_s)
    bench.tend()
    assert started(bench) == 4, "those that are coming may pass"
    for node in others:
        bench.join(node, node=node, **BARE)
    bench.tend()
    bench.wait(8 * bench.policy.start_pause_s)
    bench.tend()
    bench.tend()
    assert started(bench) == 5
    bench.wait(bench.policy.rest_max_s)
    bench.tend()
    assert started(bench) == 5, "it is coming"
    bench.join("good", node=bench.rented()[-1])
    bench.tend()
    assert started(bench) == 8


@probe(nodes_max=1)
def the_pause_after_failed_probes_has_a_bound(bench: Bench) -> None:
    bench.submit()
    for _ in range(8):
        rented_bare(bench)
        bench.wait(bench.policy.rest_max_s)
    bench.tend()
    assert started(bench) == 9
