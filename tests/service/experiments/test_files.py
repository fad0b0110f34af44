"""Photos of an experiment are kept once for all its jobs, as long as one of them may need them."""

from typing import Any

from gangline.core.files import File
from gangline.core.parsing import to_json
from gangline.core.specs.fields import FilesBase
from tests.service.conftest import PROJECT, Service
from tests.service.experiments.at_work import PATH, body, runs_of, shown, submit, tick
from tests.service.retention.test_ages import DAY_S, blobs
from tests.service.test_http import problem


def with_photos(service: Service, **given: Any) -> tuple[str, list[str]]:
    """Submit an experiment on photos of its own, and return its id and its jobs."""
    photos = tuple(service.upload(b"photo %d" % number, f"{number}.png") for number in range(3))
    made = submit(service, settings={"photos": photos}, **given)["id"]
    return made, [run["job"] for run in runs_of(service, made)]


def test_a_photo_of_all_jobs_has_one_row(service: Service) -> None:
    made, _ = with_photos(service, vary={"rank": [4, 8, 16, 32]})
    assert service.look("SELECT * FROM job_file") == []
    (row,) = service.look(f"SELECT COUNT(*) AS rows FROM experiment_file WHERE experiment = '{made}'")
    assert row["rows"] == 4, "three photos and a base"


def test_of_two_bases_with_files_of_one_path_each_is_checked_and_kept(service: Service) -> None:
    one, other = (File(path="unet.safetensors", bytes=9, sha256=letter * 64) for letter in "cd")
    given = {"base": [to_json(FilesBase(files=(file,))) for file in (one, other)]}
    missing = problem(service.ask("POST", PATH, json=body(service, vary=given)), 422, "bad-input")
    assert "2 input files are not in the object store, the first is base/unet.safetensors" in missing["detail"]
    stored = [service.upload(content, "unet.safetensors") for content in (b"one base", b"another base")]
    made = submit(service, vary={"base": [to_json(FilesBase(files=(file,))) for file in stored]})["id"]
    rows = service.look(f"SELECT sha256 FROM experiment_file WHERE experiment = '{made}'")
    assert {file.sha256 for file in stored} <= {row["sha256"] for row in rows}


def test_photos_stay_while_a_job_is_held_however_long_that_takes(service: Service) -> None:
    with_photos(service, at_once=1)
    service.wait(400 * DAY_S)
    assert len(service.store.load("blobs_unused", before=service.now_ms, limit=9)) == 0


def test_a_while_after_the_last_job_has_ended_photos_go(service: Service) -> None:
    made, _ = with_photos(service)
    service.ask("POST", f"{PATH}/{made}/stop")
    assert len(service.store.load("blobs_unused", before=service.now_ms, limit=9)) == 0
    service.wait(1)
    assert len(service.store.load("blobs_unused", before=service.now_ms, limit=9)) == 4


def test_deleting_jobs_leaves_the_photos_until_the_last_one_is_deleted(service: Service) -> None:
    made, jobs = with_photos(service)
    service.ask("POST", f"{PATH}/{made}/stop")
    service.wait(2 * 3600)
    answers = [service.ask("DELETE", f"/v1/jobs/{job}").json() for job in jobs]
    uploads = [next(each["files"] for each in answer["kept"] if each["kind"] == "uploads") for answer in answers]
    assert uploads == [0, 4]
    assert problem(service.ask("GET", f"{PATH}/{made}"), 404, "not-found")
    tick(service, 61)
    tick(service, 61)
    assert blobs(service) == []


def test_another_jobs_deletion_leaves_what_an_experiment_needs(service: Service) -> None:
    other = service.submit()
    service.ask("POST", f"/v1/jobs/{other}/cancel")
    submit(service, at_once=1)
    service.wait(2 * 3600)
    found = service.ask("DELETE", f"/v1/jobs/{other}").json()
    assert next(each["files"] for each in found["kept"] if each["kind"] == "uploads") == 0


def test_a_deleted_job_is_none_of_its_experiment_any_more(service: Service) -> None:
    made, jobs = with_photos(service, vary={"rank": [4, 8, 16]}, at_once=1)
    service.ask("POST", f"/v1/jobs/{jobs[0]}/cancel")
    refused = problem(service.ask("DELETE", f"/v1/jobs/{jobs[0]}"), 422, "bad-input")
    assert f"{jobs[0]} is of the experiment ranks, which has not ended" in refused["detail"]
    service.ask("POST", f"{PATH}/{made}/stop")
    assert service.ask("DELETE", f"/v1/jobs/{jobs[0]}").status_code == 200
    assert [run["job"] for run in runs_of(service, made)] == jobs[1:]
    assert shown(service, made)["jobs"] == 2


def test_what_is_stored_counts_the_photos_of_an_experiment_as_used(service: Service) -> None:
    with_photos(service)
    found = service.store.load("stored_blobs", project=PROJECT)
    assert {(row["jobs"], row["at_work"]) for row in found} == {(2, 2)}
    assert service.store.load("jobs_with_files", project=PROJECT)[0]["jobs"] == 2
