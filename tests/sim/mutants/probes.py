"""Races over the real service: what one request loads, another changes before it is written. Each is a sentence that holds."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import Any

from gangline.core.errors import BadInput, Denied, NotFound
from gangline.ports.server import Beaten, Committed, Done, Downloads, Hold, Log, Notice, Released
from gangline.ports.store import Write, guard, write
from gangline.service.access.access import create_key, ensure_secret, identify, revoke_pool_join_token, revoke_user_key
from gangline.service.access.projects import set_allowance
from gangline.service.attempts import end_overdue, end_unheeded
from gangline.service.fleet.fleet import settle
from gangline.service.fleet.health import begin_trials, judge_machine, watch_attempts
from gangline.service.fleet.nodes import gone, heed_notice, leave_pool
from gangline.service.jobs import checkpoint, query, renew, steer
from gangline.service.jobs.checkpoint import prune
from gangline.service.jobs.finish import finish
from gangline.service.jobs.placing.waiting import yield_bans
from tests.sim.mutants.bench import PRICE, PROJECT, Bench, is_stale, probe, refused

RESERVED = PRICE // 4
"""Micro-dollars for `reserve_s`, a quarter of an hour."""


# Who gets a job


@probe()
def two_nodes_that_see_the_same_job_do_not_both_get_it(bench: Bench) -> None:
    job, first, second = bench.submit(), bench.join("a"), bench.join("b")
    got: list[Any] = []
    bench.meanwhile("take_job", lambda: got.append(bench.claim(second)))
    bench.claim_nothing(first)
    assert [assignment.job for assignment in got] == [job]


@probe()
def two_requests_of_one_node_in_the_same_moment_do_not_take_more_than_its_slots(bench: Bench) -> None:
    bench.submit()
    node = bench.join()
    bench.meanwhile("take_job", lambda: bench.take(node, bench.submit(seed=1, priority=5)))
    bench.claim_nothing(node)
    assert bench.look("SELECT SUM(slots) FROM lease") == [1]


@probe()
def the_leases_of_others_take_no_slot_of_a_node(bench: Bench) -> None:
    bench.submit(), bench.submit(seed=1)
    bench.claim(bench.join("a"))
    bench.claim(bench.join("b"))


@probe()
def a_node_with_two_slots_that_gets_two_jobs_at_once_pays_each_moment_once(bench: Bench) -> None:
    first, node = bench.submit(), bench.join(slots=2)
    bench.wait(10)
    bench.meanwhile("take_job", lambda: bench.take(node, bench.submit(seed=1, priority=5)))
    bench.take(node, first)
    assert bench.ledger(node) == [("idle", bench.now_ms - 10_000, bench.now_ms, 1000)]


@probe()
def a_job_that_is_canceled_while_a_node_claims_it_is_canceled(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.meanwhile("take_job", lambda: steer.cancel(bench.deployment, job, bench.now_ms))
    bench.claim_nothing(node)
    assert bench.state(job) == "canceled"


@probe()
def a_job_that_is_claimed_while_its_owner_cancels_it_is_canceled_too(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.meanwhile("set_job_state", lambda: bench.claim(node))
    assert steer.cancel(bench.deployment, job, bench.now_ms)
    assert bench.state(job) == "canceled"


@probe()
def a_heartbeat_in_the_moment_of_the_end_is_the_last_that_is_known(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.beat(node, hold, step=3)
    bench.wait(10)
    bench.meanwhile("end_attempt", lambda: bench.beat(node, hold, step=4))
    steer.cancel(bench.deployment, job, bench.now_ms)
    assert bench.look("SELECT step, beat_ms FROM attempt") == [(4, bench.now_ms)]


@probe()
def what_is_reserved_in_the_moment_of_the_end_is_given_back_too(bench: Bench) -> None:
    """A download reserves first and is counted then: the end may come in between."""
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    more = guard("extend_reservation", attempt=hold.attempt, seen=RESERVED, micro_usd=7)
    bench.meanwhile("end_attempt", lambda: bench.store.apply(more, guard("reserve", id=PROJECT, micro_usd=7)))
    steer.cancel(bench.deployment, job, bench.now_ms)
    assert bench.look("SELECT reserved FROM project WHERE id = ?", PROJECT) == [0]


@probe()
def a_node_that_drains_while_it_claims_gets_nothing(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.meanwhile("take_job", lambda: bench.store.apply(write("drain_idle", id=node, because="no work for it")))
    bench.claim_nothing(node)
    assert bench.state(job) == "queued"


@probe()
def two_claims_at_once_do_not_spend_the_same_money(bench: Bench) -> None:
    bench.submit()
    first, second = bench.join("a"), bench.join("b")
    bench.budget(1.5 * RESERVED / 1e6)
    bench.meanwhile("take_job", lambda: bench.take(second, bench.submit(seed=1, priority=5)))
    bench.claim_nothing(first)
    assert bench.look("SELECT reserved FROM project") == [RESERVED]


@probe()
def two_submits_of_one_request_make_one_job(bench: Bench) -> None:
    made: list[str] = []
    bench.meanwhile("add_job", lambda: made.append(bench.submit(request="r")))
    made.append(bench.submit(request="r"))
    made.append(bench.submit(request="r"))
    assert len(set(made)) == 1 and len(bench.look("SELECT id FROM job")) == 1
    assert bench.events(made[0]) == ["submitted"]
    assert refused(BadInput, lambda: bench.submit(request="r", seed=5))


# The lease


@probe()
def what_the_schema_refuses_cannot_be_written(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    columns = ", ".join(bench.look("SELECT name FROM pragma_table_info('attempt') WHERE name NOT IN ('id', 'fencing')"))
    copy = f"INSERT INTO attempt (id, fencing, {columns}) SELECT ?, ?, {columns} FROM attempt WHERE id = ?"
    assert refused(sqlite3.IntegrityError, lambda: bench.store.look(copy, "second live attempt", 2, hold.attempt))
    bench.release(node, hold)
    assert refused(
        sqlite3.IntegrityError, lambda: bench.store.look(copy, "second attempt of this number", 1, hold.attempt)
    )


@probe()
def a_lease_opens_to_its_holder_alone(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    beat = {
        "expires_ms": 0,
        "now": 0,
        "phase": "training",
        "step": 1,
        "loss": 1,
        "seconds_per_step": 1,
        "memory_bytes": None,
        "training_ms": 1,
    }
    whose, heard = (
        {"attempt": hold.attempt, "rank": 0, "node": node, "fencing": hold.fencing},
        {"now": 0, "step": 0, "loss": None},
    )
    for other in ({"node": "node-x"}, {"fencing": hold.fencing + 1}, {"fencing": hold.fencing - 1}, {"rank": 1}):
        assert not bench.store.apply(guard("hold_lease", **(whose | heard | other)))
        assert not bench.store.apply(guard("count_download", bytes=1, seen=0, **(whose | other)))
        assert not bench.store.change("renew_lease", **(whose | beat | other))
    assert bench.store.apply(guard("hold_lease", **whose, **heard))


@probe()
def a_request_about_anothers_lease_is_stale(bench: Bench) -> None:
    job, node, other = bench.submit(), bench.join("a"), bench.join("b")
    hold = bench.take(node, job)
    stale = Hold(attempt=hold.attempt, fencing=hold.fencing + 1)
    assert is_stale(bench.beat(other, hold)) and is_stale(bench.beat(node, stale))
    assert is_stale(bench.fail(other, hold)) and is_stale(bench.fail(node, stale))
    assert is_stale(bench.commit(other, hold, 5, upload=False)) and is_stale(bench.commit(node, stale, 5, upload=False))
    assert bench.state(job) == "running"


@probe()
def a_lease_that_is_renewed_while_it_is_taken_away_stays(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(bench.policy.lease_s + 1)
    bench.meanwhile("seize_overdue_lease", lambda: bench.beat(node, hold))
    end_overdue(bench.deployment, bench.now_ms)
    assert bench.state(job) == "running"
    assert bench.beat(node, hold) == Beaten()


@probe()
def a_lease_that_is_taken_away_while_it_is_renewed_is_gone(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(bench.policy.lease_s + 1)
    bench.meanwhile("renew_lease", lambda: end_overdue(bench.deployment, bench.now_ms))
    assert is_stale(bench.beat(node, hold))
    assert bench.state(job) == "queued"


def canceled_meanwhile(bench: Bench, statement: str) -> tuple[str, str, Hold]:
    """A job whose owner cancels it just before its node's next write of `statement`; its node and lease."""
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(10)
    bench.meanwhile(statement, lambda: steer.cancel(bench.deployment, job, bench.now_ms))
    return job, node, hold


@probe()
def a_job_that_is_canceled_while_it_finishes_is_canceled(bench: Bench) -> None:
    job, node, hold = canceled_meanwhile(bench, "end_attempt")
    assert is_stale(bench.succeed(node, hold))
    assert bench.state(job) == "canceled" and not bench.look("SELECT path FROM artifact")


@probe()
def a_job_that_finishes_while_it_is_canceled_has_finished(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(10)
    bench.meanwhile("end_attempt", lambda: bench.succeed(node, hold))
    assert not steer.cancel(bench.deployment, job, bench.now_ms)
    assert bench.state(job) == "succeeded"


@probe()
def nothing_is_committed_after_the_lease_is_lost(bench: Bench) -> None:
    job, node, hold = canceled_meanwhile(bench, "add_checkpoint")
    assert is_stale(bench.commit(node, hold, 10))
    assert not bench.checkpoints(job) and bench.events(job)[-1] == "canceled"


@probe()
def nothing_is_rejected_after_the_lease_is_lost(bench: Bench) -> None:
    job, node, hold = canceled_meanwhile(bench, "reject_checkpoint")
    bench.commit(node, hold, 10)
    assert is_stale(bench.reject(node, hold, bench.checkpoints(job)[0]))
    assert len(bench.checkpoints(job)) == 1 and bench.events(job)[-1] == "canceled"


@probe()
def nothing_is_logged_after_the_lease_is_lost(bench: Bench) -> None:
    _, node, hold = canceled_meanwhile(bench, "add_log_chunk")
    assert is_stale(renew.append_log(bench.deployment, node, hold, Log(first_byte=0, text="late"), bench.now_ms))
    assert not bench.look("SELECT key FROM log_chunk")


@probe()
def the_same_line_logged_twice_is_kept_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for _ in range(2):
        assert renew.append_log(bench.deployment, node, hold, Log(first_byte=0, text="step 1"), bench.now_ms) == Done()
    assert query.log_page(bench.deployment, PROJECT, job, None).text == "step 1"


@probe()
def a_lost_chunk_of_a_log_is_passed_over(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for first_byte, text in ((0, "step 1\n"), (7, "step 2\n")):
        assert (
            renew.append_log(bench.deployment, node, hold, Log(first_byte=first_byte, text=text), bench.now_ms)
            == Done()
        )
    del bench.objects.objects[bench.look("SELECT key FROM log_chunk ORDER BY first_byte")[0]]
    assert query.log_page(bench.deployment, PROJECT, job, None).text == "[7 bytes of this log are lost]\nstep 2\n"


@probe()
def the_same_end_told_twice_is_one_end(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    result = bench.result(node, hold)
    bench.meanwhile("end_attempt", lambda: finish(bench.deployment, node, hold, result, bench.now_ms))
    assert finish(bench.deployment, node, hold, result, bench.now_ms) == Done(), "the end was recorded meanwhile"
    assert finish(bench.deployment, node, hold, result, bench.now_ms) == Done()
    assert bench.state(job) == "succeeded" and bench.events(job).count("succeeded") == 1


# Checkpoints


@probe()
def the_same_commit_twice_is_one_checkpoint(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("add_checkpoint", lambda: bench.commit(node, hold, 10))
    assert bench.commit(node, hold, 10) == Committed()
    assert bench.commit(node, hold, 10) == Committed()
    assert bench.events(job).count("committed") == 1


@probe()
def a_checkpoint_is_rejected_once_and_the_attempt_goes_on_from_the_one_before(bench: Bench) -> None:
    job, node, other = bench.submit(), bench.join("a"), bench.join("b")
    hold = bench.take(node, job)
    bench.commit(node, hold, 10), bench.commit(node, hold, 20)
    elsewhere = bench.submit(seed=1)
    strange = bench.take(other, elsewhere)
    bench.commit(other, strange, 90)
    bench.release(node, hold)
    hold = bench.take(node, job)
    bench.meanwhile("reject_checkpoint", lambda: bench.reject(node, hold, bench.checkpoints(job)[-1]))
    assert bench.reject(node, hold, bench.checkpoints(job)[-1]) == Done()
    assert bench.events(job).count("rejected") == 1
    assert bench.look("SELECT from_step FROM attempt WHERE id = ?", hold.attempt) == [10]
    assert bench.look("SELECT step FROM checkpoint WHERE state = 'rejected'") == [20]
    bench.reject(node, hold, bench.checkpoints(elsewhere)[0])
    assert bench.look("SELECT step FROM checkpoint WHERE state = 'rejected'") == [20]


@probe(storage_usd_per_gb_month=1e6)
def a_checkpoint_is_pruned_and_paid_for_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20):
        bench.commit(node, hold, step)
    bench.wait(10)
    bench.meanwhile("prune_checkpoint", lambda: prune(bench.deployment, job, bench.now_ms))
    bench.commit(node, hold, 30)
    assert len(bench.checkpoints(job, "pruned")) == 1
    assert bench.look("SELECT COUNT(*) FROM ledger WHERE cause = 'storage'") == [1]


@probe(storage_usd_per_gb_month=1e6)
def a_checkpoint_that_is_rejected_while_it_is_pruned_is_rejected(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for step in (10, 20):
        bench.commit(node, hold, step)
    oldest = bench.checkpoints(job)[0]
    bench.wait(10)
    bench.meanwhile("prune_checkpoint", lambda: bench.reject(node, hold, oldest))
    bench.commit(node, hold, 30)
    assert bench.checkpoints(job, "rejected") == [oldest] and not bench.checkpoints(job, "pruned")
    assert bench.look("SELECT COUNT(*) FROM ledger WHERE cause = 'storage'") == [0]


@probe()
def two_jobs_of_one_base_teach_a_node_it_once(bench: Bench) -> None:
    node = bench.join(slots=2)
    for seed in range(2):
        bench.submit(seed=seed)
        bench.advance(node, bench.claim(node).hold)
    assert len(bench.look("SELECT base FROM node_base")) == 1


@probe()
def a_job_that_must_stay_exact_goes_on_with_the_numerics_of_its_first_checkpoint(bench: Bench) -> None:
    job, node = bench.submit(exact="required"), bench.join("a", gpu="T4")
    free = bench.submit(seed=1)
    hold = bench.take(node, job)
    bench.advance(node, hold)
    bench.release(node, hold)
    other = bench.join("b", gpu="A10")
    hold = bench.take(other, free)
    bench.advance(other, hold)
    bench.release(other, hold)
    bench.take(bench.join("c", gpu="T4"), job)
    bench.take(node, free)


# Stops


@probe()
def a_job_that_is_paused_while_it_is_handed_back_is_paused(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("ask_to_pause", lambda: bench.release(node, hold))
    assert steer.pause(bench.deployment, job, bench.now_ms)
    assert bench.state(job) == "paused"


@probe()
def a_job_that_is_handed_back_while_it_is_paused_is_paused(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("end_attempt", lambda: steer.pause(bench.deployment, job, bench.now_ms))
    bench.release(node, hold)
    assert bench.state(job) == "paused"


@probe()
def a_job_that_is_resumed_while_it_is_handed_back_waits_again(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    steer.pause(bench.deployment, job, bench.now_ms)
    bench.meanwhile("end_attempt", lambda: steer.resume(bench.deployment, job, bench.now_ms))
    bench.release(node, hold)
    assert bench.state(job) == "queued"


@probe()
def a_job_that_finishes_while_it_is_paused_has_finished(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("ask_to_pause", lambda: bench.succeed(node, hold))
    assert refused(BadInput, lambda: steer.pause(bench.deployment, job, bench.now_ms))
    assert bench.state(job) == "succeeded"


@probe()
def a_job_that_is_handed_back_while_it_is_resumed_waits_again(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    steer.pause(bench.deployment, job, bench.now_ms)
    bench.meanwhile("unpause_lease", lambda: bench.release(node, hold))
    assert steer.resume(bench.deployment, job, bench.now_ms)
    assert bench.state(job) == "queued"


@probe()
def to_pause_and_resume_twice_is_to_do_it_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("ask_to_pause", lambda: steer.pause(bench.deployment, job, bench.now_ms))
    steer.pause(bench.deployment, job, bench.now_ms)
    assert bench.beat(node, hold).stop == "paused by its owner"
    bench.meanwhile("unpause_lease", lambda: steer.resume(bench.deployment, job, bench.now_ms))
    steer.resume(bench.deployment, job, bench.now_ms)
    bench.release(node, hold)
    assert bench.state(job) == "queued"
    steer.pause(bench.deployment, job, bench.now_ms)
    bench.meanwhile("set_job_state", lambda: steer.resume(bench.deployment, job, bench.now_ms))
    steer.resume(bench.deployment, job, bench.now_ms)
    assert bench.state(job) == "queued" and bench.events(job).count("queued") == 1


@probe()
def a_stop_keeps_its_first_reason_and_its_grace(bench: Bench) -> None:
    job, node, hold, lease = slow_one(bench)
    bench.wait(30)
    bench.beat(node, hold, 2, seconds_per_step=12.0)
    bench.meanwhile("ask_to_stop", lambda: watch_attempts(bench.deployment, bench.now_ms))
    watch_attempts(bench.deployment, bench.now_ms)
    assert bench.events(job).count("asked to stop") == 1
    first = lease("stop"), lease("stop_ms")
    bench.budget(0)
    bench.wait(10)
    bench.store.apply(write("ask_to_stop", attempt=hold.attempt, kind="", because="another reason", now=bench.now_ms))
    assert (lease("stop"), lease("stop_ms")) == first


def slow_one(bench: Bench) -> tuple[str, str, Hold, Callable[[str], Any]]:
    """A job on a machine that is twelve times slower than four others; its node, its lease, a look at that."""
    for number in range(4):
        node = bench.join(f"fast-{number}")
        bench.submit(seed=number)
        bench.advance(node, bench.claim(node).hold)
    job, node = bench.submit(seed=9), bench.join("slow")
    hold = bench.take(node, job)
    bench.beat(node, hold, 1, seconds_per_step=12.0)
    return job, node, hold, lambda column: bench.look(f"SELECT {column} FROM lease WHERE attempt = ?", hold.attempt)[0]


@probe()
def who_hands_its_job_back_just_before_the_grace_ends_is_not_ended_twice(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    steer.pause(bench.deployment, job, bench.now_ms)
    for _ in range(13):
        bench.wait(10)
        bench.beat(node, hold)
    bench.meanwhile("end_attempt", lambda: bench.release(node, hold))
    end_unheeded(bench.deployment, bench.now_ms)
    assert bench.events(job)[-1] == "released" and bench.events(job).count("released") == 1
    assert bench.look("SELECT spent FROM project") == [PRICE * 130 // 3600]


@probe()
def a_job_that_is_handed_back_just_before_it_is_given_up_is_not_ended_twice(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.keep_beating(node, hold, bench.policy.stall_s, step=lambda _: 1)
    bench.wait(20)
    bench.meanwhile("end_attempt", lambda: bench.release(node, hold))
    watch_attempts(bench.deployment, bench.now_ms)
    assert bench.events(job)[-1] == "released"


# Money


def about_to_reserve_more(bench: Bench) -> tuple[str, str, Hold]:
    """A job, its node and the hold, whose next heartbeat extends what is reserved."""
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.keep_beating(node, hold, bench.policy.reserve_s - bench.policy.stop_margin_s - 10)
    assert bench.look("SELECT reserved FROM lease") == [RESERVED]
    bench.wait(10)
    return job, node, hold


@probe()
def two_heartbeats_at_once_reserve_once(bench: Bench) -> None:
    bench.budget(1)
    _, node, hold = about_to_reserve_more(bench)
    bench.meanwhile("extend_reservation", lambda: bench.beat(node, hold, 99))
    assert bench.beat(node, hold, 99) == Beaten()
    assert bench.look("SELECT reserved FROM lease") == [2 * RESERVED]


@probe()
def a_heartbeat_reserves_no_more_than_the_budget(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.budget(1.5 * RESERVED / 1e6)
    hold = bench.take(node, job)
    answer = bench.keep_beating(node, hold, 1.5 * bench.policy.reserve_s - bench.policy.stop_margin_s - 20)
    assert not answer.stop, "there is some left"
    answer = bench.keep_beating(node, hold, 20)
    assert answer.stop.startswith("stopped: the budget of default, $0.14, does not allow it")
    [reserved] = bench.look("SELECT reserved FROM project")
    assert 1.48 * RESERVED < reserved <= 1.5 * RESERVED
    assert bench.beat(node, hold, 99).stop == answer.stop
    assert bench.events(job).count("over budget") == 1


@probe()
def of_two_heartbeats_at_once_that_the_budget_stops_one_is_an_event(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.budget(1.5 * RESERVED / 1e6)
    hold = bench.take(node, job)
    bench.keep_beating(node, hold, 1.5 * bench.policy.reserve_s - bench.policy.stop_margin_s - 20)
    bench.meanwhile("ask_to_stop", lambda: bench.beat(node, hold, 99))
    assert bench.keep_beating(node, hold, 20).stop.startswith("stopped: the budget")
    assert bench.events(job).count("over budget") == 1


@probe()
def a_heartbeat_and_a_claim_at_once_do_not_spend_the_same_money(bench: Bench) -> None:
    bench.budget(2.5 * RESERVED / 1e6)
    _, node, hold = about_to_reserve_more(bench)
    other, fresh = bench.join("b"), bench.submit(seed=1)
    bench.meanwhile("extend_reservation", lambda: bench.take(other, fresh))
    assert bench.beat(node, hold, 99) == Beaten()
    [reserved] = bench.look("SELECT reserved FROM project")
    assert 2 * RESERVED < reserved <= 2.5 * RESERVED


@probe()
def what_ends_while_more_is_reserved_for_it_reserves_nothing(bench: Bench) -> None:
    _, node, hold = about_to_reserve_more(bench)
    bench.meanwhile("extend_reservation", lambda: bench.release(node, hold))
    assert bench.beat(node, hold, 99) == Beaten()
    assert bench.look("SELECT reserved FROM project") == [0] and is_stale(bench.beat(node, hold, 99))


@probe(egress_usd_per_gb=1e6)
def a_heartbeat_that_reserves_pays_for_no_download_of_the_same_moment(bench: Bench) -> None:
    bench.submit()
    node = bench.join()
    assignment = bench.claim(node)
    hold = assignment.hold
    asked = Downloads(keys=tuple(stored.key for stored in assignment.inputs) * 9)
    bench.keep_beating(node, hold, bench.policy.reserve_s - 20)
    bench.wait(20)
    bench.budget(0.28)
    bench.meanwhile("reserve", lambda: bench.beat(node, hold, 99))
    assert not is_stale(checkpoint.sign_downloads(bench.deployment, node, hold, asked, bench.now_ms))
    [reserved] = bench.look("SELECT reserved FROM lease WHERE downloaded_bytes = 9 * 18")
    assert 9 * 18_000 + bench.policy.reserve_s * 100 < reserved <= 280_000


@probe()
def what_is_reserved_while_an_attempt_ends_is_given_back(bench: Bench) -> None:
    job, node, hold = about_to_reserve_more(bench)
    bench.meanwhile("drop_lease", lambda: bench.beat(node, hold, 99))
    bench.release(node, hold)
    assert bench.look("SELECT reserved FROM project") == [0]
    hold = bench.take(node, job)
    bench.wait(bench.policy.reserve_s)
    bench.meanwhile("seize_overdue_lease", lambda: bench.store.apply(*_extended(hold)))
    bench.tick()
    bench.tick()
    assert bench.state(job) == "queued" and bench.look("SELECT reserved FROM project") == [0]


def _extended(hold: Hold) -> tuple[Write, ...]:
    """By a heartbeat whose renewal comes too late."""
    more = {"micro_usd": 1}
    return (
        guard("reserve", id=PROJECT, **more),
        guard("extend_reservation", attempt=hold.attempt, seen=RESERVED, **more),
    )


@probe(egress_usd_per_gb=5e6)
def two_downloads_at_once_are_both_paid_for(bench: Bench) -> None:
    bench.submit()
    node = bench.join()
    assignment = bench.claim(node)
    bench.budget(1)
    keys = tuple(stored.key for stored in assignment.inputs)
    ask = partial(
        checkpoint.sign_downloads, bench.deployment, node, assignment.hold, Downloads(keys=keys), bench.now_ms
    )
    bench.meanwhile("count_download", ask)
    ask()
    assert bench.look("SELECT reserved, downloaded_bytes FROM lease") == [(2 * RESERVED + 90_000, 36)]


@probe(egress_usd_per_gb=1e6)
def what_is_downloaded_while_an_attempt_ends_is_billed(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()

    def download(hold: Hold, *keys: str) -> None:
        checkpoint.sign_downloads(bench.deployment, node, hold, Downloads(keys=keys), bench.now_ms)

    assignment = bench.claim(node)
    keys = [stored.key for stored in assignment.inputs]
    bench.meanwhile("drop_lease", lambda: download(assignment.hold, *keys))
    bench.release(node, assignment.hold)
    again = bench.take(node, job)
    bench.wait(bench.policy.lease_s + 1)
    bench.meanwhile("seize_overdue_lease", lambda: download(again, keys[0]))
    bench.tick()
    bench.tick()
    assert bench.state(job) == "queued"
    assert [line[3] for line in bench.ledger(node) if line[0] == "egress"] == [18_000, 9_000]


# Machines


def contrast(bench: Bench, gpu: str = "") -> None:
    """The workload goes well on another machine."""
    node = bench.join("good", gpu=gpu)
    job = bench.submit(seed=50)
    hold = bench.take(node, job)
    bench.advance(node, hold)
    bench.succeed(node, hold)
    leave_pool(bench.deployment, node, bench.now_ms)


def misbehave(bench: Bench, node: str, kind: str = "gpu error", project: str = PROJECT, **settings: Any) -> str:
    job = bench.submit(project, **({"seed": 60} | settings))
    bench.fail(node, bench.take(node, job), kind)
    steer.cancel(bench.deployment, job, bench.now_ms)
    return job


@probe()
def a_machine_that_is_judged_twice_at_once_is_quarantined_once(bench: Bench) -> None:
    contrast(bench)
    bench.join("beside")
    node = bench.join("bad")
    misbehave(bench, node)
    judge = lambda: judge_machine(bench.deployment, "machine-bad", "default", bench.now_ms)  # noqa: E731
    bench.meanwhile("quarantine_machine", judge)
    misbehave(bench, node)
    assert bench.node(node)["state"] == "quarantined"
    assert bench.look("SELECT quarantines FROM machine WHERE id = 'machine-bad'") == [1]


@probe()
def a_last_machine_that_is_judged_twice_at_once_goes_on_trial_once(bench: Bench) -> None:
    """The second verdict comes when it has proved itself already."""
    contrast(bench)
    node = bench.join("bad")
    misbehave(bench, node)

    def proves_itself() -> None:
        judge_machine(bench.deployment, "machine-bad", "default", bench.now_ms)
        assert bench.node(node)["state"] == "on_trial"
        bench.wait(30)
        bench.succeed(node, bench.take(node, bench.submit(seed=7, priority=5)))

    bench.meanwhile("try_machine", proves_itself)
    misbehave(bench, node)
    assert bench.node(node)["state"] == "ready"
    assert bench.look("SELECT on_trial, rest_until_ms FROM machine WHERE id = 'machine-bad'") == [(0, 0)]


@probe()
def two_claims_at_once_of_a_node_on_trial_get_one_job(bench: Bench) -> None:
    contrast(bench)
    node = bench.join("bad", slots=2)
    misbehave(bench, node)
    misbehave(bench, node)
    bench.wait(30)
    bench.take(bench.join("other"), bench.submit(seed=6))
    before = bench.submit(seed=7)
    bench.release(node, bench.take(node, before))  # its bill is written up to this moment
    steer.cancel(bench.deployment, before, bench.now_ms)
    bench.submit(seed=8)
    bench.meanwhile("take_job", lambda: bench.take(node, bench.submit(seed=9, priority=5)))
    assert bench.claim_nothing(node) == "bad is on trial: it gets one job at a time"
    assert bench.look("SELECT SUM(slots) FROM lease WHERE node = ?", node) == [1]


@probe()
def a_verdict_that_was_held_up_until_the_machine_was_trusted_again_changes_nothing(bench: Bench) -> None:
    contrast(bench)
    bench.join("beside")
    node = bench.join("bad")
    misbehave(bench, node)

    def serves_its_time() -> None:
        judge_machine(bench.deployment, "machine-bad", "default", bench.now_ms)
        bench.world.now_ms += round(bench.policy.quarantine_s * 1000)
        begin_trials(bench.deployment, bench.now_ms)
        bench.succeed(node, bench.take(node, bench.submit(seed=7, priority=5)))

    bench.meanwhile("quarantine_machine", serves_its_time)
    misbehave(bench, node)
    assert bench.node(node)["state"] == "ready"


@probe()
def a_success_of_a_draining_node_does_not_bring_it_back(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.store.apply(write("set_node_state", id=node, before="ready", state="draining", because="gives way"))
    bench.succeed(node, hold)
    assert bench.node(node)["state"] == "draining"


@probe()
def a_machine_that_was_right_about_a_bad_job_keeps_its_other_strikes(bench: Bench) -> None:
    bad, other = bench.submit(), bench.submit(seed=1)
    first, second = bench.join("a"), bench.join("b")
    for job, node, kind in ((bad, first, "gpu error"), (other, second, "diverged")):
        bench.fail(node, bench.take(node, job), kind)
    steer.cancel(bench.deployment, other, bench.now_ms)
    bench.wait(30)
    for node in (second, bench.join("c")):
        bench.fail(node, bench.take(node, bad), "diverged")
    assert bench.state(bad) == "failed"
    assert sorted(bench.look("SELECT job, kind FROM strike")) == sorted([(bad, "gpu error"), (other, "diverged")])


@probe()
def a_machine_is_known_by_its_name_however_often_it_joins(bench: Bench) -> None:
    bench.join("a", machine="m"), bench.join("b", machine="m")
    assert bench.look("SELECT COUNT(*) FROM machine") == [1]


@probe()
def bans_are_not_lifted_from_a_job_that_is_claimed_meanwhile(bench: Bench) -> None:
    job, node = bench.submit(), bench.join("a")
    bench.fail(node, bench.take(node, job))
    bench.wait(bench.policy.ban_yields_s + 20)
    bench.meanwhile("lift_bans", lambda: bench.take(bench.join("b"), job))
    yield_bans(bench.deployment, bench.now_ms)
    assert bench.look("SELECT COUNT(*) FROM ban") == [1]
    assert "bans lifted" not in bench.events(job)


# Nodes come and go


@probe()
def a_node_that_was_given_up_does_not_come_back(bench: Bench) -> None:
    bench.submit()
    bench.tend()
    node = bench.rented()[0]
    gone(bench.deployment, node, "has not joined", bench.now_ms)
    assert refused(Denied, lambda: bench.join("late", node=node))
    assert bench.node(node)["state"] == "gone"


@probe()
def a_worker_that_joins_twice_is_one_node_and_keeps_its_state(bench: Bench) -> None:
    bench.submit()
    bench.tend()
    node = bench.rented()[0]
    bench.meanwhile("node_joined", lambda: bench.join("w", node=node))
    bench.join("w", node=node)
    bench.store.apply(write("drain_idle", id=node, because="no work for it"))
    bench.wait(5)
    bench.join("w", node=node)
    assert bench.node(node)["state"] == "draining"
    assert bench.node(node)["joined_ms"] == bench.now_ms - 5000


@probe()
def a_node_that_is_given_up_by_two_at_once_keeps_its_first_reason_and_is_billed_once(bench: Bench) -> None:
    bench.submit()
    bench.tend()
    bench.tend()
    starting, node = bench.rented()[0], bench.join("a")
    bench.wait(10)
    for one in (starting, node):
        bench.meanwhile("node_gone", lambda one=one: gone(bench.deployment, one, "the first", bench.now_ms))
        gone(bench.deployment, one, "the second", bench.now_ms)
        assert bench.node(one)["because"] == "the first"
    assert bench.ledger(node) == [("idle", bench.now_ms - 10_000, bench.now_ms, 1000)]
    new = bench.join("b")  # in whose bill nothing changes
    bench.meanwhile("node_gone", lambda: gone(bench.deployment, new, "the first", bench.now_ms))
    gone(bench.deployment, new, "the second", bench.now_ms)
    assert bench.node(new)["because"] == "the first"


@probe()
def a_node_that_claims_while_it_is_given_up_loses_the_job_at_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.meanwhile("node_gone", lambda: bench.take(node, job))
    gone(bench.deployment, node, "no word", bench.now_ms)
    assert bench.node(node)["state"] == "gone"
    assert bench.state(job) == "queued" and not bench.look("SELECT node FROM lease")


@probe()
def a_rented_node_that_joins_and_claims_while_it_is_given_up_is_billed_as_its_provider_says(bench: Bench) -> None:
    job = bench.submit()
    bench.tend()
    bench.tend()
    node = bench.rented()[0]
    bench.wait(bench.policy.starting_s + 1)

    def comes_after_all() -> None:
        bench.take(bench.join("late", node=node), job)

    bench.meanwhile("node_gone", comes_after_all)
    gone(bench.deployment, node, "has not joined", bench.now_ms)
    bench.provider.stop(bench.provider.instance_of(node))
    bench.wait(bench.policy.lease_s + 1)
    bench.tend()
    bench.tick()
    steer.cancel(bench.deployment, job, bench.now_ms)
    bench.tend()
    bench.audit.at_the_end(bench.provider.invoice(), nodes_min=4)


@probe()
def a_node_that_leaves_twice_at_once_leaves_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    bench.take(node, job)
    bench.wait(5)
    bench.meanwhile("end_attempt", lambda: leave_pool(bench.deployment, node, bench.now_ms))
    leave_pool(bench.deployment, node, bench.now_ms)
    assert bench.events(job).count("released") == 1
    assert bench.look("SELECT spent FROM project") == [500]


@probe()
def the_last_word_of_a_node_is_never_an_older_one(bench: Bench) -> None:
    job, node = bench.submit(), bench.join(slots=2)
    bench.take(node, job)
    bench.wait(40)
    bench.claim_nothing(node)
    bench.wait(6)
    end_overdue(bench.deployment, bench.now_ms)
    assert bench.state(job) == "queued" and bench.node(node)["seen_ms"] == bench.now_ms - 6000
    hold = bench.take(node, job)
    bench.wait(10)
    bench.beat(node, hold)
    steer.cancel(bench.deployment, job, bench.now_ms)
    assert bench.node(node)["seen_ms"] == bench.now_ms


@probe()
def tokens_are_made_known_at_every_start(bench: Bench) -> None:
    ensure_secret(bench.deployment, "operator's", "operator", now_ms=bench.now_ms)
    assert identify(bench.deployment, "operator's", "viewer", bench.now_ms).role == "operator"


@probe()
def an_admin_revokes_keys_of_its_own_project_an_operator_keys_alone_and_nobody_what_is_not_there(bench: Bench) -> None:
    made = partial(create_key, bench.deployment, "operator", role="member", name="a", lasts_s=None, now_ms=bench.now_ms)
    mine, anothers = made("mine"), made("another's")
    assert refused(NotFound, lambda: revoke_user_key(bench.deployment, "mine", anothers.key.id, bench.now_ms))
    bench.join()
    [workers] = bench.look("SELECT id FROM credential WHERE role = 'node'")
    assert refused(NotFound, lambda: revoke_user_key(bench.deployment, None, workers, bench.now_ms))
    assert refused(NotFound, lambda: revoke_pool_join_token(bench.deployment, mine.key.id, bench.now_ms))
    assert refused(NotFound, lambda: set_allowance(bench.deployment, "nobody's", share=1, budget_usd=None))
    revoke_user_key(bench.deployment, "mine", mine.key.id, bench.now_ms)
    assert bench.look("SELECT id FROM credential WHERE revoked_ms IS NOT NULL") == [mine.key.id]


# The fleet


@probe()
def a_node_that_goes_while_it_is_to_drain_stays_gone(bench: Bench) -> None:
    node = idle_rented(bench)
    bench.meanwhile("drain_idle", lambda: gone(bench.deployment, node, "taken back", bench.now_ms))
    bench.tend()
    assert bench.node(node)["state"] == "gone"


@probe()
def a_node_that_claims_while_it_is_to_drain_works_on(bench: Bench) -> None:
    node = idle_rented(bench)
    job = bench.submit(seed=7)
    steer.pause(bench.deployment, job, bench.now_ms)

    def claims() -> None:
        steer.resume(bench.deployment, job, bench.now_ms)
        bench.take(node, job)

    bench.meanwhile("drain_idle", claims)
    bench.tend()
    assert bench.node(node)["state"] == "ready"
    assert bench.provider.instance_of(node) in bench.provider.running()


def idle_rented(bench: Bench) -> str:
    """A node that was rented for a job, and has long had nothing to do."""
    node = bench.rent()[0]
    hold = bench.claim(node).hold
    bench.beat(node, hold)
    bench.wait(10)
    bench.succeed(node, hold)
    bench.wait(bench.policy.idle_s + 1)
    return node


@probe()
def a_node_under_notice_gets_nothing_more_is_replaced_at_once_and_nobody_is_blamed(bench: Bench) -> None:
    first, second = bench.rent(2)
    hold, kept = bench.claim(first).hold, bench.claim(second).hold
    bench.beat(first, hold)
    heed_notice(bench.deployment, first, Notice(because="Amazon will terminate this machine"), bench.now_ms)
    assert (bench.node(first)["state"], bench.node(first)["because"]) == (
        "draining",
        "Amazon will terminate this machine",
    )
    assert bench.node(second)["state"] == "ready", "the notice is of one machine"
    finish(bench.deployment, first, hold, Released(), bench.now_ms)
    assert "is draining: Amazon will terminate" in bench.claim_nothing(first)
    leave_pool(bench.deployment, first, bench.now_ms)
    assert bench.look("SELECT because FROM node WHERE state = 'gone'") == ["Amazon will terminate this machine"]
    bench.beat(second, kept)
    bench.tend()
    assert len(bench.rented()) == 2 and first not in bench.rented()
    assert bench.look("SELECT COUNT(*) FROM strike") == [0]


@probe()
def a_notice_that_comes_late_brings_no_node_back(bench: Bench) -> None:
    node = bench.join()
    gone(bench.deployment, node, "taken back", bench.now_ms)
    heed_notice(bench.deployment, node, Notice(because="Amazon will terminate this machine"), bench.now_ms)
    assert (bench.node(node)["state"], bench.node(node)["because"]) == ("gone", "taken back")


@probe()
def an_idle_node_drains_while_another_works(bench: Bench) -> None:
    first, second = bench.rent(2)
    busy = bench.claim(first).hold
    bench.succeed(second, bench.claim(second).hold)
    for _ in range(7):
        bench.wait(10)
        bench.beat(first, busy)
    bench.tend()
    assert bench.node(second)["state"] == "draining"
    assert bench.node(first)["state"] == "ready"
    bench.tend()
    assert bench.node(second)["state"] == "gone"


@probe()
def of_two_instances_of_a_node_the_first_that_was_adopted_stays(bench: Bench) -> None:
    bench.submit()
    bench.tend()
    node = bench.rented()[0]
    first = bench.provider.instance_of(node)

    def sees_another() -> None:
        bench.store.apply(write("adopt", id=node, instance=first))
        bench.provider.add(node)

    bench.meanwhile("adopt", sees_another)
    bench.tend()
    bench.store.apply(write("adopt", id=node, instance="instance-1"))
    assert bench.node(node)["instance"] == first
    bench.tend()
    assert bench.provider.running() == [first]


@probe()
def two_who_settle_a_bill_at_once_settle_it_once(bench: Bench) -> None:
    node = idle_rented(bench)
    bench.provider.stop(bench.provider.instance_of(node))
    bench.wait(30)
    bench.meanwhile("settle", lambda: settle(bench.deployment))
    bench.tend()
    assert [line[0] for line in bench.ledger(node)] == ["start-up", "training", "idle"]
    bench.audit.at_the_end(bench.provider.invoice(), nodes_min=0)


@probe(slow_rule="off")
def a_machine_that_is_quarantined_while_it_is_to_give_way_is_not_asked_to(bench: Bench) -> None:
    nodes = bench.rent(4, steps=100_000)
    for number, node in enumerate(nodes):
        bench.beat(node, bench.claim(node).hold, 10, seconds_per_step=1.0 if number else 2.0)

    def quarantined() -> None:
        why, until_ms = "2 strikes", bench.now_ms + 3_600_000
        bench.store.apply(
            write(
                "quarantine_machine",
                id="machine-rented-0",
                quarantines=1,
                judged_ms=-1,
                until_ms=until_ms,
                because=why,
                now=bench.now_ms,
            ),
            write("set_node_state", id=nodes[0], before="ready", state="quarantined", because=why),
        )

    bench.meanwhile("ask_to_stop", quarantined)
    bench.tick()
    assert bench.node(nodes[0])["state"] == "quarantined"
    assert bench.look("SELECT COUNT(*) FROM lease WHERE stop <> ''") == [0]
