"""Experiments over HTTP: what is submitted, shown, refused and steered."""

from typing import Any

import pytest

from gangline.core.errors import Unreachable
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase
from gangline.service.content.bases import BaseStatement, add
from gangline.service.controller import Controller
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.experiments.at_work import PATH, Worked, body, runs_of, shown, states, submit, tick, work, work_again
from tests.service.jobs.test_placement import tried
from tests.service.test_http import problem


def test_each_combination_is_a_job_with_a_name_of_its_own(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8], "learning_rate": [1e-4, 2e-4, 4e-4]}, at_once=2)
    assert (made["jobs"], made["settings"], made["state"]) == (6, ["rank", "learning_rate"], "running")
    assert made["counts"] == {"held": 5, "queued": 1}
    runs = runs_of(service, made["id"])
    assert [run["name"] for run in runs] == [f"ranks-{number:03d}" for number in range(1, 7)]
    assert runs[1]["settings"] == {"rank": 4, "learning_rate": 2e-4}
    job = service.ask("GET", f"/v1/jobs/{runs[1]['job']}").json()
    assert (job["spec"]["rank"], job["spec"]["learning_rate"], job["spec"]["output_name"]) == (4, 2e-4, "ranks-002")


def test_seeds_follow_that_of_the_spec_and_count_for_each_combination(service: Service) -> None:
    runs = runs_of(service, submit(service, seeds=3, settings={"seed": 7})["id"])
    assert [(run["settings"]["rank"], run["seed"]) for run in runs] == [(4, 7), (4, 8), (4, 9), (8, 7), (8, 8), (8, 9)]
    assert service.ask("GET", f"/v1/jobs/{runs[2]['job']}").json()["spec"]["seed"] == 9


def test_jobs_of_an_experiment_are_in_the_list_of_jobs_and_say_why_they_wait(service: Service) -> None:
    submit(service, at_once=1, labels={"team": "vision"})
    service.join("a")
    (held, first) = service.ask("GET", "/v1/jobs?label=team=vision").json()["jobs"]
    assert (held["state"], first["name"]) == ("queued", "ranks-001")
    assert first["because"] == "waits for its turn on a, as a job of its experiment ranks"
    assert held["because"] == "waits for its experiment ranks: 1 job in progress; 1 held: 1 job at a time"


def test_no_node_takes_a_held_job_and_nothing_counts_it_as_work(service: Service) -> None:
    submit(service, at_once=1)
    node = work(service, "a")
    assert service.claim_nothing(service.join("b"))
    assert service.store.load("needs", now=service.now_ms) == []
    assert service.store.load("queued_since", since=0) == []
    assert service.store.load("queued_for_long", before=2**62) == []
    assert service.store.load("waiting_projects") == []
    assert service.store.load("jobs_before", project="default", priority=0, limit=9)[0]["jobs"] == 0
    assert states(service, shown_first(service))[0] == "running" and node.job


def shown_first(service: Service) -> str:
    return service.ask("GET", PATH).json()["experiments"][0]["id"]


def test_the_next_job_is_released_when_one_has_ended(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16]}, at_once=1)["id"]
    first = work(service, "a")
    first.train(100)
    first.end()
    tick(service)
    assert states(service, made) == ["succeeded", "queued", "held"]
    assert work_again(first).job == runs_of(service, made)[1]["job"]


def test_between_two_ticks_the_next_job_is_released_as_soon_as_one_has_ended(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16]}, at_once=1)["id"]
    controller = Controller(service.deployment)
    controller.tick(service.now_ms)
    first = work(service, "a")
    first.train(100)
    service.wait(0.5)
    controller.glance(service.now_ms)
    assert states(service, made) == ["running", "held", "held"]
    first.end()
    service.wait(0.5)
    controller.glance(service.now_ms)
    assert states(service, made) == ["succeeded", "queued", "held"]


def test_an_interrupted_job_keeps_its_place(service: Service) -> None:
    made = submit(service, at_once=1)["id"]
    first = work(service, "a")
    first.train(10)
    first.hand_back()
    tick(service)
    assert states(service, made) == ["queued", "held"]
    assert work_again(first).job == first.job


def test_latents_and_embeddings_are_prepared_by_one_job_before_the_others_begin(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16], "resolution": [512, 1024]})["id"]
    assert states(service, made) == ["queued", "queued", "held", "held", "held", "held"]
    assert "prepares latents and embeddings" in runs_of(service, made)[2]["because"]
    first = work(service, "a")
    tick(service)
    assert states(service, made)[2:] == ["held"] * 4, "it has not trained yet"
    first.train(1)
    tick(service)
    assert states(service, made) == ["running", "queued", "queued", "held", "queued", "held"]


def test_a_failed_first_job_leaves_the_preparing_to_the_next(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16]})["id"]
    first = runs_of(service, made)[0]["job"]
    service.ask("POST", f"/v1/jobs/{first}/cancel")
    tick(service)
    assert states(service, made) == ["canceled", "queued", "held"]


def test_a_spent_budget_pauses_the_jobs_and_a_raised_one_lets_them_continue(service: Service) -> None:
    made = submit(service, budget_usd=0.01)["id"]  # a node costs $0.36 an hour, a hundred seconds $0.01
    first = work(service, "a")
    first.train(1)
    tick(service, 40)
    assert states(service, made) == ["running", "held"], "without a price of a step, one at a time"
    first.train(2)
    tick(service, 40)
    first.train(3)
    tick(service, 40)
    found = shown(service, made)
    assert "its budget of $0.01 is spent" in found["because"] and found["spent_usd"] >= 0.01
    first.hand_back()
    assert states(service, made) == ["paused", "held"]
    assert "its budget of $0.01 is spent" in runs_of(service, made)[0]["because"]
    assert service.ask("PATCH", f"{PATH}/{made}", json={"budget_usd": 1.0}).json()["budget_usd"] == 1.0
    assert states(service, made) == ["queued", "held"]
    assert work_again(first).job == first.job


def test_a_limit_is_raised_and_taken_away(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16, 32]}, at_once=1, settings={"crop": "random", "crops": 1}, seeds=1)[
        "id"
    ]
    work(service, "a").train(1)
    assert service.ask("PATCH", f"{PATH}/{made}", json={"at_once": 2}).json()["at_once"] == 2
    assert states(service, made) == ["running", "queued", "held", "held"]
    assert service.ask("PATCH", f"{PATH}/{made}", json={"any_number": True}).json()["at_once"] is None
    assert states(service, made) == ["running", "queued", "queued", "queued"]


def test_stop_cancels_every_job_that_has_not_ended_and_ends_the_experiment(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16]}, at_once=1)["id"]
    first = work(service, "a")
    found = service.ask("POST", f"{PATH}/{made}/stop").json()
    assert (found["state"], found["counts"]) == ("ended", {"canceled": 3})
    assert found["because"] == "stopped; 3 canceled"
    assert {run["because"] for run in runs_of(service, made)} == {"its experiment ranks was stopped"}
    assert service.ask("POST", f"{PATH}/{made}/stop").json()["state"] == "ended", "again"
    refused = problem(service.ask("POST", f"{PATH}/{made}/resume"), 422, "bad-input")
    assert "was stopped or has ended" in refused["detail"] and first.job
    assert problem(service.ask("PATCH", f"{PATH}/{made}", json={"at_once": 3}), 422, "bad-input")


def test_the_best_job_is_recorded_labelled_and_its_last_checkpoint_is_kept(service: Service) -> None:
    held_out = service.upload(b"a held-out photo", "h.png")
    made = submit(service, settings={"held_out": (held_out,), "held_out_every_steps": 10})
    assert made["measure"] == "held_out_loss"
    for name, loss in (("a", 0.4), ("b", 0.3)):
        worked = work(service, name)
        worked.train(50, loss)
        worked.train(100, loss + 0.1)
        worked.save(50)
        worked.end()
        tick(service)
    found, runs = shown(service, made["id"]), runs_of(service, made["id"])
    assert (found["state"], found["best"]["job"], found["best"]["value"]) == ("ended", runs[1]["job"], 0.3)
    assert (found["best"]["step"], found["best"]["seeds"]) == (50, 1)
    assert found["because"] == "2 succeeded"
    assert found["best"]["because"] == "ranks-002 with rank=8 has a held-out loss of 0.3, the next combination has 0.4"
    assert [run["best_held_out_loss"] for run in runs] == [0.4, 0.3]
    assert [run["held_out_loss"] for run in runs] == [0.5, 0.4]
    assert service.ask("GET", f"/v1/jobs/{runs[1]['job']}").json()["summary"]["labels"] == {"best": "ranks"}
    pinned = [service.ask("GET", f"/v1/jobs/{run['job']}/checkpoints").json()[0]["pinned"] for run in runs]
    assert pinned == [False, True]
    before = service.look("SELECT * FROM experiment")
    tick(service)
    assert service.look("SELECT * FROM experiment") == before, "it ends once"
    again = service.ask("POST", f"/v1/jobs/{runs[1]['job']}/clone", json={"set": {"rank": 2}})
    assert again.status_code == 201, again.text
    assert again.json()["summary"]["labels"] == {}, "the clone is not the best of anything"


def test_halving_pauses_at_the_rung_and_lets_the_best_continue(service: Service) -> None:
    held_out = service.upload(b"a held-out photo", "h.png")
    settings = {"held_out": (held_out,), "held_out_every_steps": 10}
    made = submit(service, settings=settings, vary={"rank": [4, 8, 16]}, halving={"min_steps": 20}, at_once=1)["id"]
    for number, loss in enumerate((0.5, 0.3, 0.4), 1):
        worked = work(service, f"node-{number}")
        worked.train(10, 0.1)
        tick(service)
        worked.train(20, loss)
        worked.save(20)
        tick(service)
        if number < 3:  # the last one is ended at once, as all have got there
            assert "paused at step 20 by successive halving until" in runs_of(service, made)[number - 1]["because"]
            worked.hand_back()
            tick(service)
    runs = runs_of(service, made)
    assert [(run["state"], run["rung"]) for run in runs] == [("canceled", 0), ("queued", 1), ("canceled", 0)]
    assert runs[0]["because"] == (
        "ended by halving: its held-out loss at step 20 was 0.5, number 3 of 3, and the best 1 continued"
    )
    saved = shown(service, made)["saved"]
    assert (saved["jobs"], saved["steps"]) == (2, 160)
    last = work(service, "last")
    assert last.job == runs[1]["job"]
    for step in (60, 100):
        last.train(step, 0.2)
        tick(service)
    last.end()
    tick(service)
    assert shown(service, made)["best"]["job"] == last.job


def test_a_job_without_a_node_is_at_its_newest_checkpoint_though_no_heartbeat_named_that_step(service: Service) -> None:
    """Steps of a job of some seconds are between two heartbeats: `saved` and the page of the job must agree."""
    held_out = service.upload(b"a held-out photo", "h.png")
    settings = {"held_out": (held_out,), "held_out_every_steps": 10}
    made = submit(service, settings=settings, halving={"min_steps": 20}, at_once=1)["id"]
    for number, loss in enumerate((0.5, 0.3), 1):
        worked = work(service, f"node-{number}")
        worked.train(8)
        worked.measure(20, loss)
        worked.save(20)
        tick(service)
        if number == 1:
            worked.hand_back()
            tick(service)
            assert runs_of(service, made)[0]["step"] == 20
    first, second = runs_of(service, made)
    assert (first["state"], first["step"], second["step"]) == ("canceled", 20, 20)
    saved = shown(service, made)["saved"]
    assert (saved["jobs"], saved["steps"]) == (1, first["steps"] - 20)


def at_the_rung(service: Service) -> tuple[str, Worked]:
    """Return an experiment of two jobs, and its first one, which halving has paused at its rung with the better loss."""
    held_out = service.upload(b"a held-out photo", "h.png")
    settings = {"held_out": (held_out,), "held_out_every_steps": 10}
    made = submit(service, settings=settings, halving={"min_steps": 20}, at_once=1)["id"]
    first = work(service, "first")
    first.train(20, 0.1)
    tick(service)
    first.hand_back()
    tick(service)
    return made, first


def test_a_job_that_its_owner_pauses_stays_paused_though_its_experiment_had_paused_it_before(service: Service) -> None:
    made, first = at_the_rung(service)
    assert service.ask("POST", f"/v1/jobs/{first.job}/pause").status_code == 200
    assert runs_of(service, made)[0]["because"] == "paused by its owner"
    second = work(service, "second")
    second.train(20, 0.3)
    tick(service)
    tick(service)
    runs = runs_of(service, made)
    assert [(run["state"], run["rung"]) for run in runs] == [("paused", 1), ("canceled", 0)]
    service.ask("POST", f"/v1/jobs/{first.job}/resume")
    assert work_again(first).job == first.job


def test_a_node_hears_that_its_job_continues_as_the_budget_was_raised(service: Service) -> None:
    made = submit(service, budget_usd=0.01)["id"]
    first = work(service, "a")
    for step in (1, 2, 3):
        first.train(step)
        tick(service, 40)
    service.ask("PATCH", f"{PATH}/{made}", json={"budget_usd": 1.0})
    assert service.look("SELECT stop FROM lease") == [{"stop": "continues, as the budget of its experiment was raised"}]


def test_an_experiment_of_which_only_its_owner_can_resume_a_job_is_looked_at_once_more(service: Service) -> None:
    made, _ = at_the_rung(service)
    runs = runs_of(service, made)
    service.ask("POST", f"/v1/jobs/{runs[1]['job']}/pause")
    tick(service)
    assert service.store.load("open_experiments") == []
    assert shown(service, made)["because"] == "0 jobs in progress; 2 paused"
    service.ask("POST", f"/v1/jobs/{runs[1]['job']}/resume")
    assert [row["id"] for row in service.store.load("open_experiments")] == [made]
    service.ask("POST", f"/v1/jobs/{runs[1]['job']}/pause")
    tick(service)
    assert service.store.load("open_experiments") == []
    assert service.ask("POST", f"{PATH}/{made}/stop").json()["state"] == "ended"


def test_a_running_job_is_summed_up_again_once_it_has_run_a_fiftieth_longer_and_at_once_when_it_stops(
    service: Service,
) -> None:
    made = submit(service)["id"]
    worked = work(service, "node-a")
    for step in range(12):
        worked.train(step)
        tick(service, 40)
    worked.train(12, 0.5)
    tick(service, 0)

    def after(wait_s: float, step: int, held_out_loss: float) -> float:
        service.wait(wait_s)
        worked.train(step, held_out_loss)
        tick(service, 0)
        return runs_of(service, made)[0]["held_out_loss"]

    assert after(5, 13, 0.4) == 0.5
    assert after(5, 14, 0.3) == 0.3
    service.wait(1)
    worked.train(15, 0.2)
    worked.hand_back()
    tick(service, 0)
    assert runs_of(service, made)[0]["held_out_loss"] == 0.2


def test_an_experiment_that_cannot_be_read_keeps_no_other_from_going_on(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = submit(service, name="broken", at_once=1)["id"], submit(service, name="other", at_once=1)["id"]
    service.execute(f"UPDATE experiment SET halving = 'no JSON' WHERE id = '{broken}'")
    service.ask("POST", f"/v1/jobs/{runs_of(service, other)[0]['job']}/cancel")
    tick(service)
    assert states(service, other) == ["canceled", "queued"]
    assert f"{broken} could not be looked at" in caplog.text


def test_the_best_one_stays_when_others_are_deleted_and_is_compared_with_those_that_are_left(service: Service) -> None:
    made = submit(service, vary={"rank": [4, 8, 16]})["id"]
    for _ in range(3):
        worked = work(service, f"node-{_}")
        worked.train(100)
        worked.end()
        tick(service)
    before, jobs = shown(service, made)["best"], [run["job"] for run in runs_of(service, made)]
    assert before["because"] == "ranks-001 with rank=4 has a loss of 0.5, the next combination has 0.5"
    assert service.ask("DELETE", f"/v1/jobs/{jobs[1]}").status_code == 200
    found = shown(service, made)
    assert (found["because"], found["best"]) == ("2 succeeded", before)
    assert service.ask("DELETE", f"/v1/jobs/{jobs[2]}").status_code == 200
    found = shown(service, made)
    alone = "ranks-001 with rank=4 is the only one with a result to compare: a loss of 0.5"
    assert (found["because"], found["best"]) == ("1 succeeded", before | {"because": alone})
    assert service.ask("GET", PATH).json()["experiments"] == [found]


def test_the_same_request_again_returns_the_same_experiment(service: Service) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": "once"}
    first, again = (service.http.post(PATH, json=body(service), headers=headers).json() for _ in range(2))
    assert first["id"] == again["id"]
    assert len(service.look("SELECT id FROM job")) == 2
    other = service.http.post(PATH, json=body(service, seeds=2), headers=headers)
    assert problem(other, 422, "bad-input")["detail"] == "this Idempotency-Key was used for another request"


def test_pages_of_experiments_are_in_order_and_a_foreign_cursor_is_refused(service: Service) -> None:
    made = [submit(service, name=f"e{number}")["id"] for number in range(3)]
    page = service.ask("GET", f"{PATH}?limit=2")
    assert [each["id"] for each in page.json()["experiments"]] == [made[2], made[1]]
    rest = service.ask("GET", PATH + page.headers["Link"][1:].partition(">")[0]).json()
    assert ([each["id"] for each in rest["experiments"]], rest["next"]) == ([made[0]], None)
    assert problem(service.ask("GET", f"{PATH}?cursor=abc"), 422, "bad-input")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"vary": {"rank": [4, 0]}}, "rank: must be 1 or more, not 0, in job 2 (rank=0)"),
        ({"vary": {"rank": [4, True]}}, "in job 2 (rank=true)"),
        ({"vary": {"alpha": [4, 4.0]}}, "alpha=4 and alpha=4.0 ask for the same job"),
        ({"vary": {"rank": [4]}, "unknown": 1}, "unknown"),
        ({"spec": {"deliver": "s3://a/b"}}, "deliver: the jobs of an experiment would overwrite each other's files"),
        ({"spec": {"photos": "s3://a/b/"}}, "photos: the server fetches the photos of single jobs only"),
        ({"vary": {"seed": [1, 2]}, "seeds": 2}, "seeds: the seed is varied already"),
        ({"halving": {"min_steps": 10}}, "halving compares held-out losses"),
        ({"vary": {"rank": list(range(1, 1002))}}, "1,000 parts"),
        ({"seeds": 501}, "the experiment would have 1,002 jobs, and the most is 1,000"),
        ({"labels": {f"l{number}": "" for number in range(32)}}, "has 32 labels"),
        ({"labels": {"best": "of all"}}, "has the key best, which the best job of an experiment gets"),
        ({"measure": "held_out_loss"}, "measure: no job would measure a held-out loss"),
        (
            {"seeds": 500, "spec": {"photos": [{"path": "a", "bytes": 1, "sha256": "a" * 64}] * 1000}},
            "1000 jobs would name 1,001,000 input files together, and the most is 1,000,000",
        ),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_a_sentence_and_nothing_is_submitted(
    service: Service, given: dict[str, Any], says: str
) -> None:
    wanted = body(service, **{name: value for name, value in given.items() if name != "spec"})
    wanted["spec"] |= given.get("spec", {})
    detail = refusal(service, PATH, wanted)
    assert says in detail
    assert service.look("SELECT id FROM job") == [] and service.look("SELECT id FROM experiment") == []
    assert refusal(service, f"{PATH}/plan", wanted) == detail


def refusal(service: Service, path: str, wanted: dict[str, Any]) -> str:
    answer = service.ask("POST", path, json=wanted)
    return problem(answer, 422, answer.json()["type"].rpartition("/")[2].rpartition(":")[2])["detail"]


def test_a_plan_says_what_it_would_take_and_what_is_shared(service: Service) -> None:
    found = service.ask("POST", f"{PATH}/plan", json=body(service, seeds=2)).json()
    assert (found["jobs"], found["combinations"], found["seeds"], found["steps"], found["prepares"]) == (
        4,
        2,
        2,
        400,
        1,
    )
    assert (found["hours_low"], found["usd_low"]) == (None, None)
    assert found["because"].startswith("4 jobs of 400 steps together, which prepare their photos once in all; ")
    alone = service.ask("POST", f"{PATH}/plan", json=body(service, vary={"rank": [4]})).json()
    assert alone["because"].startswith("1 job of 100 steps, which prepares its photos once; ")
    apart = service.ask("POST", f"{PATH}/plan", json=body(service, vary={"resolution": [64, 128]})).json()
    assert "which prepare their photos twice in all" in apart["because"]
    tried(service, ("T4", "m1", 2.0), ("T4", "m2", 4.0))
    service.join(gpu="T4")
    priced = service.ask("POST", f"{PATH}/plan", json=body(service, vary={"seed": [1, 2]})).json()
    assert (priced["hours_low"], priced["hours_high"]) == (pytest.approx(400 / 3600), pytest.approx(800 / 3600))
    assert (priced["usd_low"], priced["usd_high"]) == (pytest.approx(0.04), pytest.approx(0.08))


def test_another_projects_experiment_is_as_if_it_were_not_there(service: Service) -> None:
    made = submit(service)["id"]
    service.add_project("other")
    key = service.key("admin", "other")
    assert problem(service.ask("GET", f"{PATH}/{made}", key), 404, "not-found")
    assert service.ask("GET", PATH, key).json()["experiments"] == []


def test_the_spec_that_they_have_in_common_is_checked_though_every_job_overrides_it(service: Service) -> None:
    wanted = body(service) | {"spec": to_json(service.spec()) | {"rank": "eight"}}
    assert "rank" in refusal(service, PATH, wanted)


def _cannot_be_reached(_: str) -> bytes:
    raise Unreachable("the object store does not answer")


def test_without_an_interval_jobs_are_compared_by_the_held_out_loss_of_their_results(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = service.upload(b"a held-out photo", "h.png")
    made = submit(service, settings={"held_out": (held_out,)}, vary={"rank": [4, 8, 16]})
    assert made["measure"] == "held_out_loss"
    reports = ([0.1577, 0.1579], None, [0.1539])
    for name, losses in zip("abc", reports, strict=True):
        worked = work(service, name)
        worked.train(100)
        assert shown(service, made["id"])["state"] == "running"
        worked.end(
            {"held_out": [{"photo": "h.png", "loss_before": 1.0, "loss_after": loss} for loss in losses]}
            if losses
            else None
        )
        with monkeypatch.context() as away:
            away.setattr(service.deployment.objects, "read", _cannot_be_reached)
            tick(service)
        assert shown(service, made["id"])["state"] == "running"
        tick(service)
    found, runs = shown(service, made["id"]), runs_of(service, made["id"])
    assert [run["held_out_loss"] for run in runs] == [pytest.approx(0.1578), None, 0.1539]
    assert (found["best"]["job"], found["best"]["value"], found["best"]["step"]) == (runs[2]["job"], 0.1539, 100)


def test_each_named_base_of_a_grid_is_trained_with_what_belongs_to_it(service: Service) -> None:
    vae = service.upload(b"a vae of its own", "vae.safetensors")
    of_files = [FilesBase(files=(service.upload(content, "a.safetensors"),)) for content in (b"one", b"other")]
    own = FilesBase(files=(vae,))
    for name, base, its, kind in (("one", of_files[0], own, "v_prediction"), ("other", of_files[1], None, "epsilon")):
        said = BaseStatement(prediction_type=kind, licence=f"of {name}", family="sd1")
        add(service.deployment, PROJECT, name, base, its, said, service.now_ms)
    common = {
        "vae": to_json(own),
        "prediction_type": "v_prediction",
        "base_licence": "of one",
        "base": to_json(of_files[0]),
    }
    wanted = body(service, vary={"base": ["one", "other"]})
    wanted["spec"] |= common
    made = service.ask("POST", PATH, json=wanted)
    assert made.status_code == 201, made.text
    specs = [service.ask("GET", f"/v1/jobs/{run['job']}").json()["spec"] for run in runs_of(service, made.json()["id"])]
    assert [(spec["vae"] is None, spec["prediction_type"], spec["base_licence"]) for spec in specs] == [
        (False, "v_prediction", "of one"),
        (True, "epsilon", "of other"),
    ]
