"""Jobs that name a data set."""

import json

from tests.service.conftest import Service
from tests.service.datasets.conftest import Sets, named, picture

DOGS = {"a.png": picture(1), "b.png": picture(2), "a.txt": b"a dog on a lawn", "masks/a.png": picture(3)}


def spec_of(service: Service, job: str) -> dict:
    return service.ask("GET", f"/v1/jobs/{job}").json()["spec"]


def test_a_job_gets_the_photos_the_captions_and_the_masks_of_the_version_that_it_names(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    job = sets.submit(photos="timber@1").json()
    assert job["dataset"] == "timber@1"
    spec = job["spec"]
    assert spec["photos"] == [named("a.png", DOGS["a.png"]), named("b.png", DOGS["b.png"])]
    assert spec["captions"] == [named("a.txt", DOGS["a.txt"])]
    assert spec["masks"] == [named("a.png", DOGS["masks/a.png"])] and spec["mask"] == "files"
    node = sets.service.join()
    assert {file.path for file in sets.service.claim(node).inputs} >= {"photos/a.png", "captions/a.txt", "masks/a.png"}


def test_a_name_alone_stands_for_the_newest_version_that_is_ready_and_stays_what_it_was(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sets.add("timber", {"c.png": picture(5)})
    job = sets.submit(photos="timber").json()
    assert job["dataset"] == "timber@1", "the second one is not checked yet"
    sets.check()
    assert sets.submit(photos="timber").json()["dataset"] == "timber@2"
    assert spec_of(sets.service, job["summary"]["id"]) == job["spec"]


def test_a_photo_of_it_may_be_held_out_by_its_name(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    spec = sets.submit(photos="timber", held_out=["b.png"]).json()["spec"]
    assert [file["path"] for file in spec["held_out"]] == ["b.png"]
    assert [file["path"] for file in spec["photos"]] == ["a.png"]
    answer = sets.submit(photos="timber", held_out=["z.png"])
    assert answer.status_code == 422 and "z.png is not a photo of timber@1" in answer.json()["detail"]


def test_what_is_not_there_or_not_ready_is_refused_with_a_sentence(sets: Sets) -> None:
    answer = sets.submit(photos="timber")
    assert answer.status_code == 404 and answer.json()["detail"] == "there is no data set timber"
    sets.add("timber", DOGS)
    answer = sets.submit(photos="timber")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "timber@1 is not ready yet: 0 of 3 pictures are checked"
    assert sets.submit(photos="timber@7").status_code == 404
    sets.check()
    answer = sets.submit(photos="timber", captions=[named("a.txt", DOGS["a.txt"])])
    assert answer.status_code == 422 and "captions: photos of a data set have those" in answer.json()["detail"]


def test_a_retry_remembers_the_version_also_when_it_was_removed(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    job = sets.submit(photos="timber").json()["summary"]["id"]
    sets.service.ask("POST", f"/v1/jobs/{job}/cancel")
    assert sets.remove("timber").status_code == 200
    again = sets.service.ask("POST", f"/v1/jobs/{job}/retry").json()
    assert again["dataset"] == "timber@1" and again["spec"]["photos"] == spec_of(sets.service, job)["photos"]


def test_a_clone_remembers_the_version_of_its_job(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    job = sets.submit(photos="timber").json()["summary"]["id"]
    clone = sets.service.ask("POST", f"/v1/jobs/{job}/clone", json={"set": {"rank": 2}})
    assert (clone.status_code, clone.json()["dataset"]) == (201, "timber@1")


def test_a_plan_may_name_a_data_set_too(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    spec = spec_of(sets.service, sets.submit(photos="timber").json()["summary"]["id"])
    beside = {field: spec[field] for field in ("kind", "base", "prompt")}
    answer = sets.service.ask("POST", "/v1/plans", json={"spec": beside | {"photos": "timber@1"}})
    assert answer.status_code == 200, answer.text


def test_all_jobs_of_an_experiment_have_the_version_that_it_names(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    spec = {"base": "pony", "prompt": "a photo of sks dog", "photos": "timber"}
    asked = {"name": "ranks", "spec": spec, "vary": {"rank": [4, 8]}}
    assert sets.service.ask("POST", "/v1/experiments/plan", json=asked).status_code == 200
    made = sets.service.ask("POST", "/v1/experiments", json=asked)
    assert made.status_code == 201, made.text
    runs = sets.service.ask("GET", f"/v1/experiments/{made.json()['id']}/runs").json()
    jobs = [sets.service.ask("GET", f"/v1/jobs/{run['job']}").json() for run in runs]
    assert [job["dataset"] for job in jobs] == ["timber@1", "timber@1"]
    assert jobs[0]["spec"]["photos"] == [named("a.png", DOGS["a.png"]), named("b.png", DOGS["b.png"])]
    assert sets.remove("timber").status_code == 422, "its jobs need it"
    sets.service.ask("POST", f"/v1/experiments/{made.json()['id']}/stop")
    assert sets.remove("timber").status_code == 200


def test_the_server_fetches_no_photos_for_an_experiment(sets: Sets) -> None:
    spec = {"base": "pony", "prompt": "a photo of sks dog", "photos": "https://example.org/photos.zip"}
    answer = sets.service.ask("POST", "/v1/experiments", json={"spec": spec, "vary": {"rank": [4, 8]}})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "photos: the server fetches the photos of single jobs only"


def test_another_project_sees_none_of_it(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sets.service.add_project("other")
    key = sets.service.key("admin", "other")
    sha256 = named("a", DOGS["a.png"])["sha256"]
    for path in ("", "/timber/1", "/timber/1/files", f"/timber/1/thumbnails/{sha256}", "/timber/removal"):
        answer = sets.service.ask("GET", f"/v1/datasets{path}", key)
        assert answer.status_code == (404 if path else 200), path
        assert path or answer.json() == []
    asked = {"files": [{"sha256": sha256, "bytes": len(DOGS["a.png"])}]}
    assert len(json.loads(sets.service.ask("POST", "/v1/blobs/missing", key, json=asked).text)["missing"]) == 1
