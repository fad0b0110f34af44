"""A job that has ended is continued to more steps by a new one, which begins from its newest checkpoint and from nothing else."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.runs.extension import ExtensionSchedule, ExtensionView
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.fields import STEPS_MAX
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import parse_spec, spec_hash
from gangline.ports.server import Assignment, Committed, Downloads, Reject, Urls
from gangline.service.jobs import query, steer, wishes
from gangline.service.jobs.checkpoint import reject_damaged, sign_downloads
from gangline.service.jobs.extension.extend import extend, what_extends
from gangline.service.jobs.finish import finish as finish_attempt
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.submit import submit
from gangline.service.retention.ages import expire_checkpoints
from gangline.service.retention.removal import remove
from tests.conftest import Typed
from tests.service.conftest import OPERATOR, PROJECT, Before, Service
from tests.service.jobs.test_one_at_a_time import result
from tests.service.jobs.test_samples import commit, open_samples
from tests.service.jobs.test_scratch import submit_scratch
from tests.service.retention.test_ages import after, steps, stored
from tests.service.served import serving
from tests.service.test_rules import beat, succeed

COSINE = {"schedule": "cosine", "learning_rate": 1e-3}


def ended(service: Service, *at: int, node: str = "node-a", **settings: Any) -> str:
    """A job of a hundred steps that succeeded, with checkpoints of these."""
    return _end(service, service.submit(**settings), *at, node=node)


def _end(service: Service, job: str, *at: int, node: str = "node-a") -> str:
    there = service.join(node)
    training = service.claim(there)
    assert training.job == job
    for step in at:
        commit(service, there, training, step)
    succeed(service, there, training.hold)
    return job


def row(service: Service, job: str) -> Any:
    return service.store.load("job", id=job)[0]


def longer(service: Service, job: str, to: int = 150, schedule: ExtensionSchedule = "stretch") -> str:
    return extend(service.deployment, PROJECT, row(service, job), to, schedule, service.now_ms)


def shown(service: Service, job: str, to: int = 150, schedule: ExtensionSchedule = "stretch") -> ExtensionView:
    return what_extends(service.deployment, row(service, job), to, schedule)


def spec_of(service: Service, job: str) -> TrainingSpec:
    spec = parse_spec(json.loads(row(service, job)["spec"]))
    assert isinstance(spec, TrainingSpec)
    return spec


# The whole path


def test_a_new_job_takes_the_steps_that_are_left_from_the_old_ones_newest_checkpoint(service: Service) -> None:
    old = ended(service, 40, 90)
    new = longer(service, old)
    view = query.job(service.deployment, PROJECT, new, service.now_ms)
    assert (view.summary.step, view.summary.committed_step, view.summary.steps) == (90, 90, 150)
    assert view.spec["continues"] == {"job": old, "step": 90, "spec_hash": row(service, old)["spec_hash"]}
    node = service.join("node-b")
    given = service.claim(node)
    assert (given.job, [found.step for found in given.resume]) == (new, [90])
    wanted = Downloads(keys=tuple(file.key for file in given.resume[0].files))
    assert isinstance(sign_downloads(service.deployment, node, given.hold, wanted, service.now_ms), Urls)
    beat(service, node, given.hold, 100, seconds_per_step=2.0)
    running = query.job(service.deployment, PROJECT, new, service.now_ms)
    assert (running.summary.step, running.summary.eta_s, running.attempts[0].from_step) == (100, 100.0, 90)
    assert commit(service, node, given, 120) == Committed()
    succeed(service, node, given.hold)
    done = query.job(service.deployment, PROJECT, new, service.now_ms)
    assert (done.summary.state, done.summary.step, done.steps_redone) == ("succeeded", 150, 0)
    events = query.events_after(service.deployment, PROJECT, new, 0)
    assert events[0].because == f"waits for a node, to resume from step 90 of {old}"
    untouched = query.job(service.deployment, PROJECT, old, service.now_ms).summary
    assert (untouched.state, untouched.steps, untouched.committed_step) == ("succeeded", 100, 90)


def test_it_has_the_old_jobs_settings_and_name_but_for_its_length(service: Service) -> None:
    old = ended(service, 90, **COSINE, warmup_steps=5)
    before = spec_of(service, old)
    made = spec_of(service, longer(service, old))
    assert replace(made, steps=100, continues=None) == before and made.steps == 150
    kept = spec_of(service, longer(service, old, schedule="keep"))
    assert replace(kept, schedule_steps=None) == made and kept.schedule_steps == 100
    assert len({row(service, job)["spec_hash"] for job in (old, *newest(service))}) == 3
    assert {row(service, job)["name"] for job in newest(service)} == {row(service, old)["name"]}


def newest(service: Service) -> list[str]:
    page = page_of_jobs(service.deployment, PROJECT, JobFilters(), service.now_ms, limit=2)
    return [job.id for job in page.jobs]


def test_a_training_on_data_sets_gets_a_longer_last_phase(service: Service) -> None:
    phases = (
        TrainingPhase(steps=60, resolution=64, batch_size=8),
        TrainingPhase(steps=40, resolution=128, batch_size=4),
    )
    old = _end(service, submit_scratch(service, phases=phases), 55)
    new = longer(service, old, 250)
    assert [phase["steps"] for phase in json.loads(row(service, new)["spec"])["phases"]] == [60, 190]
    assert row(service, new)["steps"] == 250
    assert [found.step for found in service.claim(service.join("node-b")).resume] == [55]


def test_what_follows_an_interruption_is_its_own_checkpoint_and_before_that_the_old_jobs(service: Service) -> None:
    old = ended(service, 90)
    longer(service, old)
    node = service.join("node-b")
    service.claim(node)
    service.wait(60)
    service.tick()
    again = service.claim(node)
    assert [found.step for found in again.resume] == [90]
    commit(service, node, again, 110)
    service.wait(60)
    service.tick()
    assert [found.step for found in service.claim(node).resume] == [110]


# What is shown before


def test_what_the_learning_rate_does_is_shown_and_nothing_changes(service: Service) -> None:
    old = ended(service, 90, **COSINE)
    before = service.dump()
    found = shown(service, old, 200)
    assert (found.from_step, found.reached_step, found.steps, found.steps_before) == (90, 100, 200, 100)
    keep, stretch = found.ways
    assert (keep.schedule, stretch.schedule, found.schedule) == ("keep", "stretch", "stretch")
    told = [
        (each.step, f"{each.learning_rate:.3g}")
        for each in (stretch.before, stretch.start, stretch.middle, stretch.end)
    ]
    assert told == [(100, "2.47e-07"), (91, "0.000578"), (145, "0.000181"), (200, "6.17e-08")]
    assert [f"{each.learning_rate:.3g}" for each in (keep.start, keep.middle, keep.end)] == [
        "2.45e-05",
        "2.47e-07",
        "2.47e-07",
    ]
    assert found.notes == (
        "the newest checkpoint is that of step 90: steps 91 to 100 are trained again, with the rates of the new schedule",
    )
    assert "trained again, with the same learning rates" in shown(service, old, 200, "keep").notes[0]
    assert service.dump() == before
    assert parse_spec(to_json(found.spec)) == spec_of(service, longer(service, old, 200))


def test_without_a_schedule_there_is_one_way(service: Service) -> None:
    found = shown(service, ended(service, 90))
    assert (found.schedule, [way.schedule for way in found.ways]) == ("constant", ["constant"])


def test_the_plan_of_its_spec_says_its_rates_too(service: Service) -> None:
    found = shown(service, ended(service, 90, **COSINE))
    answer = service.ask("POST", "/v1/plans", json={"spec": found.spec}).json()
    assert [rate["step"] for rate in answer["rates"]] == [91, 120, 150]
    assert answer["rates"][0]["learning_rate"] == found.ways[1].start.learning_rate


# Every end


def finished_early(service: Service, at: int) -> str:
    node = service.join("node-a")
    job = service.submit()
    training = service.claim(node)
    wishes.ask_to_finish(service.deployment, job, service.now_ms)
    commit(service, node, training, at)
    outcome = replace(result(service, node, training.hold), steps=at)
    finish_attempt(service.deployment, node, training.hold, outcome, service.now_ms)
    return job


def test_a_job_that_was_finished_early_is_extended_to_any_step_after_the_one_that_it_reached(service: Service) -> None:
    old = finished_early(service, 30)
    with pytest.raises(BadInput, match=f"{old} has reached step 30, so it cannot be extended to 30"):
        longer(service, old, 30)
    assert spec_of(service, longer(service, old, 31)).steps == 31
    assert [found.step for found in service.claim(service.join("node-b")).resume] == [30]


def canceled(service: Service, *at: int, node: str = "node-a", **settings: Any) -> str:
    job, there = service.submit(**settings), service.join(node)
    training = service.claim(there)
    for step in at:
        commit(service, there, training, step)
    beat(service, there, training.hold, (at or (0,))[-1] + 5)
    steer.cancel(service.deployment, job, service.now_ms)
    return job


def test_one_that_was_canceled_has_reached_its_checkpoint(service: Service) -> None:
    old = canceled(service, 30)
    assert (shown(service, old, 31).reached_step, shown(service, old, 31).notes) == (30, ())
    with pytest.raises(BadInput, match="has reached step 30"):
        longer(service, old, 30)
    longer(service, old, 100)


def test_an_extended_job_that_ended_is_extended_again_from_its_own_checkpoint_or_from_the_first_ones(
    service: Service,
) -> None:
    old = ended(service, 90)
    between = longer(service, old)
    steer.cancel(service.deployment, between, service.now_ms)
    third = longer(service, between, 200)
    assert json.loads(row(service, third)["spec"])["continues"]["job"] == old
    node = service.join("node-b")
    training = service.claim(node)
    assert [found.step for found in training.resume] == [90]
    commit(service, node, training, 190)
    succeed(service, node, training.hold)
    continues = spec_of(service, longer(service, third, 300)).continues
    assert continues is not None
    assert (continues.job, continues.step) == (third, 190)
    assert continues.spec_hash == spec_hash(spec_of(service, third)) == row(service, third)["spec_hash"]


# Retried


def test_one_that_is_retried_begins_where_it_began_the_first_time(service: Service) -> None:
    old = ended(service, 40, 90)
    new = longer(service, old)
    node = service.join("node-b")
    training = service.claim(node)
    commit(service, node, training, 110)
    steer.cancel(service.deployment, new, service.now_ms)
    again = steer.submit_again(service.deployment, PROJECT, new, service.now_ms)
    assert row(service, again)["spec"] == row(service, new)["spec"]
    assert [found.step for found in service.claim(node).resume] == [90]
    steer.cancel(service.deployment, again, service.now_ms)
    steer.submit_again(service.deployment, PROJECT, new, service.now_ms, from_checkpoint=True)
    assert [found.step for found in service.claim(node).resume] == [110]


def test_one_whose_beginning_has_gone_is_retried_from_its_own_checkpoint_alone(service: Service) -> None:
    old = ended(service, 90)
    new = longer(service, old)
    node = service.join("node-b")
    training = service.claim(node)
    commit(service, node, training, 110)
    steer.cancel(service.deployment, new, service.now_ms)
    after(service, 2)
    with pytest.raises(BadInput, match=f"{new} continues step 90 of {old}, which keeps no checkpoint") as error:
        steer.submit_again(service.deployment, PROJECT, new, service.now_ms)
    assert "--from-checkpoint" in str(error.value.hint)
    steer.submit_again(service.deployment, PROJECT, new, service.now_ms, from_checkpoint=True)


# What is kept for it


def test_the_checkpoint_stays_until_the_new_job_has_its_own(service: Service) -> None:
    old = ended(service, 90)
    new = longer(service, old)
    steer.pause(service.deployment, new, service.now_ms)
    after(service, 8)
    assert steps(service, old) == [90]
    with pytest.raises(BadInput, match=f"{new} begins from the checkpoint of {old}"):
        remove(service.deployment, old, service.now_ms)
    steer.resume(service.deployment, new, service.now_ms)
    node = service.join("node-b")
    commit(service, node, service.claim(node), 110)
    after(service, 0)
    assert (steps(service, old), steps(service, new)) == ([], [110])


def test_one_that_is_deleted_in_the_moment_of_the_extension_is_no_beginning(service: Service) -> None:
    """Also if another checkpoint of the job stays, which is pinned."""
    old = ended(service, 40, 90)
    service.ask("PUT", f"/v1/jobs/{old}/checkpoints/40/pin")
    service.wait(2 * 86_400)
    store = Before(service.store, "apply", lambda: expire_checkpoints(service.deployment, service.now_ms))
    with pytest.raises(BadInput, match=f"{old} keeps no checkpoint of step 90 any more"):
        extend(replace(service.deployment, store=store), PROJECT, row(service, old), 150, "stretch", service.now_ms)
    assert steps(service, old) == [40]
    assert shown(service, old).from_step == 40


def test_one_that_is_extended_in_the_moment_of_its_deletion_stays(service: Service) -> None:
    old = ended(service, 90)
    service.wait(2 * 86_400)
    store = Before(service.store, "apply", lambda: longer(service, old))
    expire_checkpoints(replace(service.deployment, store=store), service.now_ms)
    assert steps(service, old) == [90]


def test_a_damaged_one_is_replaced_by_no_other(service: Service) -> None:
    """Its node ends the job: the old one may be extended again, from what it still has."""
    old = ended(service, 40, 90)
    longer(service, old)
    node = service.join("node-b")
    given = service.claim(node)
    reject_damaged(
        service.deployment, node, given.hold, Reject(checkpoint=given.resume[0].id, because="x"), service.now_ms
    )
    service.wait(60)
    service.tick()
    assert service.claim(node).resume == ()
    assert shown(service, old).from_step == 40


# Refused


def rendering(service: Service) -> str:
    node = service.join("node-a")
    service.join("node-b")
    job = service.submit(sample_every_steps=10)
    training = service.claim(node)
    commit(service, node, training, 10)
    assert open_samples(service, job)
    return service.store.load("open_samples", parent=job)[0]["id"]


def running(service: Service) -> str:
    job = service.submit()
    service.claim(service.join())
    return job


def a_command(service: Service) -> str:
    spec = to_json(CommandSpec(command=("true",)))
    return submit(service.deployment, PROJECT, spec, name="", request=None, now_ms=service.now_ms)


def aged(service: Service) -> str:
    job = ended(service, 90)
    after(service, 2)
    assert stored(service, "checkpoints") == []
    return job


REFUSED: dict[str, tuple[Callable[[Service], str], str, str]] = {
    "running": (running, "is running: only a job that has ended can be extended", "finish it first"),
    "queued": (lambda service: service.submit(), "is queued: only a job that has ended", "finish it first"),
    "pictures": (rendering, "renders pictures and cannot be extended", "the job that trains"),
    "a command": (a_command, "runs a command", "gangline run"),
    "no checkpoint": (ended, "ended before its first checkpoint", "submit a job"),
    "aged": (
        aged,
        r"keeps no checkpoint any more \(1 checkpoint was deleted: the job succeeded more than 1 day",
        "--pin",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_extended_says_why_and_what_to_do(service: Service, why: str) -> None:
    make, says, hint = REFUSED[why]
    job = make(service)
    for act in (longer, shown):
        with pytest.raises(BadInput, match=says) as error:
            act(service, job)
        assert hint in str(error.value.hint)
    assert service.ask("POST", f"/v1/jobs/{job}/extend", params={"steps": "150"}).status_code == 422


def test_it_takes_more_steps_than_before_and_not_more_than_there_can_be(service: Service) -> None:
    old = ended(service, 90)
    for to in (1, 90, 100):
        with pytest.raises(BadInput, match="has reached step 100") as error:
            longer(service, old, to)
        assert error.value.hint == "give more steps than the 100 that it has, counted in all: 200 adds 100"
    with pytest.raises(BadInput, match=f"{STEPS_MAX + 1} steps are more than a job may have"):
        longer(service, old, STEPS_MAX + 1)
    with pytest.raises(InvalidSpec, match="steps"):
        longer(service, old, 10_000_001)
    assert len(page_of_jobs(service.deployment, PROJECT, JobFilters(), service.now_ms, limit=9).jobs) == 1


def test_settings_that_do_not_allow_as_few_steps_are_named(service: Service) -> None:
    old = canceled(service, 10, schedule="cosine_with_restarts", schedule_cycles=30)
    with pytest.raises(InvalidSpec, match="schedule_cycles: is more than the 20 steps"):
        longer(service, old, 20)
    longer(service, old, 20 + 10)


def test_nobody_submits_a_spec_that_continues_a_job(service: Service) -> None:
    spec = shown(service, ended(service, 90)).spec
    refused = service.ask("POST", "/v1/jobs", json={"spec": spec})
    assert refused.status_code == 422 and "gangline jobs extend" in refused.json()["hint"]


# On the command line


@pytest.fixture
def command(service: Service, typed: Typed) -> Iterator[Callable[..., tuple[int, str, str]]]:
    with serving(service.app) as served:

        def run(*words: object) -> tuple[int, str, str]:
            return typed("jobs", "extend", *words, "--server", served.url, "--token", OPERATOR)

        yield run


Command = Callable[..., tuple[int, str, str]]


def test_the_command_shows_a_table_and_asks(
    service: Service, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ended(service, 90, **COSINE)
    asked = list[str]()

    def answer(question: str) -> str:
        asked.append(question)
        return "n" if len(asked) == 1 else "y"

    monkeypatch.setattr("builtins.input", answer)
    code, printed, said = command(old, "--steps", 200)
    assert (code, newest(service)) == (1, [old]) and asked == ["Extend it? [y/N] "]
    for word in ("old end, step 100", "start, step 91", "middle, step 145", "end, step 200", "stretch *", "0.000578"):
        assert word in printed
    said = " ".join(said.split())
    assert f"A new job continues {old} (sks dog) from step 90: it trains 110 steps, to step 200" in said
    assert "steps 91 to 100 are trained again" in said and "cannot be undone" not in said
    code, printed, _ = command(old, "--steps", 200, "--schedule", "keep")
    assert code == 0 and newest(service)[0] in printed
    assert spec_of(service, newest(service)[0]).schedule_steps == 100


def test_the_command_tells_programs_what_it_would_do_and_what_it_did(service: Service, command: Command) -> None:
    old = ended(service, 90)
    code, printed, _ = command(old, "--steps", 150, "--plan", "-o", "json")
    assert code == 0 and json.loads(printed)["ways"][0]["start"] == {"step": 91, "learning_rate": 1e-4}
    assert newest(service) == [old]
    code, printed, _ = command(old, "--steps", 150, "--yes", "-o", "json")
    assert code == 0 and json.loads(printed)["summary"]["id"] == newest(service)[0] != old


def test_the_command_estimates_the_steps_that_are_left(service: Service, command: Command) -> None:
    job, node = service.submit(), service.join(gpu="RTX 4090")
    training = service.claim(node)
    beat(service, node, training.hold, 50, seconds_per_step=10.0)
    commit(service, node, training, 90)
    succeed(service, node, training.hold)
    code, _, said = command(job, "--steps", 150, "--plan")
    said = " ".join(said.split())
    assert code == 0 and "time 8 to 13 min on an RTX 4090: this workload ran once on RTX 4090 before" in said


def test_a_command_that_nobody_can_answer_needs_yes(
    service: Service, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", closed)
    code, _, said = command(ended(service, 90), "--steps", 150)
    assert code == 2 and "pass --yes to extend without confirmation" in " ".join(said.split())


def test_jobs_show_says_what_it_continues(service: Service, typed: Typed) -> None:
    old = ended(service, 90)
    new = longer(service, old)
    with serving(service.app) as served:
        _, printed, _ = typed("jobs", "show", new, "--server", served.url, "--token", OPERATOR)
    assert f"step 90 of {old}" in printed


def test_an_assignment_without_it_says_nothing_of_it(service: Service) -> None:
    """So a worker that is older than it trains every other job."""
    service.submit()
    node = service.join()
    given: Assignment = service.claim(node)
    assert "continues" not in given.spec
    succeed(service, node, given.hold)
