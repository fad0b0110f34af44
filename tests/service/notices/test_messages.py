"""What the messages for people say of real jobs: their time, machines, cost, reason and picture."""

from dataclasses import dataclass, replace
from typing import Any

from gangline.core.notices.kinds import NoticeKind, notice_kind
from gangline.core.notices.pacing import PICTURES_S
from gangline.core.runs.contract import GRID
from gangline.core.words import usd_words
from gangline.ports.server import Failed, Hold, Succeeded
from gangline.service.access.projects import set_allowance
from gangline.service.facts import facts_after
from gangline.service.jobs.finish import finish
from gangline.service.jobs.query import summary_of
from gangline.service.notices.messages import load_message, send_after_ms
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_samples import commit, hand_over, rendered, train
from tests.service.test_rules import RESERVED, beat, release, run_until_told_to_stop, succeed

UNPRICED = "no price is set for storage and egress"
PNG = b"\x89PNG\r\n\x1a\nof a dog"


@dataclass(frozen=True)
class Fact:
    notice: NoticeKind
    at_ms: int
    job: str
    name: str
    because: str


def told(service: Service, *kinds: NoticeKind) -> list[Fact]:
    """The numbered facts of these kinds."""
    service.tick()
    names = {row["id"]: row["name"] for row in service.look("SELECT id, name FROM job")}
    found: list[Fact] = []
    for fact in facts_after(service.deployment, PROJECT, 0):
        kind = notice_kind(fact.kind, fact.state)  # type: ignore[arg-type]
        if kind in kinds:
            found.append(Fact(kind, fact.at_ms, fact.job, names[fact.job], fact.because))
    return found


def message(service: Service, *kinds: NoticeKind) -> Any:
    return load_message(service.deployment, PROJECT, told(service, *kinds), service.now_ms)


def fail(service: Service, node: str, hold: Hold, because: str = "exit code 1") -> None:
    finish(service.deployment, node, hold, Failed(kind="crashed", because=because), service.now_ms)


def test_a_job_that_succeeded_says_what_it_took_on_all_of_its_machines(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    job = service.submit()
    hold = service.claim(first).hold
    service.wait(60)
    release(service, first, hold)
    service.wait(30)  # it waits, and nobody pays for that
    hold = service.claim(second).hold
    service.wait(4260)
    beat(service, second, hold, 100)
    succeed(service, second, hold)
    found = message(service, "succeeded")
    cost = usd_words(summary_of(service.deployment, PROJECT, job, service.now_ms).cost_usd * 1e6)
    assert found.title == "sks dog is ready"
    assert found.lines == (f"It took 1 h 12 min on 2 machines (1 interruption) and cost {cost} ({UNPRICED}).",)
    assert found.command == f"gangline artifacts {job} --to sks-dog" and found.picture is None


def test_a_job_on_a_node_without_a_price_says_that_its_cost_is_unknown(service: Service) -> None:
    node = service.join()
    service.execute("UPDATE node SET price_known = 0, price_micro_usd_per_hour = 0")
    service.submit()
    succeed(service, node, service.claim(node).hold)
    [line] = message(service, "succeeded").lines
    assert "What it cost is unknown: no price is set for node time" in line


def test_a_job_that_failed_says_why_and_what_to_do(service: Service) -> None:
    job, node = service.submit(), service.join("node-a")
    service.execute("UPDATE job SET attempts_max = 2")
    for _ in range(2):
        hold = service.claim(node).hold
        fail(service, node, hold, "exit code 1: it said something")
        service.execute("DELETE FROM ban", "UPDATE job SET ready_ms = 0", "UPDATE machine SET rest_until_ms = 0")
    found = message(service, "failed")
    assert found.title == "sks dog failed" and found.urgent
    assert found.lines[0] == (
        "Reason: the trainer crashed: exit code 1: it said something (the job has failed twice, which is its limit)."
    )
    assert found.lines[1] == "Its log ends with what the trainer printed last."
    assert found.command == f"gangline logs {job}"


def test_a_failed_attempt_of_a_job_that_is_tried_again_is_not_its_end(service: Service) -> None:
    service.submit()
    node = service.join()
    fail(service, node, service.claim(node).hold)
    assert told(service, "failed") == []
    assert message(service, "attempt_failed").title == "sks dog failed, and is tried again"


def test_a_budget_that_is_used_up_says_what_is_spent_and_how_many_wait(service: Service) -> None:
    service.submit(seed=1)
    node = service.join()
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=RESERVED / 1e6)
    hold = service.claim(node).hold
    run_until_told_to_stop(service, node, hold)
    release(service, node, hold)
    service.submit(seed=2)
    found = message(service, "over_budget")
    assert found.title == "The budget of default is used up"
    assert found.lines == (
        "sks dog was stopped; what it saved is kept.",
        "$0.07 of $0.09 is spent.",
        "2 jobs wait now, and resume once an operator raises the budget.",
    )
    set_allowance(service.deployment, PROJECT, share=1, budget_usd=None)
    assert not message(service, "over_budget").urgent


def test_several_facts_are_one_digest_with_the_sum_of_their_cost(service: Service) -> None:
    node = service.join()
    jobs = [service.submit(seed=seed) for seed in range(3)]
    for _ in jobs:
        hold = service.claim(node).hold
        service.wait(3600)
        beat(service, node, hold, 100)
        succeed(service, node, hold)
    cost = sum(summary_of(service.deployment, PROJECT, job, service.now_ms).cost_usd for job in jobs)
    found = message(service, "succeeded")
    assert found.title == "3 jobs succeeded"
    assert found.lines == ("Succeeded: sks dog.", f"These 3 jobs together cost {usd_words(cost * 1e6)} ({UNPRICED}).")


def test_a_fact_of_a_job_that_was_deleted_has_its_name_and_nothing_else(service: Service) -> None:
    job = service.submit()
    service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    facts = told(service, "canceled")
    service.ask("DELETE", f"/v1/jobs/{job}").raise_for_status()
    found = load_message(service.deployment, PROJECT, facts, service.now_ms)
    assert found.title == "sks dog was canceled"


# ------------------------------------------------------------------------------------------------------------------ pictures


def finished_with(service: Service, name: str, content: bytes) -> None:
    """A job that succeeded with this file among its samples."""
    node = service.join()
    service.submit()
    hold = service.claim(node).hold
    file = hand_over(service, node, hold, "output", name, content)
    finish(service.deployment, node, hold, Succeeded(output=(file,)), service.now_ms)


def test_a_job_that_is_ready_shows_its_grid(service: Service) -> None:
    finished_with(service, f"samples/{GRID}", PNG)
    picture = message(service, "succeeded").picture
    assert (picture.name, picture.content, picture.media_type) == (GRID, PNG, "image/png")


def test_what_is_no_picture_is_not_sent_as_one(service: Service) -> None:
    finished_with(service, f"samples/{GRID}", b"<svg onload=alert(1)>")
    assert message(service, "succeeded").picture is None


def test_a_message_does_not_wait_for_a_picture_that_is_lost(service: Service) -> None:
    finished_with(service, f"samples/{GRID}", PNG)
    service.objects.delete([row["key"] for row in service.look("SELECT key FROM artifact")])
    found = message(service, "succeeded")
    assert found.picture is None and found.title == "sks dog is ready"


def test_a_job_that_is_ready_waits_a_little_for_the_pictures_of_its_result(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first, sample_result=True)
    commit(service, first, training, 100)
    rendered(service, second, service.claim(second))
    succeed(service, first, training.hold)
    [ready] = facts = told(service, "succeeded")
    until_ms = send_after_ms(service.deployment, facts, service.now_ms)
    assert until_ms == ready.at_ms + round(PICTURES_S * 1000)
    assert send_after_ms(service.deployment, facts, until_ms) == until_ms, "not for ever"
    assert send_after_ms(service.deployment, facts * 2, service.now_ms) == service.now_ms, "a digest shows none"
    rendered(service, second, service.claim(second))
    assert send_after_ms(service.deployment, facts, service.now_ms) == service.now_ms
    assert send_after_ms(service.deployment, [replace(ready, notice="failed")], service.now_ms) == service.now_ms
