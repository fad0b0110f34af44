"""The step of a job that its owner chose: its weights stay, and a label finds the job."""

import pytest

from gangline.core.runs.contract import picture_name
from gangline.service.jobs import steer
from tests.service.conftest import Service
from tests.service.datasets.conftest import picture
from tests.service.pictures.conftest import Album
from tests.service.pictures.test_thumbnails import later

LORA_FILE = "sks-dog.safetensors"


def winners(album: Album) -> list[int]:
    return sorted({row["step"] for row in album.rows() if row["winner"]})


def test_the_weights_of_the_chosen_step_stay_and_a_label_finds_the_job(album: Album) -> None:
    for step in (10, 20):
        album.save(step)
    album.show_all(10, 20)
    answer = album.choose(10)
    assert (answer.status_code, answer.json()) == (200, {"job": album.job, "step": 10, "weights": "checkpoint"})
    assert (album.pinned(), winners(album), album.labels()) == ([10], [10], {"winner": "10"})
    found = album.service.ask("GET", "/v1/jobs?label=winner").json()["jobs"]
    assert [each["id"] for each in found] == [album.job]
    for step in (30, 40, 50):
        album.save(step)
    album.succeed()
    later(album, 30)
    assert [each["step"] for each in album.service.ask("GET", f"/v1/jobs/{album.job}/checkpoints").json()] == [10]


def test_another_choice_replaces_the_first_one(album: Album) -> None:
    for step in (10, 20):
        album.save(step)
    album.choose(10)
    assert album.choose(20).status_code == 200
    assert (album.pinned(), album.labels()) == ([20], {"winner": "20"})


def test_a_choice_that_is_undone_leaves_nothing(album: Album) -> None:
    album.save(10)
    album.show_all(10)
    album.choose(10)
    assert album.undo().json() == {"job": album.job, "step": None, "weights": "none"}
    assert (album.pinned(), winners(album), album.labels()) == ([], [], {})
    assert album.undo().status_code == 200, "it may be repeated"


def test_the_same_choice_twice_is_one_and_is_undone_once(album: Album) -> None:
    album.save(10)
    assert album.choose(10).json() == album.choose(10).json()
    album.undo()
    assert album.pinned() == []


def test_what_its_owner_pinned_before_stays_pinned(album: Album) -> None:
    for step in (10, 20):
        album.save(step)
    album.pin(10)
    album.choose(10)
    album.choose(20)
    assert album.pinned() == [20, 10]
    album.undo()
    assert album.pinned() == [10]


def test_a_step_whose_weights_are_gone_is_not_chosen(album: Album) -> None:
    for step in (10, 20, 30):
        album.save(step)
    album.show_all(10)
    album.choose(20)
    answer = album.choose(10)
    assert answer.status_code == 404
    assert answer.json()["detail"] == f"the weights of step 10 of {album.job} are not stored"
    assert answer.json()["hint"] == "those of these steps are stored: 20, 30"
    assert (album.pinned(), album.labels()) == ([20], {"winner": "20"})


def test_the_lora_of_the_chosen_step_stays_with_its_pictures_when_the_others_expire(album: Album) -> None:
    for step in (10, 20):
        album.show(step, {LORA_FILE: b"a lora", picture_name(0, 1): picture(step)})
    album.succeed()
    assert album.choose(10).json()["weights"] == "file"
    later(album, 91)
    paths = [each["path"] for each in album.service.ask("GET", f"/v1/jobs/{album.job}/artifacts").json()]
    assert [path for path in paths if "step-" in path] == [
        "samples/step-000010/prompt-00-seed-1.png",
        f"samples/step-000010/{LORA_FILE}",
    ]
    assert winners(album) == [10]


@pytest.mark.parametrize("how", ["undone", "replaced"])
def test_what_stayed_for_a_choice_expires_after_it(album: Album, how: str) -> None:
    for step in (10, 20):
        album.show(step, {LORA_FILE: b"a lora", picture_name(0, 1): picture(step)})
    album.succeed()
    album.choose(10)
    later(album, 91)
    assert (album.undo() if how == "undone" else album.choose(100)).status_code == 200
    later(album, 1)
    assert album.rows() == []


def test_the_result_is_chosen_by_its_step_and_needs_no_pin(album: Album) -> None:
    album.save(100)
    album.succeed()
    assert album.choose(100).json()["weights"] == "result"
    assert (album.pinned(), album.labels()) == ([], {"winner": "100"})


def test_a_job_with_as_many_labels_as_it_may_have_is_told_so(album: Album) -> None:
    album.save(10)
    labels = {f"key-{number}": "" for number in range(32)}
    album.service.ask("PATCH", f"/v1/jobs/{album.job}/labels", json={"labels": labels}).raise_for_status()
    answer = album.choose(10)
    assert answer.status_code == 422 and "has 33 labels" in answer.json()["detail"]
    assert album.pinned() == []


def test_a_job_that_is_made_from_this_one_has_no_winner(album: Album) -> None:
    album.save(10)
    album.choose(10)
    steer.cancel(album.service.deployment, album.job, album.service.now_ms)
    again = album.service.ask("POST", f"/v1/jobs/{album.job}/retry")
    assert again.status_code == 201 and again.json()["summary"]["labels"] == {}


def test_a_job_that_is_deleted_keeps_nothing_of_its_choice(album: Album) -> None:
    album.save(10)
    album.choose(10)
    steer.cancel(album.service.deployment, album.job, album.service.now_ms)
    album.remove()
    assert album.service.look("SELECT * FROM winner") == []
    assert album.stored("checkpoints") == []


def test_a_step_that_is_no_number_of_a_step_is_refused(service: Service, album: Album) -> None:
    for step in (-1, 1.5, "10", None, 10**16):
        assert service.ask("PUT", f"/v1/jobs/{album.job}/winner", json={"step": step}).status_code == 422
