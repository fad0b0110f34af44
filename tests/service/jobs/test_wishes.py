"""What an owner asks of a job while it runs is done once, whatever becomes of its node meanwhile."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.errors import BadInput
from gangline.core.parsing import to_json
from gangline.core.specs.spec import parse_spec
from gangline.ports.server import Beaten, Committed, Done, Hold, Refused
from gangline.ports.store import Row
from gangline.service.jobs import query, steer, wishes
from gangline.service.jobs.finish import finish as finish_attempt
from tests.service.conftest import PROJECT, Service
from tests.service.jobs.test_one_at_a_time import result
from tests.service.jobs.test_samples import commit, open_samples, shown, train
from tests.service.test_rules import beat, because, kinds, release, succeed


def save(service: Service, job: str) -> bool:
    return wishes.ask_to_save(service.deployment, job, service.now_ms)


def sample(service: Service, job: str) -> bool:
    return wishes.ask_for_samples(service.deployment, job, service.now_ms)


def asked(service: Service, job: str) -> tuple[str, ...]:
    return query.job(service.deployment, PROJECT, job, service.now_ms).asked


def said(service: Service, job: str, kind: str) -> list[str]:
    events = query.events_after(service.deployment, PROJECT, job, 0)
    return [event.because for event in events if event.kind == kind]


# A checkpoint


def test_the_next_heartbeat_asks_for_a_checkpoint_until_it_is_there(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    assert beat(service, node, training.hold, 3) == Beaten()
    assert save(service, training.job)
    assert asked(service, training.job) == ("save",)
    assert [beat(service, node, training.hold, step) for step in (4, 7)] == 2 * [Beaten(save=True)]
    assert commit(service, node, training, 6) == Committed()
    assert beat(service, node, training.hold, 8) == Beaten()
    assert asked(service, training.job) == ()
    assert said(service, training.job, "committed") == ["step 6, as its owner had asked"]


def test_a_checkpoint_of_before_is_not_the_one_that_was_asked_for(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    save(service, training.job)
    commit(service, node, training, 2)
    beat(service, node, training.hold, 5)
    commit(service, node, training, 5)
    assert beat(service, node, training.hold, 6) == Beaten(save=True)
    assert said(service, training.job, "committed") == ["step 2", "step 5"]


def test_who_asks_twice_asks_once_and_may_ask_again_later(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    assert [save(service, training.job) for _ in range(2)] == [True, False]
    beat(service, node, training.hold, 1)
    commit(service, node, training, 2)
    assert save(service, training.job)
    assert kinds(service, training.job).count("asked to save") == 2


def test_after_an_interruption_the_next_attempt_saves_once(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    save(service, training.job)
    assert beat(service, node, training.hold, 4) == Beaten(save=True)
    release(service, node, training.hold)
    again = service.claim(node)
    commit(service, node, again, 1)
    assert [beat(service, node, again.hold, step) for step in (2, 3)] == 2 * [Beaten(save=True)]
    commit(service, node, again, 3)
    assert beat(service, node, again.hold, 4) == Beaten()


def test_nothing_is_saved_where_nothing_runs(service: Service) -> None:
    job = service.submit()
    with pytest.raises(BadInput, match=f"{job} is queued: no node works on it"):
        save(service, job)
    node = service.join()
    succeed(service, node, service.claim(node).hold)
    with pytest.raises(BadInput, match=f"{job} has succeeded and cannot be saved"):
        save(service, job)


def test_a_job_that_ends_before_says_what_was_left_undone(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    save(service, training.job)
    service.wait(1)
    sample(service, training.job)
    succeed(service, node, training.hold)
    assert said(service, training.job, "not done") == [
        "the job ended before it could save a checkpoint and show what it had, as its owner had asked"
    ]
    assert asked(service, training.job) == ()


# Pictures


def test_pictures_are_of_the_next_checkpoint_by_another_node_that_has_time(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first, sample_every_steps=None)
    assert [sample(service, training.job) for _ in range(2)] == [True, False]
    assert beat(service, first, training.hold, 4) == Beaten(save=True)
    assert commit(service, first, training, 5) == Committed()
    assert open_samples(service, training.job) == [("queued", 5)]
    assert beat(service, first, training.hold, 6) == Beaten()
    assert service.claim(second).kind == "sample"


def test_where_no_other_node_has_time_its_own_renders_what_it_has_now(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    sample(service, training.job)
    beat(service, node, training.hold, 4)
    assert [commit(service, node, training, 5) for _ in range(2)] == 2 * [Committed(render=True, now=True)]
    assert beat(service, node, training.hold, 6) == Beaten()
    assert asked(service, training.job) == ("sample",)
    assert shown(service, node, training, 7) == Done()
    assert asked(service, training.job) == ()
    assert commit(service, node, training, 8) == Committed()


def test_a_node_that_is_lost_before_it_rendered_leaves_it_to_the_next(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    sample(service, training.job)
    beat(service, node, training.hold, 4)
    assert commit(service, node, training, 5) == Committed(render=True, now=True)
    release(service, node, training.hold)
    again = service.claim(node)
    assert beat(service, node, again.hold, 6) == Beaten(save=True)
    assert commit(service, node, again, 7) == Committed(render=True, now=True)
    shown(service, node, again, 8)
    assert beat(service, node, again.hold, 9) == Beaten()


def test_pictures_of_its_rhythm_are_not_those_that_were_asked_for(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    commit(service, node, training, 10)
    sample(service, training.job)
    beat(service, node, training.hold, 12)
    assert commit(service, node, training, 14) == Committed(render=True, now=True)
    shown(service, node, training, 10)
    assert asked(service, training.job) == ("sample",)
    shown(service, node, training, 15)
    assert asked(service, training.job) == ()


def test_a_job_that_waits_is_shown_by_its_newest_checkpoint(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    with pytest.raises(BadInput, match="nothing to show"):
        sample(service, service.submit())
    commit(service, node, training, 5)
    steer.pause(service.deployment, training.job, service.now_ms)
    release(service, node, training.hold)
    assert [sample(service, training.job) for _ in range(2)] == [True, False]
    assert open_samples(service, training.job) == [("queued", 5)]
    assert said(service, training.job, "asked to sample") == [
        "its owner wants pictures of what it has now: its checkpoint of step 5 is rendered"
    ]


def test_who_has_no_prompts_or_no_trainer_of_ours_is_told_so(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    commit(service, node, training, 5)
    sample(service, training.job)
    service.join("node-b")
    beat(service, node, training.hold, 6)
    commit(service, node, training, 7)
    (rendering,) = service.store.load("open_samples", parent=training.job)
    for ask in (save, sample):
        with pytest.raises(BadInput, match="renders pictures"):
            ask(service, rendering["id"])


# The end


def finish(service: Service, job: str) -> bool:
    return wishes.ask_to_finish(service.deployment, job, service.now_ms)


def end_at(service: Service, node: str, hold: Hold, step: int) -> Any:
    outcome = replace(result(service, node, hold), steps=step)
    return finish_attempt(service.deployment, node, hold, outcome, service.now_ms)


def summary(service: Service, job: str) -> tuple[str, int, int]:
    shown = query.job(service.deployment, PROJECT, job, service.now_ms).summary
    return shown.state, shown.step, shown.steps


def test_a_job_that_is_finished_early_succeeds_with_the_steps_that_it_took(service: Service) -> None:
    node = service.join()
    training = train(service, node, sample_result=True)
    assert [finish(service, training.job) for _ in range(2)] == [True, False]
    assert [beat(service, node, training.hold, step) for step in (4, 5)] == 2 * [Beaten(finish=True)]
    assert end_at(service, node, training.hold, 6) == Done()
    assert summary(service, training.job) == ("succeeded", 6, 100)
    assert because(service, training.job) == "finished on node-a at step 6 of 100, as its owner had asked"
    assert kinds(service, training.job)[-1] == "succeeded"
    (shows,) = service.store.load("open_samples", parent=training.job)
    assert shows["step"] == 6


def test_an_interruption_loses_no_wish_to_finish(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    finish(service, training.job)
    commit(service, node, training, 5)
    release(service, node, training.hold)
    again = service.claim(node)
    assert beat(service, node, again.hold, 5, phase="downloading", loss=None, training_s=None) == Beaten(finish=True)
    end_at(service, node, again.hold, 5)
    assert summary(service, training.job) == ("succeeded", 5, 100)


def test_one_that_is_paused_goes_to_a_node_that_writes_its_result(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    commit(service, node, training, 5)
    steer.pause(service.deployment, training.job, service.now_ms)
    release(service, node, training.hold)
    assert finish(service, training.job)
    assert service.state(training.job) == "queued"
    assert because(service, training.job) == "waits for a node, to be finished as its owner asked"
    assert beat(service, node, service.claim(node).hold, 5).finish  # type: ignore[union-attr]


def test_one_that_is_being_paused_is_finished_instead(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    steer.pause(service.deployment, training.job, service.now_ms)
    finish(service, training.job)
    release(service, node, training.hold)
    assert service.state(training.job) == "queued" and asked(service, training.job) == ("finish",)


def test_without_a_checkpoint_and_a_node_there_is_nothing_to_finish_with(service: Service) -> None:
    job = service.submit()
    with pytest.raises(BadInput, match=f"{job} is queued and has no checkpoint"):
        finish(service, job)
    steer.cancel(service.deployment, job, service.now_ms)
    with pytest.raises(BadInput, match="has been canceled and cannot be finished early"):
        finish(service, job)


def test_a_result_of_fewer_steps_that_nobody_asked_for_is_refused(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    refused = end_at(service, node, training.hold, 6)
    assert refused == Refused(because="it took 6 of its 100 steps, and nothing allows it to end early")


def test_a_result_of_fewer_steps_is_taken_of_a_job_that_stops_when_it_is_worse(service: Service) -> None:
    node = service.join()
    training = train(
        service,
        node,
        held_out=(service.upload(b"another photo", "other.jpg"),),
        held_out_every_steps=2,
        stop_when_worse=2,
    )
    assert end_at(service, node, training.hold, 6) == Done()
    assert summary(service, training.job) == ("succeeded", 6, 100)
    assert because(service, training.job) == "finished on node-a at step 6 of 100, as held-out samples became no better"


def test_one_that_was_at_its_end_anyway_was_not_finished_early(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    finish(service, training.job)
    end_at(service, node, training.hold, 100)
    assert summary(service, training.job) == ("succeeded", 100, 100)
    assert because(service, training.job) == "finished on node-a"


def test_it_is_asked_for_over_http(service: Service) -> None:
    node = service.join()
    training = train(service, node)
    answers: dict[str, Any] = {
        what: service.ask("POST", f"/v1/jobs/{training.job}/{what}").json() for what in ("save", "sample", "finish")
    }
    assert answers["save"]["asked"] == ["save"] and set(answers["sample"]["asked"]) == {"save", "sample"}
    refused = service.ask("POST", f"/v1/jobs/{service.submit()}/save")
    assert refused.status_code == 422 and "no node works on it" in refused.json()["detail"]
    assert because(service, training.job) and parse_spec(training.spec)


def test_a_job_that_ends_while_it_is_read_is_shown_as_it_was_at_one_moment(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = service.join()
    training = train(service, node, sample_every_steps=None)
    load, ends = service.store.load, [training]

    def read(name: str, /, **values: object) -> list[Row]:
        found = load(name, **values)
        if name == "attempts" and ends:
            succeed(service, node, ends.pop().hold)
        return found

    monkeypatch.setattr(service.store, "load", read)
    job = query.job(service.deployment, PROJECT, training.job, service.now_ms)
    assert (job.summary.state, [attempt.state for attempt in job.attempts]) == ("succeeded", ["succeeded"])


def test_a_job_says_whose_key_canceled_paused_or_resumed_it(service: Service) -> None:
    mara, kim = service.key("member", name="mara"), service.key("member", name="kim")
    job, other = (
        service.ask("POST", "/v1/jobs", mara, json={"spec": to_json(service.spec())}).json()["summary"]["id"]
        for _ in range(2)
    )

    def said(key: str, job: str, what: str) -> str:
        return service.ask("POST", f"/v1/jobs/{job}/{what}", key).json()["summary"]["because"]

    assert [said(mara, job, what) for what in ("pause", "cancel")] == ["paused by its owner", "canceled by its owner"]
    assert [said(kim, other, what) for what in ("pause", "cancel")] == ["paused by kim", "canceled by kim"]
    held = service.ask("POST", "/v1/jobs", mara, json={"spec": to_json(service.spec())}).json()["summary"]["id"]
    service.claim(service.join())
    assert [said(kim, held, what) for what in ("pause", "resume")] == [
        "paused by kim: its node saves first",
        "resumed by kim",
    ]
