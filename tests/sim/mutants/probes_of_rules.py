"""What the rules promise, over the real service and nothing in its way. Each is a sentence that holds."""

import sqlite3
from dataclasses import replace
from typing import Any

from gangline.core.errors import Denied, Forbidden
from gangline.core.specs.fields import Needs
from gangline.ports.pool import Offer
from gangline.ports.server import Beaten, Downloads, Refused, Succeeded
from gangline.ports.store import write
from gangline.service.access import projects
from gangline.service.access.access import create_join_token, create_key, identify
from gangline.service.attempts import end_overdue
from gangline.service.controller import Controller
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet.nodes import leave_pool
from gangline.service.jobs import checkpoint, query, steer
from gangline.service.jobs.finish import finish
from gangline.service.outage import take_turn
from tests.sim.mutants.bench import POOL, PRICE, PROJECT, Bench, Provider, is_stale, probe, refused
from tests.sim.mutants.probes import contrast, idle_rented, misbehave, slow_one

RESERVED = PRICE // 4


# Promise 1: one at a time, and time only permits the server to end an attempt


@probe()
def an_overdue_lease_is_taken_away_and_the_job_goes_on_elsewhere(bench: Bench) -> None:
    job, node, other = bench.submit(), bench.join("a"), bench.join("b")
    hold = bench.take(node, job)
    bench.wait(bench.policy.lease_s + 1)
    bench.tick()
    assert bench.state(job) == "queued" and is_stale(bench.beat(node, hold))
    assert bench.take(other, job).fencing == 2


@probe()
def while_the_database_was_away_nobody_fell_silent(bench: Bench) -> None:
    job, node, other = bench.submit(), bench.join("a"), bench.join("b")
    hold = bench.take(node, job)
    bench.tick()
    bench.world.now_ms += round(1000 * bench.policy.node_silent_s) + 1
    bench.claim_nothing(other)
    assert bench.state(job) == "running"
    bench.tick()
    assert bench.state(job) == "running" and bench.node(node)["state"] == "ready"
    bench.wait(bench.policy.lease_s - 1)
    assert not is_stale(bench.beat(node, hold))
    bench.wait(bench.policy.lease_s + 1)
    bench.tick()
    assert bench.state(job) == "queued"


@probe()
def after_an_outage_of_ours_no_lease_ends_before_a_lease_time_has_passed(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(600)
    bench.restart()
    bench.tick()
    bench.wait(bench.policy.lease_s - 1)
    bench.tick()
    assert bench.state(job) == "running" and bench.beat(node, hold) == Beaten()


@probe()
def after_an_outage_of_ours_a_node_that_was_asked_to_stop_has_its_grace_again(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    steer.pause(bench.deployment, job, bench.now_ms)
    bench.wait(600)
    bench.restart()
    bench.beat(node, hold)
    bench.tick()
    assert bench.state(job) == "running"


@probe()
def after_an_outage_of_ours_no_node_is_silent_at_once(bench: Bench) -> None:
    node = bench.join()
    bench.wait(600)
    bench.restart()
    bench.tick()
    assert bench.node(node)["state"] == "ready"
    bench.wait(bench.policy.node_silent_s + 1)
    bench.tick()
    assert bench.node(node)["state"] == "gone"


@probe()
def of_two_servers_one_has_its_turn_until_it_is_gone(bench: Bench) -> None:
    other = replace(bench.deployment, server="another")
    assert take_turn(bench.deployment, bench.now_ms)
    bench.world.now_ms += bench.policy.turn_ms
    assert not take_turn(other, bench.now_ms)
    assert take_turn(bench.deployment, bench.now_ms)
    bench.world.now_ms += bench.policy.turn_ms + 1
    assert take_turn(other, bench.now_ms)
    assert not take_turn(bench.deployment, bench.now_ms)


@probe()
def a_server_whose_turn_it_is_not_leaves_everything_as_it_is(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.take(node, job)
    bench.wait(bench.policy.lease_s + 1)
    take_turn(bench.deployment, bench.now_ms)
    Controller(replace(bench.deployment, server="another")).tick(bench.now_ms)
    assert bench.state(job) == "running"


@probe()
def after_an_outage_of_ours_nobody_is_said_to_make_no_progress(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.beat(node, hold)
    bench.wait(bench.policy.stall_s + 100)
    bench.restart()
    bench.beat(node, hold)
    bench.tick()
    assert bench.state(job) == "running"


@probe()
def who_does_not_heed_a_stop_loses_its_lease(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    steer.pause(bench.deployment, job, bench.now_ms)
    bench.keep_beating(node, hold, bench.policy.stop_grace_s)
    assert bench.state(job) == "running"
    bench.keep_beating(node, hold, 10)
    assert bench.state(job) == "paused" and is_stale(bench.beat(node, hold))


@probe()
def a_token_opens_what_it_is_for_and_that_of_a_node_that_is_gone_opens_nothing(bench: Bench) -> None:
    assert refused(Forbidden, lambda: identify(bench.deployment, "operator's", "node", bench.now_ms))
    assert refused(Denied, lambda: identify(bench.deployment, "nobody's", "viewer", bench.now_ms))
    node = bench.join()
    token = f"gl_node_secret-{int(node.removeprefix('node-')) - 1}"
    assert identify(bench.deployment, token, "node", bench.now_ms).node == node
    leave_pool(bench.deployment, node, bench.now_ms)
    assert refused(Denied, lambda: identify(bench.deployment, token, "node", bench.now_ms))


@probe()
def a_key_opens_nothing_once_its_time_is_over(bench: Bench) -> None:
    made = create_key(bench.deployment, "admin", PROJECT, "viewer", name="a", lasts_s=60, now_ms=bench.now_ms)
    assert identify(bench.deployment, made.secret, "viewer", bench.now_ms).project == PROJECT
    bench.wait(60)
    assert refused(Denied, lambda: identify(bench.deployment, made.secret, "viewer", bench.now_ms))


# Promise 2: nothing lost


@probe()
def two_checkpoints_are_kept_and_the_next_attempt_goes_on_from_the_newest(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20, 30, 40):
        bench.commit(node, hold, step)
    bench.release(node, hold)
    assert [found.step for found in bench.claim(node).resume] == [40, 30]
    assert bench.look("SELECT from_step FROM attempt ORDER BY fencing") == [0, 40]


@probe()
def the_last_verified_checkpoint_is_kept_however_old_it_is(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    bench.objects.unattested = True
    for step in (20, 30, 40):
        bench.commit(node, hold, step)
    assert bench.look("SELECT step FROM checkpoint WHERE state = 'committed' ORDER BY step") == [10, 30, 40]


@probe()
def nothing_is_committed_whose_bytes_are_not_there(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    assert isinstance(bench.commit(node, hold, 10, upload=False), Refused)
    manifest = bench.manifest(hold, 20)
    bench.upload(node, hold, "checkpoints", replace(manifest.files[0], sha256="0" * 64), 20)
    assert isinstance(bench.commit(node, hold, 20, upload=False), Refused)
    assert isinstance(bench.commit(node, hold, 30, spec_hash="another"), Refused)
    assert isinstance(bench.commit(node, hold, 101), Refused) and isinstance(bench.commit(node, hold, 0), Refused)
    assert not bench.checkpoints(job)


@probe()
def no_job_succeeds_whose_result_is_not_there(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    missing = Succeeded(output=bench.manifest(hold, 1).files)
    assert isinstance(finish(bench.deployment, node, hold, missing, bench.now_ms), Refused)
    assert bench.state(job) == "running"


@probe()
def what_was_not_pruned_at_its_time_is_pruned_later(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20):
        bench.commit(node, hold, step)
    bench.deployment = replace(bench.deployment, policy=replace(bench.policy, checkpoints_kept=9))
    bench.commit(node, hold, 30)
    bench.deployment = replace(bench.deployment, policy=replace(bench.policy, checkpoints_kept=2))
    bench.tick()
    assert len(bench.checkpoints(job)) == 2


@probe()
def the_best_checkpoint_is_kept(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20, 30, 40, 50):
        bench.commit(node, hold, step, best=step == 20)
    assert bench.look("SELECT step FROM checkpoint WHERE state = 'committed' ORDER BY step") == [20, 40, 50]


@probe()
def a_node_reads_its_own_jobs_files_and_no_others(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    asked = Downloads(keys=(f"projects/other/blobs/{'0' * 64}",))
    assert isinstance(checkpoint.sign_downloads(bench.deployment, node, hold, asked, bench.now_ms), Refused)


# Promise 3: exact


@probe()
def a_job_that_need_not_stay_exact_goes_on_anywhere(bench: Bench) -> None:
    job, node = bench.submit(), bench.join("a", gpu="T4")
    hold = bench.take(node, job)
    bench.advance(node, hold)
    bench.release(node, hold)
    bench.take(bench.join("b", gpu="A10"), job)


# Promise 4: it ends


def fail_on(bench: Bench, job: str, name: str, kind: str, **facts: Any) -> None:
    """Another machine tries, and says `kind`."""
    node = bench.join(name, **facts)
    bench.fail(node, bench.take(node, job), kind)
    bench.wait(bench.policy.retry_max_s)


@probe()
def a_job_that_fails_too_often_has_failed(bench: Bench) -> None:
    job = bench.submit(attempts_max=2)
    fail_on(bench, job, "a", "crashed")
    assert bench.state(job) == "queued"
    fail_on(bench, job, "b", "crashed")
    assert bench.state(job) == "failed"
    assert bench.because(job) == "the trainer crashed: boom (the job has failed twice, which is its limit)"


@probe()
def a_failed_job_waits_before_its_next_try_and_longer_each_time(bench: Bench) -> None:
    job = bench.submit()
    for number, seconds in enumerate((10, 20)):
        node = bench.join(f"n{number}")
        bench.fail(node, bench.take(node, job))
        assert bench.look("SELECT ready_ms FROM job") == [bench.now_ms + 1000 * seconds]
        bench.wait(seconds - 1)
        bench.claim_nothing(bench.join(f"early-{number}"))
        bench.wait(1)


@probe()
def bad_input_ends_a_job_once_a_second_machine_says_so(bench: Bench) -> None:
    job = bench.submit(attempts_max=9)
    fail_on(bench, job, "a", "bad data")
    assert bench.state(job) == "queued"
    fail_on(bench, job, "b", "bad data")
    assert bench.state(job) == "failed" and bench.because(job).endswith("(so says a second machine)")


@probe()
def bad_input_ends_a_job_once_the_only_machine_says_so_twice(bench: Bench) -> None:
    job, node = bench.submit(attempts_max=9), bench.join()
    bench.fail(node, bench.take(node, job), "bad data")
    for _ in range(70):
        bench.wait(10)
        bench.claim_nothing(node) if bench.look("SELECT COUNT(*) FROM ban") == [1] else None
        bench.tick()
    bench.fail(node, bench.take(node, job), "bad data")
    assert bench.state(job) == "failed" and bench.because(job).endswith("(so says the only machine here, twice)")


@probe()
def too_little_memory_on_two_machines_is_a_need_of_the_job(bench: Bench) -> None:
    job = bench.submit()
    for name in "ab":
        fail_on(bench, job, name, "out of memory", gpu="T4", gpu_memory_gb=16)
    bench.claim_nothing(bench.join("c", gpu="T4", gpu_memory_gb=16))
    assert "needs 17 GB of GPU memory and c has 16" in bench.because(job)
    bench.take(bench.join("d", gpu="A10", gpu_memory_gb=24), job)


def lose(bench: Bench, job: str, name: str, step: int = 0) -> None:
    """A machine takes the job and falls silent, after a checkpoint of `step`."""
    node = bench.join(name)
    hold = bench.take(node, job)
    if step:
        bench.advance(node, hold, step)
    bench.wait(bench.policy.lease_s + 1)
    end_overdue(bench.deployment, bench.now_ms)
    bench.wait(bench.policy.retry_max_s)


@probe()
def a_job_that_kills_its_hosts_is_blamed_for_three_and_one_that_goes_on_for_none(bench: Bench) -> None:
    killer, other = bench.submit(attempts_max=2), bench.submit(seed=1, attempts_max=2, priority=-1)
    for number in range(6):
        lose(bench, killer, f"n{number}")
        assert bench.look("SELECT attempts_failed FROM job WHERE id = ?", killer) == [(number + 1) // 3]
    assert bench.state(killer) == "failed"
    for number in range(4):
        lose(bench, other, f"m{number}", step=10 + number)
    assert bench.look("SELECT attempts_failed, state FROM job WHERE id = ?", other) == [(0, "queued")]


@probe()
def a_job_that_is_handed_back_has_not_failed(bench: Bench) -> None:
    job, node = bench.submit(attempts_max=1), bench.join()
    for _ in range(3):
        bench.release(node, bench.take(node, job))
    assert bench.look("SELECT attempts_failed FROM job") == [0]


@probe()
def what_beats_but_makes_no_step_is_given_up(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.keep_beating(node, hold, bench.policy.stall_s + 80, step=lambda _: 5)
    assert "no progress: no step after 5" in bench.said(job)


@probe(start_s=600)
def what_beats_but_never_begins_is_given_up(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for _ in range(70):
        bench.wait(10)
        bench.beat(node, hold, 0, phase="preparing", training_s=None, loss=None, seconds_per_step=None)
        bench.tick()
    assert "no progress: no step for 10 min" in bench.said(job)


@probe(commit_s=600)
def what_makes_steps_but_never_saves_is_given_up_unless_it_is_to_save_seldom(bench: Bench) -> None:
    job, other = bench.submit(), bench.submit(seed=1, checkpoint_every_s=3600)
    node = bench.join(slots=2)
    hold, seldom = bench.take(node, job), bench.take(node, other)
    for step in range(1, 70):
        bench.wait(10)
        bench.beat(node, hold, step)
        bench.beat(node, seldom, step)
        bench.tick()
    assert "no new checkpoint in the object store for 10 min" in bench.said(job)
    assert bench.state(other) == "running"


@probe()
def bans_yield_when_no_other_machine_comes_for_long(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.fail(node, bench.take(node, job))
    for _ in range(int(bench.policy.ban_yields_s / 10) + 5):
        bench.claim_nothing(node) if "bans lifted" not in bench.events(job) else None
        bench.wait(10)
        bench.tick()
    bench.take(node, job)


@probe()
def bans_do_not_yield_while_another_machine_here_could_have_the_job(bench: Bench) -> None:
    other = bench.join("b")
    hold = bench.take(other, bench.submit(seed=1))
    job, node = bench.submit(), bench.join("a")
    bench.fail(node, bench.take(node, job))
    for step in range(int(bench.policy.ban_yields_s / 10) + 10):
        bench.claim_nothing(node)
        bench.wait(10)
        bench.beat(other, hold, step)
        bench.tick()
    assert "bans lifted" not in bench.events(job)


@probe()
def a_job_that_nothing_can_run_fails_in_the_end_and_no_other(bench: Bench) -> None:
    job, other = bench.submit(needs=Needs(gpu="H200")), bench.submit(seed=1, needs=Needs(gpu="T4"))
    bench.wait(bench.policy.unmatched_s + 1)
    bench.join(gpu="T4")
    bench.tick()
    assert bench.state(job) == "queued", "its provider had not said yet what it offers"
    bench.tick()
    assert (bench.state(job), bench.state(other)) == ("failed", "queued")
    assert bench.because(job) == "no node that fits came within 24 h (an H200)"


@probe()
def a_job_that_a_pool_could_run_waits_for_its_provider_however_long(bench: Bench) -> None:
    bench.provider.has_capacity = False
    job = bench.submit()
    bench.wait(bench.policy.unmatched_s + 1)
    bench.tick()
    assert bench.state(job) == "queued"


# Promise 5: every dollar explained


@probe(egress_usd_per_gb=1.0)
def a_nodes_time_is_in_the_ledger_without_gap_and_with_its_causes(bench: Bench) -> None:
    node, began_ms = bench.join(), bench.now_ms
    bench.wait(7.006)
    job = bench.submit(steps=100)
    assignment = bench.claim(node)
    hold = assignment.hold
    asked = Downloads(keys=(assignment.inputs[0].key,))
    for _ in range(1000):
        checkpoint.sign_downloads(bench.deployment, node, hold, asked, bench.now_ms)
    bench.wait(11)
    bench.advance(node, hold)
    bench.wait(13.007)
    bench.beat(node, hold, 15)
    bench.release(node, hold)
    hold = bench.take(node, job)
    bench.wait(3)
    bench.beat(node, hold, 16)
    bench.wait(20)
    bench.beat(node, hold, 20)
    bench.wait(7)
    bench.fail(node, hold)
    bench.wait(5)
    leave_pool(bench.deployment, node, bench.now_ms)
    lines = [line for line in bench.ledger(node) if line[0] != "egress"]
    found = [(cause, to_ms - from_ms) for cause, from_ms, to_ms, _ in lines]
    assert found == [
        ("idle", 7006),
        ("download", 11000),
        ("training", 8007),
        ("redone steps", 5000),
        ("download", 3000),
        ("training", 10000),
        ("failed", 17000),
        ("idle", 5000),
    ], found
    whole = PRICE * bench.now_ms // 3_600_000 - PRICE * began_ms // 3_600_000
    assert sum(line[3] for line in lines) == whole
    assert [line[3] for line in bench.ledger(node) if line[0] == "egress"] == [9]


@probe()
def what_fails_before_its_first_step_has_cost_a_failure(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(10)
    bench.fail(node, hold)
    assert [line[0] for line in bench.ledger(node)] == ["failed"]


@probe()
def a_nodes_price_is_split_by_its_slots(bench: Bench) -> None:
    job, node = bench.submit(), bench.join(slots=2)
    hold = bench.take(node, job)
    bench.wait(10)
    bench.release(node, hold)
    assert sorted(line[3] for line in bench.ledger(node)) == [500, 500]


@probe(storage_usd_per_gb_month=1000.0)
def what_is_stored_is_paid_for(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20, 30):
        bench.commit(node, hold, step)
        bench.wait(60)
    assert bench.look("SELECT cause, micro_usd FROM ledger WHERE cause = 'storage'") == [("storage", 46)]


@probe(storage_usd_per_gb_month=1e9)
def what_a_job_keeps_costs_more_with_each_day(bench: Bench) -> None:
    def cost_usd() -> float:
        return query.job(bench.deployment, PROJECT, job, bench.now_ms).summary.cost_usd

    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    begun = cost_usd()
    bench.wait(60)
    assert cost_usd() - begun > 60 * PRICE / 3600 / 1e6 + 1e-3, "the checkpoint costs beside the node"
    bench.release(node, hold)
    bench.succeed(node, bench.take(node, job))
    [size] = bench.look("SELECT SUM(bytes) FROM checkpoint WHERE job = ? AND state = 'committed'", job)
    [result] = bench.look("SELECT SUM(bytes) FROM artifact WHERE job = ?", job)
    ended = cost_usd()
    bench.wait(86_400)
    assert abs(cost_usd() - ended - (size + result) / 30) < 0.01


@probe()
def who_loses_the_lease_while_asking_for_downloads_gets_none(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    assignment = bench.claim(node)
    bench.meanwhile("count_download", lambda: bench.release(node, assignment.hold))
    asked = Downloads(keys=(assignment.inputs[0].key,))
    assert is_stale(checkpoint.sign_downloads(bench.deployment, node, assignment.hold, asked, bench.now_ms))
    assert bench.state(job) == "queued"


@probe()
def an_end_gives_back_what_was_reserved_and_books_what_was_spent(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.budget(1)
    hold = bench.take(node, job)
    assert bench.look("SELECT spent, reserved FROM project") == [(0, RESERVED)]
    bench.wait(20)
    bench.release(node, hold)
    assert bench.look("SELECT spent, reserved FROM project") == [(2000, 0)]


@probe()
def a_job_without_money_waits_and_says_so_and_a_job_with_some_spends_no_more_than_that(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.budget(0.5 * RESERVED / 1e6)
    bench.claim_nothing(node)
    assert bench.because(job).startswith("the budget of default, $0.04, does not allow it")
    bench.budget(2 * RESERVED / 1e6)
    hold = bench.take(node, job)
    for step in range(400):
        bench.wait(10)
        if is_stale(bench.beat(node, hold, step)):
            break
        bench.tick()
        if step % 20 == 0 and bench.state(job) == "running":
            bench.commit(node, hold, step // 20 + 1)
    spent = bench.look("SELECT spent FROM project")[0]
    assert bench.state(job) == "queued" and RESERVED < spent <= 2 * RESERVED, spent
    assert bench.because(job).startswith("the budget of default")


@probe(egress_usd_per_gb=1e6)
def a_claim_reserves_for_what_the_attempt_will_download(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.budget((RESERVED + 17_000) / 1e6)
    bench.claim_nothing(node)
    assert bench.because(job).startswith("the budget of default")
    bench.budget((RESERVED + 18_000) / 1e6)
    bench.take(node, job)
    assert bench.look("SELECT reserved FROM project") == [RESERVED + 18_000]


@probe(egress_usd_per_gb=100)
def with_its_newest_checkpoint(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.advance(node, hold)
    bench.release(node, hold)
    bench.budget(RESERVED / 1e6 + 0.1)
    bench.claim_nothing(node)
    assert "does not allow it" in bench.because(job)
    fresh = bench.submit(seed=1)
    bench.release(node, bench.take(node, fresh))
    bench.budget(RESERVED / 1e6 + 0.11)
    bench.take(node, job)
    assert bench.look("SELECT reserved FROM project") == [RESERVED + 100_002]


@probe(egress_usd_per_gb=100)
def but_not_with_one_that_was_rejected(bench: Bench) -> None:
    other, node = bench.join("b"), bench.join()
    bench.advance(other, bench.take(other, bench.submit(seed=1)), 50)
    job = bench.submit()
    hold = bench.take(node, job)
    bench.advance(node, hold)
    bench.reject(node, hold, bench.checkpoints(job)[0])
    bench.release(node, hold)
    assert bench.look("SELECT checkpoint_bytes FROM job ORDER BY steps, id") == [1_000_000, 0]
    bench.budget(2 * RESERVED / 1e6 + 0.01)
    bench.take(node, job)


@probe(egress_usd_per_gb=1)
def jobs_that_are_too_dear_hide_none_that_is_not(bench: Bench) -> None:
    node = bench.join()
    bench.budget(1)
    for seed in range(17):
        dear = bench.submit(seed=seed, priority=5)
        bench.store.look("UPDATE job SET input_bytes = 1e12 WHERE id = ?", dear)
    bench.take(node, bench.submit(seed=99))


@probe()
def one_budget_pays_for_the_nodes_of_all_kinds_of_jobs_together(bench: Bench) -> None:
    bench.budget(2.5 * RESERVED / 1e6)
    for seed, resolution in ((1, 256), (2, 256), (3, 512), (4, 512)):
        bench.submit(seed=seed, resolution=resolution)
    bench.tend()
    bench.tend()
    assert len(bench.rented()) == 2


@probe()
def without_money_and_without_nodes_the_owner_hears_of_the_money(bench: Bench) -> None:
    job = bench.submit()
    bench.budget(0)
    assert bench.because(job).startswith("the budget of default, $0.00, does not allow it")


@probe(egress_usd_per_gb=1e6)
def who_downloads_more_than_the_budget_pays_for_stops_and_is_not_to_blame(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.budget(2.5 * RESERVED / 1e6)
    assignment = bench.claim(node)
    asked = Downloads(keys=tuple(stored.key for stored in assignment.inputs))
    answers = [
        checkpoint.sign_downloads(bench.deployment, node, assignment.hold, asked, bench.now_ms) for _ in range(20)
    ]
    assert 2 <= sum(not is_stale(answer) for answer in answers) < 20
    assert bench.said(job).startswith("stopped: the budget of default, $0.23, does not allow it")
    assert bench.events(job)[-2:] == ["released", "over budget"] and bench.state(job) == "queued"
    [spent] = bench.look("SELECT spent FROM project WHERE reserved = 0")
    assert spent <= 2.5 * RESERVED and not bench.look("SELECT attempt FROM strike")


@probe()
def the_ledger_says_of_a_rented_node_what_its_provider_does(bench: Bench) -> None:
    node = idle_rented(bench)
    bench.tend()
    for _ in range(3):
        bench.wait(15)
        bench.tend()
    assert bench.node(node)["state"] == "gone"
    assert [line[0] for line in bench.ledger(node)][:2] == ["start-up", "training"]
    bench.audit.at_the_end(bench.provider.invoice(), nodes_min=0)


# Promise 6: one true sentence why


OFFER = {"gpu": "A10", "gpu_memory_gb": 24}


@probe()
def a_job_that_waits_says_what_the_nodes_lack(bench: Bench) -> None:
    away = "; the provider of cloud has not been asked yet"
    assert bench.because(bench.submit()) == f"waits for a node: there is none{away}"
    node = bench.join("a", **OFFER)
    bench.succeed(node, bench.claim(node).hold)
    lacks = {
        "needs 80 GB of GPU memory and a has 24": Needs(gpu_memory_gb=80),
        "needs an H200 and a has A10": Needs(gpu="H200"),
        "needs the pool cloud and a is in default": Needs(pool=POOL),
        "needs trust 2 and a has 0": Needs(trust=2),
        "needs 2 slots and a has 1 free": Needs(slots=2),
    }
    for why, needs in lacks.items():
        job = bench.submit(needs=needs)
        assert bench.because(job) == f"no node can take it: {why}{away}", bench.because(job)
        assert bench.claim_nothing(bench.look("SELECT id FROM node")[0]) == "no waiting job may run on this node"


@probe()
def a_job_that_waits_for_its_next_try_or_was_failed_everywhere_says_so(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.fail(node, bench.take(node, job))
    assert bench.because(job).startswith("waits 10 s before its next try: to be tried again (1 of 3 failed)")
    bench.wait(10)
    assert bench.because(job).startswith("no node can take it: a failed it before; ")
    exact = bench.submit(exact="required", seed=1)
    other = bench.join("b", gpu="T4")
    steer.cancel(bench.deployment, job, bench.now_ms)
    hold = bench.take(other, exact)
    bench.commit(other, hold, 10)
    bench.release(other, hold)
    leave_pool(bench.deployment, other, bench.now_ms)
    assert bench.because(exact).startswith(
        "no node can take it: must resume with the same numerics, and a has others; "
    )


@probe(nodes_max=1)
def a_job_that_nobody_can_take_says_what_the_provider_lacks(bench: Bench) -> None:
    assert "its pool far does not exist: the pools are cloud, default" in bench.because(
        bench.submit(needs=Needs(pool="far"))
    )
    create_join_token(bench.deployment, "far", name="far", lasts_s=None, now_ms=bench.now_ms)
    far = bench.submit(needs=Needs(pool="far"))
    assert bench.because(far).endswith("; start a worker that has the pool far: `gangline worker`")
    large = bench.submit(needs=Needs(gpu_memory_gb=80))
    bench.provider.away = True
    bench.tend()
    assert bench.because(large).endswith("; the provider of cloud did not answer: the provider is away")
    bench.provider.away = False
    bench.tend()
    assert bench.because(large).endswith("; no pool offers a GPU with 80 GB (the largest offer has 0 GB)")
    bench.provider.has_capacity = False
    job = bench.submit()
    assert bench.because(job).endswith("; a node of cloud will be started for it")
    for _ in range(2):
        bench.tend()  # the second asks for nothing so soon
        assert bench.because(job).endswith(
            "; the provider of cloud has no fitting node left now; the server keeps asking"
        )
    bench.provider.has_capacity = True
    bench.wait(bench.policy.start_pause_s + 1)
    bench.tend()
    (node,) = bench.rented()
    assert bench.because(job) == "waits for a node: cloud-2 is starting"  # cloud-1 could not be had
    bench.join("rented", node=node)
    bench.take(node, job)
    wide = bench.submit(needs=Needs(pool=POOL), seed=1)
    bench.store.apply(write("add_ban", job=wide, machine="machine-rented", because="failed", now=bench.now_ms))
    bench.look("UPDATE job SET fencing = 1 WHERE id = ?", wide)
    assert bench.because(wide).endswith("; no pool may grow: cloud has 1 of at most 1 nodes")


@probe()
def a_job_whose_only_node_gets_no_work_says_which_and_until_when(bench: Bench) -> None:
    contrast(bench)
    node, beside = bench.join("bad"), bench.join("beside")
    misbehave(bench, node)
    misbehave(bench, node)
    leave_pool(bench.deployment, beside, bench.now_ms)
    job = bench.submit()
    assert bench.because(job) == "the only node, bad, is quarantined until 23:14 UTC: 2 strikes: the GPU failed"
    assert bench.because(job) == f"the only node, {bench.claim_nothing(node).replace(' ', ', ', 1)}"


@probe()
def a_node_that_gets_nothing_is_told_why(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.submit(seed=1)
    hold = bench.take(node, job)
    assert bench.claim_nothing(node) == "all 1 slots of a are taken"
    bench.release(node, hold)
    bench.store.apply(write("drain_idle", id=node, because="no work for it"))
    assert bench.claim_nothing(node) == "a is draining: no work for it"


@probe()
def jobs_that_a_node_may_not_have_hide_none_that_it_may(bench: Bench) -> None:
    node = bench.join("a", **OFFER)
    for number, needs in enumerate(
        (Needs(gpu_memory_gb=80), Needs(gpu="H200"), Needs(pool="far"), Needs(trust=2), Needs(slots=2))
    ):
        for seed in range(17):
            bench.submit(seed=100 * number + seed, needs=needs, priority=5)
    bench.take(node, bench.submit(seed=9999))


@probe(egress_usd_per_gb=1)
def nor_do_jobs_that_were_tried_before(bench: Bench) -> None:
    node = bench.join("a", **OFFER)
    odd = ("gpu_memory_gb = 80", "gpu = 'H200'", "pool = 'far'", "trust = 2", "slots = 2", "numerics = 'other'")
    others = (f"ready_ms = {bench.now_ms + 1000}", "project = 'poor'", "checkpoint_bytes = 1e12", "input_bytes = 1e12")
    for number, need in enumerate((*odd, *others)):
        for seed in range(17):
            job = bench.submit(seed=100 * number + seed, priority=5)
            bench.store.look(f"UPDATE job SET fencing = 1, {need} WHERE id = ?", job)
    bench.budget(0, "poor")
    bench.budget(1)
    job = bench.submit(seed=9999)
    bench.store.look("UPDATE job SET fencing = 1 WHERE id = ?", job)
    bench.take(node, job)


@probe()
def only_what_waits_is_given_out_and_bans_hold_beside_fresh_jobs(bench: Bench) -> None:
    for act in (steer.cancel, steer.pause):
        act(bench.deployment, bench.submit(priority=9), bench.now_ms)
    job, node = bench.submit(priority=5), bench.join()
    bench.fail(node, bench.take(node, job))
    bench.wait(bench.policy.retry_max_s)
    hold = bench.take(node, bench.submit(seed=1))
    bench.release(node, hold)
    steer.pause(bench.deployment, bench.look("SELECT job FROM attempt WHERE id = ?", hold.attempt)[0], bench.now_ms)
    bench.take(node, bench.submit(seed=2))


# Whom to trust


@probe()
def a_machine_that_failed_a_job_does_not_get_it_again_and_another_does(bench: Bench) -> None:
    job, node = bench.submit(), bench.join("a")
    bench.fail(node, bench.take(node, job))
    bench.wait(bench.policy.retry_first_s)
    assert bench.claim_nothing(node) == "no waiting job may run on this node"
    bench.claim_nothing(bench.join("again", machine="machine-a"))
    bench.take(bench.join("b"), job)


@probe()
def the_network_and_an_interruption_ban_nobody(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.fail(node, bench.take(node, job), "download failed")
    bench.wait(bench.policy.retry_first_s)
    bench.release(node, bench.take(node, job))
    bench.take(node, job)


@probe()
def a_machine_that_fails_what_others_do_well_is_quarantined_then_tried_then_trusted(bench: Bench) -> None:
    contrast(bench)
    bench.join("beside")
    node = bench.join("bad")
    misbehave(bench, node)
    assert bench.node(node)["state"] == "ready"
    misbehave(bench, node)
    assert bench.node(node)["state"] == "quarantined"
    leave_pool(bench.deployment, node, bench.now_ms)
    node = bench.join("bad")
    assert bench.node(node)["state"] == "quarantined"
    bench.wait(bench.policy.quarantine_s + 1)
    bench.claim_nothing(node)
    bench.tick()
    assert bench.node(node)["state"] == "on_trial"
    assert bench.node(bench.join("twin", machine="machine-bad"))["state"] == "on_trial"
    bench.join("beside")
    misbehave(bench, node, "crashed")
    assert bench.node(node)["state"] == "quarantined"
    bench.wait(bench.policy.quarantine_s + 1)
    bench.claim_nothing(node)
    bench.tick()
    assert bench.node(node)["state"] == "quarantined"
    bench.wait(bench.policy.quarantine_s)
    bench.claim_nothing(node)
    bench.tick()
    bench.succeed(node, bench.take(node, bench.submit(seed=5)))
    assert bench.node(node)["state"] == "ready"
    assert bench.node(bench.join("later", machine="machine-bad"))["state"] == "ready"


@probe()
def on_trial_what_does_not_count_does_not_count_and_what_is_paid_for_neither(bench: Bench) -> None:
    contrast(bench)
    bench.join("beside")
    node = bench.join("bad")
    misbehave(bench, node)
    misbehave(bench, node)
    bench.wait(bench.policy.quarantine_s + 1)
    bench.claim_nothing(node)
    bench.tick()
    for kind in ("bad data", "download failed"):
        bench.wait(bench.policy.rest_max_s)
        bench.claim_nothing(node)
        bench.join("beside")
        misbehave(bench, node, kind)
    bench.tick()
    assert bench.node(node)["state"] == "on_trial"


@probe()
def without_a_contrast_nobody_is_blamed_unless_workloads_of_two_projects_fail(bench: Bench) -> None:
    node = bench.join("bad")
    projects.create_project(bench.deployment, "others")
    for settings in ({}, {}, {"rank": 4}, {"rank": 4}):
        misbehave(bench, node, **settings)
        bench.wait(bench.policy.rest_max_s)
        bench.claim_nothing(node)
        bench.tick()
    misbehave(bench, node, project="others", kind="bad data")
    assert bench.node(node)["state"] == "ready"
    bench.wait(bench.policy.rest_max_s)
    bench.join("beside")
    misbehave(bench, node, project="others")
    assert bench.node(node)["state"] == "quarantined"


@probe()
def two_projects_that_fail_the_same_workload_blame_nobody(bench: Bench) -> None:
    node = bench.join("bad")
    projects.create_project(bench.deployment, "others")
    misbehave(bench, node)
    misbehave(bench, node, project="others")
    assert bench.node(node)["state"] == "ready"


@probe()
def two_workloads_of_one_project_are_enough_where_one_of_them_went_well_on_any_machine(bench: Bench) -> None:
    contrast(bench, gpu="A100")
    bench.join("beside")
    node = bench.join("bad", gpu="RTX 4090")
    misbehave(bench, node)
    misbehave(bench, node)
    assert bench.node(node)["state"] == "ready"
    bench.wait(bench.policy.rest_max_s)
    misbehave(bench, node, rank=4)
    assert bench.node(node)["state"] == "quarantined"


@probe()
def what_a_machine_failed_itself_says_nothing_of_whether_the_workload_goes_well_on_others(bench: Bench) -> None:
    """It did one of the two well before."""
    node = bench.join("bad", gpu="A100")
    job = bench.submit(seed=50)
    hold = bench.take(node, job)
    bench.advance(node, hold)
    bench.succeed(node, hold)
    for settings in ({}, {"rank": 4}):
        misbehave(bench, node, **settings)
    assert bench.node(node)["state"] == "ready"


@probe()
def what_a_machine_says_of_a_job_counts_once_the_job_went_well_elsewhere(bench: Bench) -> None:
    contrast(bench)
    liar, good = bench.join("liar"), bench.join("other")
    for seed in range(2):
        job = bench.submit(seed=seed)
        bench.fail(liar, bench.take(liar, job), "bad data")
        assert bench.node(liar)["state"] == "ready"
        hold = bench.take(good, job)
        bench.advance(good, hold)
        bench.succeed(good, hold)
    bench.tick()
    assert bench.node(liar)["state"] == "quarantined"


@probe()
def of_many_bad_machines_at_once_an_operator_is_told_and_they_stay(bench: Bench) -> None:
    contrast(bench)
    bench.join("beside")
    for name, state in (("bad-1", "quarantined"), ("bad-2", "ready")):
        node = bench.join(name)
        misbehave(bench, node)
        misbehave(bench, node)
        assert bench.node(node)["state"] == state
    assert "an operator should look" in bench.node(node)["because"]


@probe()
def the_last_machine_of_a_pool_that_rents_none_rests_longer_each_time_and_works_one_job_at_a_time(bench: Bench) -> None:
    contrast(bench)
    node = bench.join("bad", slots=2)
    misbehave(bench, node)
    misbehave(bench, node)
    for rest_s in (30, 60):
        assert bench.node(node)["state"] == "on_trial" and f"a rest of {rest_s} s" in bench.node(node)["because"]
        job = bench.submit(seed=8)
        bench.wait(rest_s - 1)
        assert "pauses after failures" in bench.claim_nothing(node)
        bench.wait(1)
        bench.submit(seed=9)
        hold = bench.take(node, job)
        assert bench.claim_nothing(node) == "bad is on trial: it gets one job at a time"
        bench.fail(node, hold)
        for queued in bench.look("SELECT id FROM job WHERE state = 'queued'"):
            steer.cancel(bench.deployment, queued, bench.now_ms)
    leave_pool(bench.deployment, node, bench.now_ms)
    again = bench.node(bench.join("bad"))
    assert again["state"] == "on_trial" and "a rest of 120 s" in again["because"]
    bench.join("beside")
    other = bench.join("bad-2")
    misbehave(bench, other)
    misbehave(bench, other)
    assert bench.node(other)["state"] == "quarantined"


@probe()
def whose_others_are_all_in_quarantine_is_the_last(bench: Bench) -> None:
    contrast(bench)
    beside = bench.join("beside")
    for name, state in (("bad-1", "quarantined"), ("bad-2", "on_trial")):
        node = bench.join(name)
        misbehave(bench, node)
        if state == "on_trial":
            leave_pool(bench.deployment, beside, bench.now_ms)
        misbehave(bench, node)
        assert bench.node(node)["state"] == state


@probe(nodes_max=1)
def a_lonely_machine_that_can_be_replaced_is_quarantined(bench: Bench) -> None:
    contrast(bench)
    node = bench.rent()[0]
    bench.fail(node, bench.claim(node).hold, "gpu error")
    misbehave(bench, node)
    assert bench.node(node)["state"] == "quarantined"


@probe()
def a_machine_on_trial_is_not_alone_where_another_works_and_its_own_second_node_is_no_other(bench: Bench) -> None:
    contrast(bench)
    first, second = bench.join("bad"), bench.join("twin", machine="machine-bad")
    misbehave(bench, first)
    misbehave(bench, first)
    assert {bench.node(node)["state"] for node in (first, second)} == {"on_trial"}
    bench.wait(30)
    bench.join("beside")
    misbehave(bench, second, "crashed")
    assert {bench.node(node)["state"] for node in (first, second)} == {"quarantined"}


@probe()
def a_machine_that_fails_one_job_after_the_other_pauses_in_between(bench: Bench) -> None:
    node = bench.join()
    misbehave(bench, node)
    misbehave(bench, node)
    bench.submit()
    assert "pauses after failures until " in bench.claim_nothing(node)
    bench.wait(bench.policy.rest_first_s)
    bench.succeed(node, bench.claim(node).hold)
    misbehave(bench, node)
    bench.take(node, bench.submit(seed=2))


@probe()
def a_slow_machine_hands_its_job_to_another_where_that_pays(bench: Bench) -> None:
    job, node, hold, _ = slow_one(bench)
    bench.tick()
    assert bench.beat(node, hold, 2, seconds_per_step=12.0).stop.startswith("too slow")
    bench.release(node, hold)
    assert bench.look("SELECT attempts_failed FROM job WHERE id = ?", job) == [0]
    bench.claim_nothing(node)


@probe()
def a_slow_machine_keeps_a_job_that_is_nearly_done(bench: Bench) -> None:
    _, node, hold, _ = slow_one(bench)
    bench.beat(node, hold, 90, seconds_per_step=12.0)
    bench.tick()
    assert bench.beat(node, hold, 91, seconds_per_step=12.0) == Beaten()


@probe(slow_rule="off")
def a_sound_machine_gives_way_where_another_is_expected_to_be_faster(bench: Bench) -> None:
    nodes = bench.rent(4, steps=100_000)
    holds = [bench.claim(node).hold for node in nodes]
    for number, (node, hold) in enumerate(zip(nodes, holds, strict=True)):
        bench.beat(node, hold, 10, seconds_per_step=1.0 if number else 2.0)
    bench.tick()
    assert bench.node(nodes[0])["state"] == "draining"
    assert bench.beat(nodes[0], holds[0], 11, seconds_per_step=2.0).stop.startswith("a faster machine takes over")
    assert bench.look("SELECT COUNT(*) FROM node WHERE state = 'draining'") == [1]


def gives_way_at(bench: Bench, step: int) -> bool:
    """Whether a machine of twice the usual pace gives way at a step of a job of 100,000, while as many jobs wait as there are
    nodes."""
    nodes = bench.rent(4, steps=100_000)
    for number, node in enumerate(nodes):
        bench.beat(node, bench.claim(node).hold, step, seconds_per_step=1.0 if number else 2.0)
    for _ in range(4):
        bench.submit(seed=9, steps=100_000)
    bench.tick()
    return bench.node(nodes[0])["state"] == "draining"


@probe(slow_rule="off")
def a_machine_gives_way_for_the_work_that_waits_too(bench: Bench) -> None:
    assert gives_way_at(bench, 99_990)


@probe(slow_rule="off", moves_max=0)
def a_job_that_has_moved_often_does_not_move_for_that_of_others(bench: Bench) -> None:
    assert not gives_way_at(bench, 99_990)


@probe(slow_rule="off", moves_max=0)
def but_it_moves_for_its_own_sake(bench: Bench) -> None:
    assert gives_way_at(bench, 10)


@probe()
def a_machine_that_comes_again_and_is_known_to_be_slow_is_turned_away_if_it_is_still_trusted(bench: Bench) -> None:
    nodes = bench.rent(4, steps=100_000)
    for number, node in enumerate(nodes):
        bench.advance(node, bench.claim(node).hold, seconds_per_step=1.0 if number else 2.0)
    leave_pool(bench.deployment, nodes[0], bench.now_ms)
    bench.tick()
    job = bench.look("SELECT id FROM job WHERE state = 'queued'")[0]
    for state in ("draining", "quarantined"):
        bench.tend()
        again = bench.rented()[-1]
        bench.join("rented-0", node=again)
        if state == "quarantined":
            change = {"id": again, "before": "ready", "state": state, "because": "2 strikes"}
            bench.meanwhile(
                "set_node_state", lambda change=change: bench.store.apply(write("set_node_state", **change))
            )
        said = bench.claim_nothing(again)
        assert ("is quarantined" in said) is (state == "quarantined"), (state, said)
        assert bench.node(again)["state"] == state and bench.state(job) == "queued"
        bench.provider.stop(bench.provider.instance_of(again))
        bench.tend()


# Whose turn it is


@probe()
def what_was_interrupted_goes_before_what_is_fresh_and_priority_before_age(bench: Bench) -> None:
    old, node = bench.submit(), bench.join("a")
    hold = bench.take(node, old)
    bench.wait(1)
    urgent, fresh = bench.submit(seed=1, priority=5), bench.submit(seed=2, priority=5)
    bench.release(node, hold)
    for number, job in enumerate((old, urgent, fresh)):
        bench.take(bench.join(f"n{number}"), job)


@probe()
def projects_take_turns_by_what_they_have_used(bench: Bench) -> None:
    bench.budget(None, "other")
    owner = {bench.submit(project=name, seed=seed): name for name in (PROJECT, "other") for seed in range(8)}
    node, got = bench.join(), list[str]()
    for _ in range(8):
        assignment = bench.claim(node)
        got.append(owner[assignment.job])
        bench.wait(100)
        steer.cancel(bench.deployment, assignment.job, bench.now_ms)
    assert sorted(got) == sorted([PROJECT, "other"] * 4), got


@probe()
def a_flood_of_tiny_jobs_costs_its_project_its_turn_and_is_forgotten_in_time(bench: Bench) -> None:
    bench.budget(None, "other")
    for seed in range(4):
        bench.submit(seed=seed)
    job, node = bench.submit(project="other"), bench.join()
    for expected in (False, True):
        assignment = bench.claim(node)
        assert (assignment.job == job) is expected
        steer.cancel(bench.deployment, assignment.job, bench.now_ms)
    for _ in range(10):
        steer.cancel(bench.deployment, bench.claim(node).job, bench.now_ms) if bench.look(
            "SELECT COUNT(*) FROM job WHERE state = 'queued'"
        ) != [0] else None
    bench.wait(30 * bench.policy.usage_half_life_s)
    last = bench.submit(project="other", seed=8)
    bench.take(bench.join("late"), last)
    projects.project(bench.deployment, "other")
    bench.submit(seed=9)
    theirs = bench.submit(project="other", seed=9)
    assert bench.claim(bench.join("later")).job != theirs


@probe()
def a_job_whose_base_is_there_goes_first_but_nobody_waits_long_for_that(bench: Bench) -> None:
    node = bench.join("a")
    hold = bench.take(node, bench.submit())
    bench.advance(node, hold)
    bench.succeed(node, hold)
    first, held = bench.submit(base="strange"), bench.submit(seed=1)
    hold = bench.take(node, held)
    bench.succeed(node, hold)
    bench.submit(seed=2)
    bench.wait(bench.policy.base_wait_s + 1)
    bench.take(node, first)


# The fleet


@probe()
def nodes_are_rented_for_work_and_given_back_without(bench: Bench) -> None:
    for seed in range(6):
        bench.submit(seed=seed)
    bench.tend()
    assert len(bench.rented()) == 4 == len(bench.provider.running())
    bench.tend()
    assert len(bench.rented()) == 4
    for number, node in enumerate(bench.rented()):
        bench.join(f"r{number}", node=node)
    for _ in range(2):
        for node in bench.rented():
            if bench.look("SELECT COUNT(*) FROM job WHERE state = 'queued'") != [0]:
                bench.succeed(node, bench.claim(node).hold)
    bench.wait(bench.policy.idle_s - 1)
    bench.tend()
    assert [bench.node(node)["state"] for node in bench.rented()] == ["ready"] * 4
    bench.wait(1)
    for _ in range(3):
        bench.tend()
    assert not bench.rented() and not bench.provider.running()


@probe(nodes_min=2)
def a_pool_keeps_its_minimum(bench: Bench) -> None:
    bench.tend()
    bench.tend()
    first = bench.rented()
    assert len(first) == 2
    for number, node in enumerate(first):
        bench.join(f"r{number}", node=node)
    for _ in range(10):
        bench.wait(20)
        for node in bench.rented():
            bench.claim_nothing(node)
        bench.tend()
    assert bench.rented() == first and len(bench.provider.running()) == 2


@probe()
def a_node_that_never_comes_is_given_up_and_stopped(bench: Bench) -> None:
    bench.submit()
    bench.tend()
    bench.tend()
    first = bench.rented()[0]
    bench.wait(bench.policy.starting_s + 1)
    for _ in range(3):
        bench.tend()
    assert bench.node(first)["state"] == "gone"
    assert bench.provider.instance_of(first) not in bench.provider.running()


@probe()
def what_a_provider_runs_and_nobody_asked_for_is_stopped(bench: Bench) -> None:
    stranger = bench.provider.add("nobody")
    node = bench.rent()[0]
    double = bench.provider.add(node)
    for _ in range(2):
        bench.tend()
    assert bench.provider.running() == [bench.provider.instance_of(node)]
    assert {stranger, double}.isdisjoint(bench.provider.running())


@probe()
def a_double_is_billed_too(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.provider.add(node)
    bench.wait(100)
    bench.release(node, bench.claim(node).hold)
    bench.tend()
    bench.wait(50)
    bench.provider.stop(bench.provider.instance_of(node))
    for job in bench.look("SELECT id FROM job"):
        steer.cancel(bench.deployment, job, bench.now_ms)
    bench.tend()
    assert bench.node(node)["state"] == "gone"
    assert bench.provider.invoice() == {node: PRICE * 255 // 3600}
    bench.audit.at_the_end(bench.provider.invoice(), nodes_min=0)


@probe()
def a_node_that_its_provider_took_back_is_gone_at_once(bench: Bench) -> None:
    node = bench.rent()[0]
    job = bench.claim(node).job
    bench.provider.stop(bench.provider.instance_of(node))
    bench.tend()
    assert bench.node(node)["state"] == "gone" and bench.state(job) == "queued"


@probe(node_silent_s=3600)
def a_node_that_its_provider_has_lost_is_gone_after_three_lists_unless_it_is_heard_of(bench: Bench) -> None:
    beating, lost = bench.rent(2)
    hold = bench.claim(beating).hold
    for node in (beating, lost):
        bench.provider.lose(bench.provider.instance_of(node))
    for _ in range(6):
        bench.wait(20)
        bench.beat(beating, hold)
        bench.tend()
    assert bench.node(lost)["state"] == "gone" and bench.node(beating)["state"] == "ready"


@probe()
def a_quarantined_node_is_given_back(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.store.apply(write("set_node_state", id=node, before="ready", state="quarantined", because="2 strikes"))
    for _ in range(2):
        bench.tend()
    assert bench.node(node)["state"] == "gone"


@probe()
def a_node_that_is_to_leave_is_ended_when_it_asks_for_work_and_keeps_none(bench: Bench) -> None:
    for state in ("draining", "quarantined"):
        node = bench.rent()[0]
        hold = bench.claim(node).hold
        bench.store.apply(write("set_node_state", id=node, before="ready", state=state, because="others are better"))
        bench.claim_nothing(node)
        assert bench.provider.running(), "it still has a job"
        bench.succeed(node, hold)
        bench.claim_nothing(node)
        assert not bench.provider.running()
        for _ in range(2):
            bench.tend()
        assert bench.node(node)["state"] == "gone"


@probe()
def a_node_has_ended_when_its_own_instance_has_not_when_a_double_had(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.provider.add(node)
    bench.wait(10)
    bench.tend()
    bench.wait(50)
    bench.provider.stop(bench.provider.instance_of(node))
    bench.wait(20)
    bench.tend()
    idle = bench.look("SELECT SUM(to_ms - from_ms) FROM ledger WHERE node = ? AND cause = 'idle'", node)
    assert idle == [60_000]


@probe()
def no_more_nodes_are_rented_than_budgets_pay_for(bench: Bench) -> None:
    bench.budget(2.5 * PRICE * bench.policy.reserve_s / 3600 / 1e6)
    for seed in range(4):
        bench.submit(seed=seed)
    bench.tend()
    assert len(bench.rented()) == 2


@probe(egress_usd_per_gb=1e6)
def nor_than_they_pay_the_downloads_of(bench: Bench) -> None:
    bench.budget((2 * RESERVED + 30_000) / 1e6)
    for seed in range(4):
        bench.submit(seed=seed)
    bench.tend()
    assert len(bench.rented()) == 1
    bench.budget((RESERVED + 17_000) / 1e6, "other")
    bench.submit("other")
    for _ in range(4):
        bench.tend()
    assert len(bench.rented()) == 1


CHEAP, DEAR = (
    Offer(id="cheap", gpu="L4", price_micro_usd_per_hour=PRICE // 4),
    Offer(id="dear", gpu="H200", price_micro_usd_per_hour=PRICE),
)


@probe(offers=[CHEAP, DEAR])
def a_job_is_rented_for_at_the_price_of_a_node_that_it_fits(bench: Bench) -> None:
    bench.budget(0.5 * RESERVED / 1e6)
    bench.submit(needs=Needs(gpu="H200"))
    bench.tend()
    assert not bench.rented()
    bench.submit(seed=1)
    for _ in range(3):
        bench.tend()
    assert bench.look("SELECT gpu FROM node") == ["L4"]
    bench.budget(1.5 * RESERVED / 1e6)
    bench.submit(seed=2, needs=Needs(gpu="H200"))
    for _ in range(3):
        bench.tend()
    assert bench.look("SELECT gpu FROM node ORDER BY gpu") == ["H200", "L4"]


@probe(offers=[Offer(id="wide", price_micro_usd_per_hour=8 * PRICE, slots=8)])
def and_of_the_slots_that_it_takes(bench: Bench) -> None:
    bench.budget(2 * RESERVED / 1e6)
    bench.submit()
    bench.tend()
    assert len(bench.rented()) == 1


@probe(offers=[CHEAP], nodes_max=2)
def jobs_that_fit_no_offer_hide_none_that_does(bench: Bench) -> None:
    for seed in range(6):
        bench.submit(seed=seed, needs=Needs(gpu="H200"), priority=9)
    bench.budget(2.5 * RESERVED / 4 / 1e6)
    bench.submit(seed=9)
    bench.tend()
    assert len(bench.rented()) == 1


@probe(nodes_max=2)
def what_other_pools_cover_hides_nothing_that_they_do_not(bench: Bench) -> None:
    limits = bench.deployment.pools[POOL].limits
    small = RentedPool(
        replace(limits, name="small", nodes_max=1), AtOnce(Provider(bench.world, bench.provider.offers()))
    )
    bench.deployment = replace(
        bench.deployment,
        pools={POOL: replace(bench.deployment.pools[POOL], limits=replace(limits, nodes_max=8)), "small": small},
    )
    for seed in range(20):
        bench.submit(seed=seed)
    bench.tend()
    assert bench.look("SELECT pool, COUNT(*) FROM node GROUP BY pool ORDER BY pool") == [(POOL, 8), ("small", 1)]


@probe()
def one_job_is_rented_for_in_one_pool(bench: Bench) -> None:
    limits = bench.deployment.pools[POOL].limits
    other = RentedPool(replace(limits, name="other"), AtOnce(Provider(bench.world, bench.provider.offers())))
    bench.deployment = replace(bench.deployment, pools={**bench.deployment.pools, "other": other})
    bench.submit()
    for _ in range(3):
        bench.tend()
    assert len(bench.rented()) == 1
    bench.submit(seed=1)
    bench.tend()
    assert len(bench.rented()) == 2


@probe(nodes_min=2)
def nodes_of_a_pool_are_numbered_and_no_two_have_one_name(bench: Bench) -> None:
    limits = bench.deployment.pools[POOL].limits
    other = RentedPool(replace(limits, name="other"), AtOnce(Provider(bench.world, bench.provider.offers())))
    bench.deployment = replace(bench.deployment, pools={**bench.deployment.pools, "other": other})
    bench.tend()
    names = bench.look("SELECT name FROM node WHERE rented = 1 ORDER BY name")
    assert names == sorted(f"{pool}-{number}" for pool in (POOL, "other") for number in (1, 2))
    twice = (
        "UPDATE node SET number = 1 WHERE number = 2 AND pool = 'other'"  # as of two servers that rent at one moment
    )
    assert refused(sqlite3.IntegrityError, lambda: bench.store.look(twice))


@probe()
def where_one_pool_has_no_capacity_another_rents(bench: Bench) -> None:
    limits = bench.deployment.pools[POOL].limits
    other = RentedPool(replace(limits, name="other"), AtOnce(Provider(bench.world, bench.provider.offers())))
    bench.deployment = replace(bench.deployment, pools={**bench.deployment.pools, "other": other})
    bench.provider.has_capacity = False
    bench.submit()
    for _ in range(3):
        bench.tend()
    assert bench.look("SELECT pool FROM node WHERE state <> 'gone'") == ["other"]


@probe()
def a_node_is_not_idle_any_more_once_it_has_ended(bench: Bench) -> None:
    node = bench.rent()[0]
    bench.wait(10)
    bench.provider.stop(bench.provider.instance_of(node))
    bench.wait(50)
    bench.tend()
    idle = bench.look("SELECT SUM(to_ms - from_ms) FROM ledger WHERE node = ? AND cause = 'idle'", node)
    assert idle == [10_000]


@probe()
def what_came_before_the_first_step_is_no_training_however_seldom_a_node_beats(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(60)
    bench.beat(node, hold, 20, training_s=25)
    bench.wait(10)
    bench.succeed(node, hold)
    spent = bench.look("SELECT cause, SUM(to_ms - from_ms) FROM ledger WHERE job = ? GROUP BY cause", job)
    assert dict(spent) == {"download": 35_000, "training": 35_000}


@probe()
def no_step_was_before_the_attempt(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(60)
    bench.beat(node, hold, 20, training_s=86_400)
    bench.succeed(node, hold)
    assert bench.look("SELECT DISTINCT cause FROM ledger WHERE job = ?", job) == ["training"]


@probe()
def a_job_that_the_only_node_may_not_have_gets_another_node(bench: Bench) -> None:
    node = bench.rent()[0]
    job = bench.claim(node)
    bench.fail(node, job.hold)
    bench.wait(bench.policy.retry_first_s)
    bench.tend()
    assert len(bench.rented()) == 2
    bench.take(bench.join("other", node=bench.rented()[1]), job.job)


@probe()
def after_a_start_that_came_to_nothing_there_is_a_pause(bench: Bench) -> None:
    bench.provider.has_capacity = False
    bench.submit()
    for _ in range(2):
        bench.tend()
    assert len(bench.look("SELECT id FROM node")) == 1
    bench.wait(bench.policy.start_pause_s)
    bench.tend()
    assert len(bench.look("SELECT id FROM node")) == 2


@probe()
def what_a_node_says_is_one_line_that_steers_nothing(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.commit(node, hold, 10)
    bench.reject(node, hold, bench.checkpoints(job)[0], "bits\x00\n\x1b[2J")
    bench.fail(node, hold, because="boom\x00\n\x1b[2J")
    [rejected] = bench.look("SELECT because FROM event WHERE kind = 'rejected' AND job = ?", job)
    [failed] = bench.look("SELECT because FROM event WHERE kind = 'failed' AND job = ?", job)
    assert rejected == "bits\\x00\\n\\x1b[2J"
    assert "boom\\x00\\n\\x1b[2J" in failed
