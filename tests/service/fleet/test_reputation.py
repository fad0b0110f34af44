"""What a machine did is held against it in every pool and under every name, and is forgotten some day."""

import hashlib
import json
from dataclasses import replace

from typer.testing import CliRunner

from gangline.cli import main
from gangline.core.fleet.nodes import MachineView
from gangline.ports.server import Join
from gangline.service.fleet import operating
from gangline.service.fleet.health import judge_machine
from gangline.service.fleet.nodes import gone, join_pool
from gangline.service.jobs.steer import cancel
from tests.service.conftest import OPERATOR, POLICY, Service
from tests.service.served import serving
from tests.service.test_rules import a_contrast, advance, fail, misbehave, release, succeed

CARD = hashlib.sha256(b"GPU-8f4d").hexdigest()
OTHER = hashlib.sha256(b"GPU-0000").hexdigest()


def join(service: Service, machine: str, pool: str, *cards: str) -> str:
    request = Join(machine=machine, name=f"{machine}-in-{pool}", cards=cards)
    return join_pool(service.deployment, request, pool, service.now_ms).node


def machine_of(service: Service, node: str, project: str | None = None) -> MachineView:
    found = operating.node_detail(service.deployment, node, project, service.now_ms).machine
    assert found is not None
    return found


def lose(service: Service, node: str) -> str:
    """Let a node fail a job, which another one then finishes."""
    job = service.submit()
    assignment = service.claim(node)
    assert assignment.job == job
    fail(service, node, assignment.hold, "gpu error")
    service.wait(20)
    other = join(service, f"finisher-of-{job}", "default")
    succeed(service, other, service.claim(other).hold)
    gone(service.deployment, other, "done", service.now_ms)
    service.wait(20)
    return job


def test_a_machine_that_comes_back_with_another_name_in_another_pool_is_known_by_its_card(service: Service) -> None:
    first = join(service, "machine-a", "alpha", CARD)
    job = lose(service, first)
    gone(service.deployment, first, "left", service.now_ms)
    again = join(service, "machine-b", "beta", OTHER, CARD)
    found = machine_of(service, again)
    assert found.id == "machine-a" and found.strikes == 1
    assert found.record is not None
    (loss,) = found.record.losses
    assert (loss.pool, loss.node, loss.state, loss.job) == ("alpha", "machine-a-in-alpha", "failed", job)
    assert "the GPU failed: boom" in loss.because
    assert machine_of(service, join(service, "machine-b", "beta", OTHER)).id == "machine-a", "its second card tells"


def test_the_strikes_of_two_pools_together_bring_a_machine_into_quarantine(service: Service) -> None:
    beside = join(service, "beside", "beta")
    service.submit()
    hold = service.claim(beside).hold
    advance(service, beside, hold)
    succeed(service, beside, hold)
    first = join(service, "machine-a", "alpha", CARD)
    lose(service, first)
    gone(service.deployment, first, "left", service.now_ms)
    again = join(service, "machine-b", "beta", CARD)
    lose(service, again)
    judge_machine(service.deployment, "machine-a", "beta", service.now_ms)
    found = machine_of(service, again)
    assert found.quarantined_until_ms is not None and found.record is not None
    assert found.record.says == "in 30 days: 2 of 2 attempts lost in 2 pools, 1 quarantine"


def test_a_machine_is_judged_in_the_pool_that_it_joined_last(service: Service) -> None:
    for name in ("machine-a", "machine-b"):
        gone(service.deployment, join(service, name, "alpha"), "left", service.now_ms)
        node = join(service, name, "beta")
        misbehave(service, node)
        misbehave(service, node)
    a_contrast(service)
    join(service, "beside", "beta")
    service.tick()
    sent_away = service.look("SELECT id FROM machine WHERE quarantined_until_ms > quarantined_ms")
    assert [row["id"] for row in sent_away] == ["machine-a"], "others work in that pool, which spares one"


def test_a_machine_that_is_known_by_its_own_name_is_that_one_whatever_its_cards_are(service: Service) -> None:
    join(service, "machine-a", "alpha", CARD)
    join(service, "machine-b", "alpha", OTHER)
    assert machine_of(service, join(service, "machine-b", "alpha", CARD)).id == "machine-b", "the card was put into it"
    assert machine_of(service, join(service, "machine-c", "alpha")).id == "machine-c"
    assert machine_of(service, join(service, "machine-d", "alpha", CARD)).id == "machine-a", "where it came first"


def test_what_was_long_ago_is_forgotten_and_lengthens_no_quarantine(service: Service) -> None:
    node = join(service, "machine-a", "alpha", CARD)
    lose(service, node)
    for number in range(3):
        operating.quarantine(service.deployment, node, service.now_ms + number, lasts_s=60, stop=False)
    assert machine_of(service, node).quarantines == 3
    record = machine_of(service, node).record
    assert record is not None and (record.lost, record.quarantines) == (1, 3)
    service.wait(POLICY.reputation_s + 1)
    assert machine_of(service, node).quarantines == 0
    record = machine_of(service, node).record
    assert record is not None and (record.lost, record.quarantines, record.losses) == (0, 0, ())
    assert record.says == "in 30 days: no attempt"
    operating.quarantine(service.deployment, node, service.now_ms, lasts_s=60, stop=False)
    assert machine_of(service, node).quarantines == 1


def test_the_jobs_of_others_are_not_shown_in_a_record(service: Service) -> None:
    node = join(service, "machine-a", "alpha", CARD)
    lose(service, node)
    record = machine_of(service, node, project="another").record
    assert record is not None
    (loss,) = record.losses
    assert (loss.job, loss.because, loss.state) == (None, "", "failed")


def test_machines_are_listed_by_what_they_lost(service: Service) -> None:
    good, bad = join(service, "good", "alpha"), join(service, "bad", "beta", CARD)
    service.submit()
    succeed(service, good, service.claim(good).hold)
    lose(service, bad)
    listed = service.ask("GET", "/v1/machines").json()
    assert listed[0]["id"] == "bad" and [listed[0][name] for name in ("lost", "attempts", "pools")] == [1, 1, 1]
    assert {each["id"]: each["lost"] for each in listed}["good"] == 0
    assert len(service.ask("GET", "/v1/machines?limit=1").json()) == 1
    with serving(service.app) as served:

        def run(*words: str) -> str:
            where = ["--server", served.url, "--token", OPERATOR]
            runner = CliRunner(env={"COLUMNS": "160"})
            return runner.invoke(main.app, ["nodes", *words, *where], catch_exceptions=False).stdout

        rows = run("machines").splitlines()
        shown = run("show", "bad-in-beta")
        as_json = json.loads(run("show", "bad-in-beta", "-o", "json"))
    assert rows[0].split()[:2] == ["machine", "lost"] and rows[1].split()[:4] == ["bad", "1", "of", "1"]
    assert "in 30 days: 1 of 1 attempt lost in 1 pool" in shown and "lost on this machine, newest first" in shown
    assert "the GPU failed: boom" in shown
    assert as_json["machine"]["record"]["losses"][0]["state"] == "failed"


def test_what_was_the_jobs_fault_is_in_no_record_and_what_was_moved_is_no_loss(service: Service) -> None:
    """The node's view and the list count the same."""
    node = join(service, "machine-a", "alpha")
    for kind in ("diverged", "gpu error"):
        job = service.submit()
        fail(service, node, service.claim(node).hold, kind)
        cancel(service.deployment, job, service.now_ms)
        service.wait(20)
    service.submit()
    hold = service.claim(node).hold
    service.execute("UPDATE lease SET stop = 'it is hot', stop_kind = 'throttled', stop_ms = 1")
    release(service, node, hold)
    record = machine_of(service, node).record
    assert record is not None and (record.succeeded, record.lost, record.moved) == (0, 1, 1)
    assert record.says == "in 30 days: 1 of 2 attempts lost in 1 pool, 1 moved away from it"
    assert [loss.state for loss in record.losses] == ["released", "failed"]
    (listed,) = service.ask("GET", "/v1/machines").json()
    assert [listed[name] for name in ("id", "attempts", "lost", "moved")] == ["machine-a", 2, 1, 1]


def test_a_machine_in_quarantine_is_listed_however_long_ago_it_worked(service: Service) -> None:
    node = join(service, "machine-a", "alpha")
    operating.quarantine(service.deployment, node, service.now_ms, lasts_s=60, stop=False)
    (listed,) = service.ask("GET", "/v1/machines").json()
    assert [listed[name] for name in ("id", "attempts", "lost", "pools", "last_ms")] == ["machine-a", 0, 0, 0, None]
    with serving(service.app) as served:
        where = ["--server", served.url, "--token", OPERATOR]
        shown = CliRunner(env={"COLUMNS": "160"}).invoke(main.app, ["nodes", "machines", *where]).stdout
    assert shown.splitlines()[1].split()[:6] == ["machine-a", "0", "of", "0", "0", "0"] and "quarantined" in shown
    service.wait(61)
    assert service.ask("GET", "/v1/machines").json() == []


def test_a_machine_on_which_nothing_ever_ran_has_an_empty_record(service: Service) -> None:
    record = machine_of(service, join(service, "machine-a", "alpha")).record
    assert record is not None
    assert replace(record, since_ms=0, known_ms=0).losses == () and record.says == "in 30 days: no attempt"
    assert service.ask("GET", "/v1/machines").json() == []
