"""Who gets work, whom a failure is blamed on, who is trusted, what is paid for: the rules, over the real store."""

import threading
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.fleet.nodes import NodeView
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.money.budget import reservation
from gangline.core.money.cost import HOUR_MS
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.specs.fields import FilesBase, Needs
from gangline.ports.pool import Offer
from gangline.ports.server import Assignment, Beat, Beaten, Committed, Done, Failed, Hold, Released, Stale
from gangline.ports.store import write
from gangline.service.access.projects import project, set_allowance
from gangline.service.attempts import load_node
from gangline.service.deployment import RentedPool
from gangline.service.driving import AtOnce
from gangline.service.fleet import operating
from gangline.service.fleet.nodes import leave_pool
from gangline.service.jobs import query, steer
from gangline.service.jobs.claim import claim
from gangline.service.jobs.finish import finish
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.renew import renew
from gangline.service.jobs.submit import submit
from tests.service.conftest import JOIN, POLICY, PRICE, PROJECT, Service
from tests.service.jobs.test_one_at_a_time import commit, facts, result, upload, view
from tests.unit.fleet.test_autoscale_found import Shop

NO_JOB = "no waiting job may run on this node"


def beat(service: Service, node: str, hold: Hold, step: int, **said: Any) -> Beaten | Stale:
    known = {"phase": "training", "loss": 0.5, "training_s": 0} | said
    return renew(service.deployment, node, hold, Beat(step=step, **known), service.now_ms)


def fail(service: Service, node: str, hold: Hold, kind: Any) -> None:
    assert finish(service.deployment, node, hold, Failed(kind=kind, because="boom"), service.now_ms) == Done()


def release(service: Service, node: str, hold: Hold) -> None:
    assert finish(service.deployment, node, hold, Released(), service.now_ms) == Done()


def succeed(service: Service, node: str, hold: Hold) -> None:
    assert finish(service.deployment, node, hold, result(service, node, hold), service.now_ms) == Done()


def advance(service: Service, node: str, hold: Hold, step: int = 10, seconds_per_step: float = 1.0) -> None:
    """A step, and a checkpoint of it."""
    assert beat(service, node, hold, step, seconds_per_step=seconds_per_step) == Beaten()
    upload(service, node, hold, step)
    assert commit(service, node, hold, step) == Committed()


def node_view(service: Service, node: str) -> NodeView:
    return next(found for found in operating.nodes(service.deployment, None, service.now_ms) if found.id == node)


def because(service: Service, job: str) -> str:
    return service.store.load("job", id=job)[0]["because"]


def kinds(service: Service, job: str) -> list[str]:
    return [event.kind for event in query.events_after(service.deployment, PROJECT, job, 0)]


# Bans


def failed_once(service: Service) -> tuple[str, str]:
    """A job that node-a has failed, and whose wait is over."""
    job, node = service.submit(), service.join("node-a")
    fail(service, node, service.claim(node).hold, "crashed")
    assert service.claim_nothing(node) == NO_JOB
    service.wait(POLICY.retry_first_s)
    return job, node


def test_a_failed_job_waits_before_its_next_try(service: Service) -> None:
    job, node = service.submit(), service.join("node-a")
    other = service.join("node-b")
    fail(service, node, service.claim(node).hold, "crashed")
    service.wait(POLICY.retry_first_s - 1)
    service.claim_nothing(other)
    service.wait(1)
    assert service.claim(other).job == job


def test_a_machine_that_failed_a_job_does_not_get_it_again_but_another_does(service: Service) -> None:
    job, node = failed_once(service)
    service.claim_nothing(node)
    assert service.claim(service.join("node-b")).job == job


def test_a_ban_is_the_machines_and_not_the_nodes(service: Service) -> None:
    job, node = failed_once(service)
    leave_pool(service.deployment, node, service.now_ms)
    service.claim_nothing(service.join("node-a"))
    assert service.state(job) == "queued"


def test_a_ban_yields_when_no_other_machine_came_for_long_and_an_event_says_so(service: Service) -> None:
    job, node = failed_once(service)
    service.wait(POLICY.ban_yields_s - 1)
    service.claim_nothing(node)
    service.tick()
    service.claim_nothing(node)
    service.wait(2)
    service.tick()
    assert "every machine had failed it" in because(service, job)
    assert service.claim(node).job == job
    assert "bans lifted" in kinds(service, job)


def test_a_ban_does_not_yield_while_another_machine_here_may_have_the_job(service: Service) -> None:
    other = service.join("node-b")
    service.submit()
    hold = service.claim(other).hold
    job, node = failed_once(service)
    for step in range(int(POLICY.ban_yields_s / 40) + 1):
        assert beat(service, other, hold, step) == Beaten()
        service.claim_nothing(node)
        service.wait(40)
        service.tick()
    service.claim_nothing(node)
    assert "bans lifted" not in kinds(service, job)
    release(service, other, hold)


@pytest.mark.parametrize("kind", ["download failed", "upload failed"])
def test_the_networks_failure_bans_nobody(service: Service, kind: str) -> None:
    job, node = service.submit(), service.join()
    fail(service, node, service.claim(node).hold, kind)
    service.wait(POLICY.retry_first_s)
    assert service.claim(node).job == job


# Interruptions


def lose(service: Service, job: str, name: str) -> None:
    """A machine takes the job and is never heard of again."""
    node = service.join(name)
    assert service.claim(node).job == job
    service.wait(POLICY.lease_s + 1)
    service.tick()
    service.wait(POLICY.retry_max_s)


def failures(service: Service, job: str) -> int:
    return service.store.load("job", id=job)[0]["attempts_failed"]


def test_a_job_that_loses_three_machines_in_a_row_is_blamed_once_and_again_after_three_more(service: Service) -> None:
    job = service.submit(attempts_max=2)
    counts = []
    for number in range(6):
        lose(service, job, f"node-{number}")
        counts.append(failures(service, job))
    assert counts == [0, 0, 1, 1, 1, 2]
    assert service.state(job) == "failed" and "3 machines in a row fell silent" in because(service, job)
    assert {attempt.state for attempt in view(service, job).attempts} == {"interrupted"}


def test_a_job_that_gets_further_each_time_may_lose_any_number_of_machines(service: Service) -> None:
    job = service.submit(attempts_max=1)
    for number in range(5):
        node = service.join(f"node-{number}")
        advance(service, node, service.claim(node).hold, 10 + number)
        service.wait(POLICY.lease_s + 1)
        service.tick()
    assert (service.state(job), failures(service, job)) == ("queued", 0)


# Blame


def strikes(service: Service) -> int:
    return len(service.look("SELECT * FROM strike"))


def test_out_of_memory_on_two_machines_of_a_class_raises_the_jobs_need_and_strikes_nobody(service: Service) -> None:
    job = service.submit()
    for name in ("node-a", "node-b"):
        node = service.join(name, gpu="T4", gpu_memory_gb=16)
        fail(service, node, service.claim(node).hold, "out of memory")
        service.wait(2 * POLICY.retry_first_s)
    assert service.store.load("job", id=job)[0]["gpu_memory_gb"] == 17
    assert strikes(service) == 0
    service.claim_nothing(service.join("node-c", gpu="T4", gpu_memory_gb=16))
    assert service.claim(service.join("node-d", gpu="A10", gpu_memory_gb=24)).job == job


def test_out_of_memory_on_one_machine_of_a_class_is_its_strike(service: Service) -> None:
    service.submit()
    node = service.join(gpu="T4", gpu_memory_gb=16)
    fail(service, node, service.claim(node).hold, "out of memory")
    assert strikes(service) == 1


def test_a_machine_that_was_right_about_a_bad_job_keeps_no_strike(service: Service) -> None:
    job, first = service.submit(), service.join("node-a")
    hold = service.claim(first).hold
    advance(service, first, hold)
    release(service, first, hold)
    for name in ("node-b", "node-c"):
        node = service.join(name)
        fail(service, node, service.claim(node).hold, "diverged")
    assert service.state(job) == "failed"
    assert strikes(service) == 0


# Versions


def test_a_job_whose_checkpoint_has_an_older_format_is_paused_with_it_and_tried_again_once_it_is_resumed(
    service: Service,
) -> None:
    job, first = service.submit(), service.join("node-a")
    hold = service.claim(first).hold
    advance(service, first, hold)
    release(service, first, hold)
    second = service.join("node-b")
    says = "the checkpoint of step 10 was written by Gangline 0.1"
    failed = Failed(kind="other format", because=says)
    assert finish(service.deployment, second, service.claim(second).hold, failed, service.now_ms) == Done()
    assert service.state(job) == "paused" and says in because(service, job)
    service.claim_nothing(first)
    assert steer.resume(service.deployment, job, service.now_ms)
    again = service.claim(second)
    assert again.job == job
    assert [found.step for found in again.resume] == [10]
    assert service.look("SELECT attempts_failed FROM job")[0]["attempts_failed"] == 0


# Trust


def a_contrast(service: Service, **facts: Any) -> None:
    """Another machine does this workload well."""
    node = service.join("node-good", **facts)
    service.submit()
    hold = service.claim(node).hold
    advance(service, node, hold)
    succeed(service, node, hold)
    leave_pool(service.deployment, node, service.now_ms)


def misbehave(service: Service, node: str, kind: str = "gpu error", project: str = PROJECT, **settings: Any) -> None:
    """Take a job and fail it. The job goes away."""
    service.wait(POLICY.rest_max_s)
    job = service.submit(project, **settings)
    fail(service, node, service.claim(node).hold, kind)
    steer.cancel(service.deployment, job, service.now_ms)


def test_four_bad_jobs_of_one_project_never_quarantine_the_only_machine(service: Service) -> None:
    node = service.join()
    for rank in (4, 8, 12, 16):
        misbehave(service, node, "crashed", rank=rank)
        service.tick()
    assert node_view(service, node).state == "ready"


def test_a_machine_that_fails_the_workloads_of_two_projects_is_quarantined(service: Service) -> None:
    node, others = service.join(), service.add_project("others")
    beside(service)
    for whose, rank in ((PROJECT, 4), (others, 8), (PROJECT, 12), (others, 16)):
        assert node_view(service, node).state == "ready"
        misbehave(service, node, "crashed", whose, rank=rank)
    assert node_view(service, node).state == "quarantined"


def test_a_workload_that_went_well_on_a_machine_of_another_class_is_a_contrast_to_two_that_failed(
    service: Service,
) -> None:
    a_contrast(service, gpu="A100")
    beside(service)
    node = service.join(gpu="RTX 4090")
    misbehave(service, node)
    misbehave(service, node)
    assert node_view(service, node).state == "ready"
    misbehave(service, node, rank=8)
    assert node_view(service, node).state == "quarantined"


def beside(service: Service) -> str:
    """Another machine of the pool works, and asks for nothing."""
    return service.join("node-beside")


def quarantined(service: Service, name: str = "node-bad", **facts: Any) -> str:
    """Another machine works beside it."""
    beside(service)
    node = service.join(name, **facts)
    misbehave(service, node)
    misbehave(service, node)
    return node


def test_a_machine_that_fails_what_others_do_well_is_quarantined_and_says_why(service: Service) -> None:
    a_contrast(service)
    node = quarantined(service)
    found = node_view(service, node)
    assert (found.state, found.because) == ("quarantined", "quarantined: 2 strikes: the GPU failed")
    service.submit()
    assert service.claim_nothing(node) == "node-bad is quarantined until 15:07 UTC: 2 strikes: the GPU failed"


def test_without_a_contrast_a_machine_stays(service: Service) -> None:
    node = quarantined(service)
    assert node_view(service, node).state == "ready"
    service.tick()
    assert node_view(service, node).state == "ready"


def test_a_contrast_may_come_after_the_strikes(service: Service) -> None:
    node = quarantined(service)
    a_contrast(service)
    beside(service)
    service.tick()
    assert node_view(service, node).state == "quarantined"


def test_a_quarantine_lasts_over_joins_and_ends_in_a_trial(service: Service) -> None:
    a_contrast(service)
    leave_pool(service.deployment, quarantined(service), service.now_ms)
    again = service.join("node-bad")
    assert node_view(service, again).state == "quarantined"
    service.wait(POLICY.quarantine_s + 1)
    service.claim_nothing(again)
    service.tick()
    assert node_view(service, again).state == "on_trial"
    leave_pool(service.deployment, again, service.now_ms)
    third = service.join("node-bad")
    assert node_view(service, third).state == "on_trial"
    service.submit()
    succeed(service, third, service.claim(third).hold)
    assert node_view(service, third).state == "ready"
    leave_pool(service.deployment, third, service.now_ms)
    assert node_view(service, service.join("node-bad")).state == "ready"


def test_a_machine_on_trial_goes_back_at_its_first_failure_for_twice_as_long(service: Service) -> None:
    a_contrast(service)
    node = quarantined(service)
    service.wait(POLICY.quarantine_s + 1)
    service.claim_nothing(node)
    service.tick()
    beside(service)
    misbehave(service, node, "crashed")
    assert node_view(service, node).state == "quarantined"
    machine = service.store.load("machine", id="machine-of-node-bad")[0]
    assert machine["quarantined_until_ms"] - machine["quarantined_ms"] == 2000 * POLICY.quarantine_s


def last_one(service: Service, **facts: Any) -> str:
    """The only machine of the pool, which fails what others did well."""
    a_contrast(service)
    node = service.join("node-bad", **facts)
    misbehave(service, node)
    misbehave(service, node)
    return node


def test_the_only_machine_of_a_pool_that_rents_none_goes_on_trial_at_once(service: Service) -> None:
    node = last_one(service)
    found = node_view(service, node)
    assert found.state == "on_trial" and "continues with one job at a time, after a rest of 30 s" in found.because
    service.submit()
    assert "pauses after failures" in service.claim_nothing(node)
    service.wait(30)
    succeed(service, node, service.claim(node).hold)
    assert node_view(service, node).state == "ready"


def test_a_last_machine_on_trial_that_fails_again_rests_longer_and_is_not_locked_out(service: Service) -> None:
    node = last_one(service)
    for rest_s in (60, 120, 240):
        misbehave(service, node, "crashed")
        service.submit()
        service.wait(rest_s - 1)
        assert "pauses after failures" in service.claim_nothing(node)
        assert f"after a rest of {rest_s} s" in node_view(service, node).because
        service.wait(1)
        assert steer.cancel(service.deployment, service.claim(node).job, service.now_ms)
    assert node_view(service, node).state == "on_trial"


def test_a_machine_on_trial_gets_one_job_at_a_time_however_many_slots_it_has(service: Service) -> None:
    node = last_one(service, slots=2)
    service.wait(30)
    for _ in range(2):
        service.submit()
    hold = service.claim(node).hold
    assert service.claim_nothing(node) == "node-bad is on trial: it gets one job at a time"
    succeed(service, node, hold)
    service.claim(node)
    service.submit()
    service.claim(node)


def test_a_machine_that_joins_again_is_still_on_trial_and_says_why(service: Service) -> None:
    leave_pool(service.deployment, last_one(service), service.now_ms)
    again = node_view(service, service.join("node-bad"))
    assert again.state == "on_trial" and "2 strikes: the GPU failed" in again.because


def test_who_went_on_trial_is_not_counted_among_those_that_were_sent_away(service: Service) -> None:
    last_one(service)
    assert node_view(service, quarantined(service, "node-2")).state == "quarantined"


def test_the_only_machine_of_a_pool_that_can_rent_another_is_quarantined(service: Service) -> None:
    a_contrast(service)
    limits = PoolLimits(name="cloud", nodes_min=0, nodes_max=1)
    service.deployment = replace(service.deployment, pools={"cloud": RentedPool(limits, AtOnce(Shop()))})
    rent(service, "node-1", pool="cloud")
    node = service.join("node-1", node="node-1")
    misbehave(service, node)
    misbehave(service, node)
    assert node_view(service, node).state == "quarantined"


def test_of_many_bad_machines_at_once_an_operator_is_told_and_they_stay(service: Service) -> None:
    a_contrast(service)
    assert node_view(service, quarantined(service, "node-1")).state == "quarantined"
    found = node_view(service, quarantined(service, "node-2"))
    assert found.state == "ready" and "an operator should look" in found.because


def test_a_rented_nodes_machine_is_counted_in_the_pool_that_it_was_rented_for(service: Service) -> None:
    a_contrast(service)
    rent(service, "node-0", pool="cloud")
    service.join("node-0", node="node-0")
    for name, state in (("node-1", "quarantined"), ("node-2", "ready")):
        rent(service, name, pool="cloud")
        assert node_view(service, quarantined(service, name, node=name)).state == state


def rent(service: Service, node: str, pool: str) -> None:
    """As the fleet does before it asks the provider."""
    what = {"gpu": "", "gpu_memory_gb": 0, "trust": 0, "slots": 1, "price_micro_usd_per_hour": PRICE, "price_known": 1}
    service.store.apply(
        write(
            "rent_node",
            called="rented",
            offer="any",
            id=node,
            pool=pool,
            because="a job waits",
            now=service.now_ms,
            **what,
        )
    )


def test_a_machine_that_fails_one_job_after_the_other_pauses_in_between(service: Service) -> None:
    node = service.join()
    misbehave(service, node)
    misbehave(service, node)
    service.submit()
    assert "pauses after failures until " in service.claim_nothing(node)
    service.wait(POLICY.rest_first_s)
    service.claim(node)


# Nothing comes of it


def test_a_trainer_that_starts_again_within_its_attempt_is_given_the_time_for_a_step_from_then_on(
    service: Service,
) -> None:
    job, node = service.submit(), service.join("node-a")
    hold = service.claim(node).hold
    assert beat(service, node, hold, 7) == Beaten()
    for _ in range(int(POLICY.stall_s / 40) + 1):
        service.wait(40)
        assert beat(service, node, hold, 0, phase="preparing") == Beaten()
    assert beat(service, node, hold, 0) == Beaten()
    service.tick()
    assert service.state(job) == "running"
    for _ in range(int(POLICY.stall_s / 40) + 1):
        service.wait(40)
        assert beat(service, node, hold, 0) == Beaten()
    service.tick()
    assert service.state(job) == "queued" and "no progress: no step after 0" in because(service, job)


def test_an_attempt_that_beats_without_a_step_is_ended_and_its_machine_is_banned(service: Service) -> None:
    job, node, other = service.submit(), service.join("node-a"), service.join("node-b")
    hold = service.claim(node).hold
    for _ in range(int(POLICY.stall_s / 40)):
        assert beat(service, node, hold, 7) == Beaten()
        service.wait(40)
        service.tick()
    assert service.state(job) == "running"
    assert beat(service, node, hold, 7) == Beaten()
    service.wait(40)
    service.tick()
    assert service.state(job) == "queued" and "no progress: no step after 7" in because(service, job)
    assert isinstance(beat(service, node, hold, 7), Stale)
    service.wait(POLICY.retry_first_s)
    service.claim_nothing(node)
    other = service.join("node-b")
    assert service.claim(other).job == job


def test_a_job_that_saves_seldom_is_not_taken_for_one_that_makes_no_progress(service: Service) -> None:
    job, node = service.submit(checkpoint_every_s=7200), service.join()
    hold = service.claim(node).hold
    for step in range(1, 100):
        assert beat(service, node, hold, step) == Beaten()
        service.wait(44)
        service.tick()
    assert service.state(job) == "running"


def test_a_node_whose_attempt_was_ended_from_here_is_not_taken_for_silent(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    for step in range(20):
        service.wait(POLICY.heartbeat_interval_s)
        assert beat(service, node, hold, step) == Beaten()
    assert steer.cancel(service.deployment, job, service.now_ms)
    service.wait(POLICY.tick_interval_s)
    service.tick()
    assert node_view(service, node).state == "ready"


def test_a_slow_machine_gives_its_job_to_another_and_the_job_is_not_blamed(service: Service) -> None:
    for number in range(4):
        node = service.join(f"node-{number}")
        service.submit()
        advance(service, node, service.claim(node).hold)
    slow, job = service.join("node-slow"), service.submit()
    hold = service.claim(slow).hold
    assert beat(service, slow, hold, 1, seconds_per_step=12.0) == Beaten()
    service.tick()
    answer = beat(service, slow, hold, 2, seconds_per_step=12.0)
    assert isinstance(answer, Beaten)
    assert answer.stop.startswith("too slow beside its peers: 12 s a step, against 1 on 5 machines")
    release(service, slow, hold)
    found = view(service, job)
    assert (found.summary.state, found.attempts[0].state, failures(service, job)) == ("queued", "released", 0)
    service.claim_nothing(slow)
    assert service.claim(service.join("node-fast")).job == job


# Money


RESERVED = round(PRICE * POLICY.reserve_s / 3600)


def test_two_claims_at_once_cannot_spend_the_same_money(service: Service) -> None:
    nodes = [service.join(f"node-{number}") for number in range(8)]
    for _ in nodes:
        service.submit()
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=2.5 * RESERVED / 1e6)
    answers: list[Any] = []
    together = threading.Barrier(len(nodes))

    def ask(node: str) -> None:
        together.wait()
        answers.append(claim(service.deployment, node, service.now_ms))

    threads = [threading.Thread(target=ask, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(answer, Assignment) for answer in answers) == 2
    assert project(service.deployment, PROJECT).reserved_usd == 2 * RESERVED / 1e6
    why = [
        view.because
        for view in page_of_jobs(service.deployment, PROJECT, JobFilters(), service.now_ms, limit=100).jobs
        if view.state == "queued"
    ]
    assert len(why) == 6
    assert all(
        text.endswith("does not allow it: $0.00 is spent and $0.18 is reserved by running jobs") for text in why
    ), why


def test_an_end_gives_back_what_was_reserved_and_books_what_was_spent(service: Service) -> None:
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=1)
    service.submit()
    node = service.join()
    assert reservation(load_node(service.deployment, node).price_of(1), 0, service.deployment.policy) == RESERVED
    hold = service.claim(node).hold
    service.wait(20)
    release(service, node, hold)
    found = project(service.deployment, PROJECT)
    assert (found.spent_usd, found.reserved_usd) == (0.002, 0)


def run_until_told_to_stop(service: Service, node: str, hold: Hold) -> str:
    for step in range(1, 1000):
        service.wait(POLICY.heartbeat_interval_s)
        answer = beat(service, node, hold, step)
        assert isinstance(answer, Beaten)
        if answer.stop:
            return answer.stop
    raise AssertionError("it was never told to stop")


def test_when_the_budget_runs_out_the_next_heartbeats_say_stop_and_the_job_waits_for_more(service: Service) -> None:
    job, node = service.submit(), service.join()
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=3 * RESERVED / 1e6)
    hold = service.claim(node).hold
    stop = run_until_told_to_stop(service, node, hold)
    assert (
        stop
        == "stopped: the budget of default, $0.27, does not allow it: $0.00 is spent and $0.27 is reserved by running jobs"
    )
    assert beat(service, node, hold, 99) == Beaten(stop=stop)
    release(service, node, hold)
    assert (service.state(job), failures(service, job)) == ("queued", 0)
    assert because(service, job) == stop
    assert kinds(service, job)[-2:] == ["over budget", "released"]
    assert query.job(service.deployment, PROJECT, job, service.now_ms).summary.because.startswith(
        "the budget of default, $0.27,"
    )
    money = project(service.deployment, PROJECT)
    assert money.budget_usd is not None and 0.9 * money.budget_usd < money.spent_usd <= money.budget_usd
    service.claim_nothing(node)
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=None)
    assert service.claim(node).job == job


def test_a_node_that_does_not_heed_overspends_no_budget(service: Service) -> None:
    job, node = service.submit(), service.join()
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=RESERVED / 1e6)
    hold = service.claim(node).hold
    run_until_told_to_stop(service, node, hold)
    while service.state(job) == "running":
        beat(service, node, hold, 99)
        service.wait(POLICY.tick_interval_s)
        service.tick()
    money = project(service.deployment, PROJECT)
    assert money.budget_usd is not None and money.spent_usd <= money.budget_usd


def test_a_project_without_money_does_not_hold_up_another_projects_interrupted_job(service: Service) -> None:
    poor = service.add_project("poor")
    nodes = [service.join(f"node-{number}") for number in range(20)]
    for _ in nodes:
        service.submit(project=poor)
    for node in nodes:
        service.claim(node)
    service.wait(POLICY.lease_s + 1)
    service.tick()
    set_allowance(service.deployment, poor, share=1, budget_usd=0)
    job, first = service.submit(), service.join("node-x")
    release(service, first, service.claim(first).hold)
    assert service.claim(service.join("node-y")).job == job


def test_jobs_too_wide_for_a_node_do_not_hide_one_that_fits(service: Service) -> None:
    for _ in range(20):
        service.submit(needs=Needs(slots=2), priority=1)
    job = service.submit()
    assert service.claim(service.join()).job == job


# The owner's wishes


def test_a_paused_job_is_nobodys_until_it_is_resumed(service: Service) -> None:
    job, node = service.submit(), service.join()
    assert steer.pause(service.deployment, job, service.now_ms)
    assert not steer.pause(service.deployment, job, service.now_ms)
    assert (service.state(job), because(service, job)) == ("paused", "paused by its owner")
    service.claim_nothing(node)
    assert steer.resume(service.deployment, job, service.now_ms)
    assert service.claim(node).job == job


def test_a_running_job_that_is_paused_saves_first_and_goes_on_from_there_later(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    assert steer.pause(service.deployment, job, service.now_ms)
    assert (service.state(job), because(service, job)) == ("running", "paused by its owner")
    assert beat(service, node, hold, 20) == Beaten(stop="paused by its owner")
    upload(service, node, hold, 20)
    assert commit(service, node, hold, 20) == Committed()
    release(service, node, hold)
    assert (service.state(job), because(service, job)) == ("paused", "paused by its owner")
    service.claim_nothing(node)
    assert steer.resume(service.deployment, job, service.now_ms)
    assert [saved.step for saved in service.claim(node).resume] == [20]


def test_a_job_that_is_resumed_before_its_node_has_stopped_is_not_paused(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    steer.pause(service.deployment, job, service.now_ms)
    assert steer.resume(service.deployment, job, service.now_ms)
    release(service, node, hold)
    assert service.state(job) == "queued"


@pytest.mark.parametrize("end", ["fails", "falls silent", "leaves"])
def test_however_the_attempt_of_a_paused_job_ends_it_is_paused(service: Service, end: str) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    steer.pause(service.deployment, job, service.now_ms)
    if end == "fails":
        fail(service, node, hold, "crashed")
    elif end == "leaves":
        leave_pool(service.deployment, node, service.now_ms)
    else:
        service.wait(POLICY.lease_s + 1)
        service.tick()
    assert service.state(job) == "paused"


def test_a_paused_job_that_succeeds_all_the_same_has_succeeded(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    steer.pause(service.deployment, job, service.now_ms)
    succeed(service, node, hold)
    assert service.state(job) == "succeeded"
    for act in (steer.pause, steer.resume):
        with pytest.raises(BadInput, match="has succeeded and cannot be"):
            act(service.deployment, job, service.now_ms)


def test_to_resume_a_job_that_was_not_paused_changes_nothing(service: Service) -> None:
    job, node = service.submit(), service.join()
    assert not steer.resume(service.deployment, job, service.now_ms)
    service.claim(node)
    before = facts(service, job)
    assert not steer.resume(service.deployment, job, service.now_ms)
    assert facts(service, job) == before


def test_a_paused_job_can_be_canceled(service: Service) -> None:
    job = service.submit()
    steer.pause(service.deployment, job, service.now_ms)
    assert steer.cancel(service.deployment, job, service.now_ms)
    assert service.state(job) == "canceled"


def test_a_retry_is_a_new_job_from_the_same_spec(service: Service) -> None:
    job = service.submit(seed=5)
    with pytest.raises(BadInput, match="may still succeed"):
        steer.submit_again(service.deployment, PROJECT, job, service.now_ms)
    steer.cancel(service.deployment, job, service.now_ms)
    again = steer.submit_again(service.deployment, PROJECT, job, service.now_ms)
    assert again != job and view(service, again).spec == view(service, job).spec
    assert (service.state(again), service.state(job)) == ("queued", "canceled")


def test_a_lora_for_several_gpus_is_refused_but_one_that_an_older_version_took_is_tried_again(service: Service) -> None:
    wide = service.spec(needs=Needs(slots=4))
    with pytest.raises(InvalidSpec, match="a LoRA trains on one GPU"):
        submit(service.deployment, PROJECT, to_json(wide), name="", request=None, now_ms=service.now_ms)
    job = service.submit(needs=Needs(slots=4))
    assert service.claim(service.join(slots=4)).job == job
    steer.cancel(service.deployment, job, service.now_ms)
    service.wait(POLICY.lease_s + POLICY.stop_grace_s + 1)
    service.tick()
    assert service.state(steer.submit_again(service.deployment, PROJECT, job, service.now_ms)) == "queued"


def test_who_does_not_heed_a_stop_loses_its_lease_after_the_grace(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    steer.pause(service.deployment, job, service.now_ms)
    for _ in range(int(POLICY.stop_grace_s / 10)):
        assert beat(service, node, hold, 1) == Beaten(stop="paused by its owner")
        service.tick()
        service.wait(10)
    service.tick()
    assert service.state(job) == "running"
    service.wait(1)
    service.tick()
    assert service.state(job) == "paused"
    assert isinstance(beat(service, node, hold, 1), Stale)


# Whose turn it is


@pytest.mark.parametrize(("share", "theirs"), [(1.0, 10), (3.0, 5)])
def test_projects_get_their_shares_of_a_busy_node(service: Service, share: float, theirs: int) -> None:
    other = service.add_project("other")
    set_allowance(service.deployment, PROJECT, share=share, budget_usd=None)
    owner = {service.submit(project=project): project for project in [PROJECT] * 20 + [other] * 20}
    node = service.join()
    got: Counter[str] = Counter()
    for _ in range(20):
        assignment = service.claim(node)
        got[owner[assignment.job]] += 1
        service.wait(100)
        steer.cancel(service.deployment, assignment.job, service.now_ms)
    assert abs(got[other] - theirs) <= 1, got


def test_a_flood_of_tiny_jobs_costs_its_project_its_turn(service: Service) -> None:
    other = service.add_project("other")
    flood = {service.submit() for _ in range(10)}
    job, node = service.submit(project=other), service.join()
    first = service.claim(node).job
    steer.cancel(service.deployment, first, service.now_ms)  # it cost no time at all
    second = service.claim(node).job
    assert {first in flood, second in flood} == {True, False} and job in (first, second)


def test_priority_goes_before_age_within_a_project(service: Service) -> None:
    service.submit()
    service.wait(1)
    urgent = service.submit(priority=5)
    assert service.claim(service.join()).job == urgent


def test_a_node_gets_a_job_whose_base_it_holds_first_but_no_job_waits_longer_for_that_than_the_bound(
    service: Service,
) -> None:
    node = service.join("node-a")
    service.submit()
    hold = service.claim(node).hold
    advance(service, node, hold)
    succeed(service, node, hold)
    strange = FilesBase(files=(service.upload(b"another base", "b.png"),))
    first, held = service.submit(base=strange), service.submit()
    assignment = service.claim(node)
    assert assignment.job == held
    release(service, node, assignment.hold)
    steer.cancel(service.deployment, held, service.now_ms)
    service.submit()
    service.wait(POLICY.base_wait_s + 1)
    assert service.claim(node).job == first


def test_a_job_that_has_just_come_is_left_to_the_idle_node_of_the_minimum(service: Service) -> None:
    shop = Shop(Offer(id="offer"))
    limits = PoolLimits(name="cloud", nodes_min=1, nodes_max=2)
    service.deployment = replace(service.deployment, pools={"cloud": RentedPool(limits, AtOnce(shop))})
    rent(service, "node-1", pool="cloud")
    node = service.join("node-1", node="node-1")
    service.wait(POLICY.idle_s + 1)
    service.claim_nothing(node)
    job = service.submit()
    service.tick()
    assert shop.started == []
    assert service.claim(node).job == job


# A node's time


def test_leaving_twice_changes_nothing_more(service: Service) -> None:
    job, node = service.submit(), service.join()
    service.claim(node)
    service.wait(5)
    leave_pool(service.deployment, node, service.now_ms)
    before = facts(service, job), service.look("SELECT * FROM ledger"), service.look("SELECT * FROM node")
    service.wait(5)
    leave_pool(service.deployment, node, service.now_ms)
    after = facts(service, job), service.look("SELECT * FROM ledger"), service.look("SELECT * FROM node")
    assert after == before


@pytest.mark.parametrize("end", ["leaves", "falls silent"])
def test_the_ledger_covers_a_nodes_whole_time_without_a_gap(service: Service, end: str) -> None:
    node = service.join()
    joined_ms = service.now_ms
    service.wait(7.003)
    service.submit()
    hold = service.claim(node).hold
    service.wait(11)
    advance(service, node, hold)
    service.wait(13.001)
    beat(service, node, hold, 15, seconds_per_step=1.0)
    release(service, node, hold)
    service.wait(5)
    hold = service.claim(node).hold
    service.wait(17.7)
    fail(service, node, hold, "crashed")
    service.submit()
    service.claim(node)
    if end == "leaves":
        service.wait(9.9)
        leave_pool(service.deployment, node, service.now_ms)
    else:
        service.wait(POLICY.node_silent_s + 1)
        service.tick()
    assert service.store.load("node", id=node)[0]["state"] == "gone"
    lines = sorted(service.look("SELECT * FROM ledger"), key=lambda line: line["from_ms"])
    assert {line["cause"] for line in lines} >= {"idle", "download", "training", "redone steps"}
    assert (lines[0]["from_ms"], lines[-1]["to_ms"]) == (joined_ms, service.now_ms)
    assert all(before["to_ms"] == after["from_ms"] for before, after in pairwise(lines))
    whole = PRICE * service.now_ms // HOUR_MS - PRICE * joined_ms // HOUR_MS
    assert sum(line["micro_usd"] for line in lines) == whole


def test_what_a_running_attempt_has_stored_is_added_to_its_time_in_what_users_see(service: Service) -> None:
    service.change_policy(storage_usd_per_gb_month=1e9)
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    for step in (10, 20, 30):
        service.wait(10)
        upload(service, node, hold, step)
        commit(service, node, hold, step)
    stored = sum(line["micro_usd"] for line in service.look("SELECT * FROM ledger WHERE cause = 'storage'"))
    [second] = service.look("SELECT bytes FROM checkpoint WHERE step = 20")  # the first is pruned, the third is new
    kept = round(1e15 * second["bytes"] / 1e9 * 10_000 / (30 * 24 * HOUR_MS))
    assert stored > 0 and kept > 0
    assert view(service, job).summary.cost_usd == (3000 + stored + kept) / 1e6


# One true sentence why


def test_a_job_that_nothing_here_can_run_does_not_wait_for_ever(service: Service) -> None:
    job, other = service.submit(needs=Needs(gpu="H200", trust=2)), service.submit()
    service.wait(POLICY.unmatched_s + 1)
    service.join()
    service.tick()
    assert (service.state(job), service.state(other)) == ("failed", "queued")
    assert because(service, job) == "no node that fits came within 24 h (an H200, trust 2)"


def test_a_queued_job_says_why_it_waits_now(service: Service) -> None:
    job = service.submit(needs=Needs(gpu="A10"))

    def why() -> str:
        shown = view(service, job).summary.because
        assert shown == page_of_jobs(service.deployment, PROJECT, JobFilters(), service.now_ms, limit=9).jobs[0].because
        return shown

    start = "; start a worker that has an A10: `gangline worker`"
    assert why() == f"waits for a node: there is none, and it needs an A10{start}"
    service.join("node-a", gpu="T4")
    assert why() == f"no node can take it: needs an A10 and node-a has T4{start}"
    node = service.join("node-b", gpu="A10")
    assert why() == "waits for its turn on node-b"
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=0.01)
    assert (
        why() == "the budget of default, $0.01, does not allow it: $0.00 is spent and $0.00 is reserved by running jobs"
    )
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=None)
    fail(service, node, service.claim(node).hold, "crashed")
    assert why() == "waits 10 s before its next try: to be tried again (1 of 3 failed): the trainer crashed: boom"
    service.wait(10)
    assert why() == f"no node can take it: needs an A10 and node-a has T4; node-b failed it before{start}"
    steer.pause(service.deployment, job, service.now_ms)
    assert why() == "paused by its owner"


def test_a_providers_notice_is_heeded_whatever_its_words_and_steers_no_terminal(service: Service) -> None:
    joined = service.join_with(JOIN, "node-a").json()
    for _ in range(2):
        asked = service.ask("POST", "/v1/nodes/self/notice", joined["token"], json={"because": "\x1b[2Jtaken back"})
        assert asked.status_code == 204
    found = node_view(service, joined["node"])
    assert found.state == "draining" and found.because.endswith("taken back") and "\x1b" not in found.because
