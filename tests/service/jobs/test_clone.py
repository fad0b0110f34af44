"""A job is cloned with some other settings: the same inputs and labels, checked and pinned as any submission."""

import json
from typing import Any

import pytest

from gangline.core.errors import BadInput, NotFound
from gangline.core.files import File
from gangline.core.jobs.clone import CloneView
from gangline.core.parsing import InvalidSpec
from gangline.core.specs.fields import FilesBase, Needs
from gangline.service.jobs import query
from gangline.service.jobs.cloning.clone import clone, what_clones
from gangline.service.jobs.submit import Asker, queue
from tests.hub import COMMIT, REPO, FakeHub
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.content.test_bases import add, hub
from tests.service.jobs.test_extend import ended, longer, row
from tests.service.jobs.test_scratch import submit_scratch
from tests.service.test_http import problem

__all__ = ["hub"]  # a fixture


def cloned(service: Service, job: str, name: str = "", **changes: Any) -> str:
    service.wait(0.001)
    return clone(service.deployment, PROJECT, row(service, job), changes, service.now_ms, name=name)


def shown(service: Service, job: str, name: str = "", **changes: Any) -> CloneView:
    return what_clones(service.deployment, PROJECT, row(service, job), changes, name)


def spec_of(service: Service, job: str) -> dict[str, Any]:
    return json.loads(row(service, job)["spec"])


def test_a_clone_has_the_inputs_labels_and_settings_of_its_job_but_for_the_changes(service: Service) -> None:
    asker = Asker(labels={"team": "vision"})
    spec = service.spec(class_prompt="a dog", needs=Needs(pool="home"))
    old = queue(service.deployment, PROJECT, spec, name="mine", request=None, now_ms=service.now_ms, asker=asker)
    new = cloned(service, old, rank=8, learning_rate=3e-4, **{"needs.gpu_memory_gb": 20})
    before, after = spec_of(service, old), spec_of(service, new)
    changed = {"rank": 8, "learning_rate": 3e-4, "needs": before["needs"] | {"gpu_memory_gb": 20}}
    assert after == before | changed
    view = query.job(service.deployment, PROJECT, new, service.now_ms)
    assert (view.summary.name, view.summary.labels, view.summary.state) == ("mine", {"team": "vision"}, "queued")
    assert row(service, old)["spec_hash"] != row(service, new)["spec_hash"]


def test_a_job_of_any_state_is_cloned_and_stays_as_it_is(service: Service) -> None:
    done = ended(service, 90)
    before = query.job(service.deployment, PROJECT, done, service.now_ms)
    new = cloned(service, done, seed=7)
    assert query.job(service.deployment, PROJECT, done, service.now_ms) == before
    given = service.claim(service.join("node-b"))
    assert (given.job, given.resume) == (new, ())  # from step 0
    assert service.state(cloned(service, new, seed=8)) == "queued"


def test_the_plan_says_what_differs_and_changes_nothing(service: Service) -> None:
    old = service.submit(output_name="lora")
    before = service.dump()
    found = shown(service, old, rank=8, seed=0, **{"needs.pool": "home"})
    assert service.dump() == before
    assert [(each.setting, each.before, each.after) for each in found.changes] == [
        ("rank", 16, 8),
        ("needs.pool", "", "home"),
    ]
    assert (found.job, found.spec["rank"], found.notes) == (old, 8, ())
    assert "nothing differs" in shown(service, old).notes[0]


def test_a_clone_is_called_as_its_job_unless_it_is_named_or_does_something_else(service: Service) -> None:
    old = service.submit(prompt="sks dog")
    assert row(service, old)["name"] == "sks dog"
    assert row(service, cloned(service, old, rank=8))["name"] == "sks dog"
    assert row(service, cloned(service, old, prompt="xyz dog"))["name"] == "xyz dog"
    assert row(service, cloned(service, old, name="eight", rank=8))["name"] == "eight"


def test_the_lora_of_a_clone_has_a_file_name_of_its_own_if_the_clone_has_a_name_of_its_own(service: Service) -> None:
    body = {"spec": json.loads(row(service, service.submit())["spec"]), "name": "first"}
    old = service.ask("POST", "/v1/jobs", json=body).json()["summary"]["id"]
    assert spec_of(service, old)["output_name"] == "first"
    assert spec_of(service, cloned(service, old, name="second"))["output_name"] == "second"
    assert spec_of(service, cloned(service, old, rank=8))["output_name"] == "first"
    assert spec_of(service, cloned(service, old, name="second", output_name="third"))["output_name"] == "third"


def test_settings_that_cannot_be_used_are_refused_as_in_a_submission(service: Service) -> None:
    old = service.submit()
    for changes, said in (
        ({"rank": 0}, "rank: must be 1 or more"),
        ({"rank": "8"}, "rank: must be a number"),
        ({"nothing": 1}, "nothing: is not a known field"),
        ({"needs.nothing": 1}, "needs.nothing: is not a known field"),
        ({"schedule": "constant", "optimizer": "none"}, "optimizer"),
        ({"stop_when_worse": 2}, "stop_when_worse: needs held_out_every_steps"),
    ):
        with pytest.raises(InvalidSpec, match=said):
            cloned(service, old, **changes)


def test_a_changed_base_is_pinned_and_brings_its_own_licence_and_vae(service: Service, hub: FakeHub) -> None:
    old = service.submit(vae=FilesBase(files=(service.photo,)), base_licence="mine", prediction_type="epsilon")
    spec = spec_of(service, cloned(service, old, base=REPO))
    assert spec["base"] == {"source": "hub", "repo": REPO, "revision": COMMIT}
    assert (spec["vae"], spec["base_licence"], spec["prediction_type"]) == (None, "", "auto")
    found = {each.setting: each.after for each in shown(service, old, base=REPO).changes}
    assert found == {
        "base": f"{REPO}@{COMMIT[:12]}",
        "vae": None,
        "prediction_type": "auto",
        "base_licence": "",
    }


def test_a_base_is_changed_to_one_that_the_project_has_a_name_for(service: Service, hub: FakeHub) -> None:
    add(service, "tiny", prediction_type="v_prediction")
    old = service.submit(seed=3)
    spec = spec_of(service, cloned(service, old, base="tiny"))
    assert (spec["base"]["repo"], spec["prediction_type"], spec["seed"]) == (REPO, "v_prediction", 3)
    with pytest.raises(NotFound, match="nowhere"):
        cloned(service, old, base="nowhere")


@pytest.mark.parametrize("role", ["photos", "captions", "held_out", "continues", "kind", "init_lora"])
def test_a_clone_cannot_have_other_inputs(service: Service, role: str) -> None:
    old = service.submit()
    with pytest.raises(BadInput, match=f"{role}: a clone has that of its job"):
        cloned(service, old, **{role: []})


def test_a_job_that_continues_another_is_not_cloned(service: Service) -> None:
    old = ended(service, 90)
    new = longer(service, old)
    with pytest.raises(BadInput, match=f"continues step 90 of {old}") as refused:
        cloned(service, new, seed=7)
    assert refused.value.hint == f"clone {old}"


def test_a_training_on_data_sets_is_cloned(service: Service) -> None:
    old = submit_scratch(service)
    new = cloned(service, old, learning_rate=1e-5)
    assert spec_of(service, new) == spec_of(service, old) | {"learning_rate": 1e-5}


def test_photos_that_are_gone_are_asked_for(service: Service) -> None:
    gone = File(path="b.png", bytes=3, sha256="1" * 64)
    old = service.submit()
    spec = json.dumps(spec_of(service, old) | {"photos": [{"path": "b.png", "bytes": 3, "sha256": gone.sha256}]})
    service.execute(f"UPDATE job SET spec = '{spec}' WHERE id = '{old}'")
    with pytest.raises(BadInput, match=r"b\.png"):
        cloned(service, old, seed=7)


def test_a_repeated_request_makes_one_clone(service: Service) -> None:
    old, headers = service.submit(), {"Authorization": f"Bearer {OPERATOR}", "Idempotency-Key": "once"}
    body = {"changes": {"rank": 8}, "name": "eight"}
    first, again = (
        service.http.post(f"/v1/jobs/{old}/clone", json=body, headers=headers).json()["summary"]["id"] for _ in range(2)
    )
    assert first == again
    other = service.http.post(f"/v1/jobs/{old}/clone", json={"changes": {"rank": 16}}, headers=headers)
    assert "Idempotency-Key was used for another request" in problem(other, 422, "bad-input")["detail"]


def test_too_many_changes_are_refused(service: Service) -> None:
    old = service.submit()
    body = {"changes": {f"setting_{number}": 1 for number in range(201)}}
    answer = service.ask("POST", f"/v1/jobs/{old}/clone", json=body)
    assert "201 settings" in problem(answer, 422, "bad-input")["detail"]
