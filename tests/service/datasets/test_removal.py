"""Data sets that their owners remove: all goes that is theirs alone, and nothing that a job or another version needs."""

from dataclasses import replace

import pytest

from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.service.content.blobs import give_up_unused
from gangline.service.datasets import removal
from tests.service.conftest import PROJECT
from tests.service.datasets.conftest import Sets, named, picture

DOGS = {"a.png": picture(1), "b.png": picture(2), "a.txt": b"a dog on a lawn"}
ROWS = ("dataset", "dataset_version", "dataset_file", "photo", "job_dataset")


def is_stored(sets: Sets, content: bytes) -> bool:
    return sets.service.objects.stat(blob_key(PROJECT, named("x", content)["sha256"])) is not None


def has_thumbnail(sets: Sets, content: bytes) -> bool:
    return sets.service.objects.stat(thumbnail_key(PROJECT, named("x", content)["sha256"])) is not None


def later(sets: Sets, seconds: float = 61) -> None:
    sets.service.wait(seconds)
    sets.service.tick()


def test_a_data_set_goes_with_its_rows_its_thumbnails_and_its_bytes(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sets.ready("timber", DOGS | {"c.png": picture(3)})
    shown = sets.get("/v1/datasets/timber/removal").json()
    assert (shown["versions"], shown["files"], shown["kept_files"]) == ([2, 1], 4, 0)
    assert sets.remove("timber").json() == shown
    assert sets.get("/v1/datasets/timber").status_code == 404
    later(sets)
    assert not any(is_stored(sets, content) for content in (*DOGS.values(), picture(3)))
    assert not any(has_thumbnail(sets, content) for content in (*DOGS.values(), picture(3)))
    for table in ROWS:
        assert sets.service.look(f"SELECT * FROM {table}") == [], table
    assert "timber" not in sets.service.dump()


def test_what_another_version_or_a_job_has_stays(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sets.ready("timber", {"a.png": picture(1), "c.png": picture(3)})
    sets.ready("other", {"x.png": picture(2)})
    shown = sets.get("/v1/datasets/timber/1/removal").json()
    assert (shown["files"], shown["kept_files"]) == (1, 2)
    assert sets.remove("timber/1").status_code == 200
    later(sets)
    assert not is_stored(sets, DOGS["a.txt"])
    assert is_stored(sets, picture(1)) and has_thumbnail(sets, picture(1))
    assert is_stored(sets, picture(2)) and has_thumbnail(sets, picture(2))
    assert [each["number"] for each in sets.get("/v1/datasets/timber").json()] == [2]
    assert sets.ready("timber", DOGS)["number"] == 3, "a number is never given twice"


def test_a_version_that_a_job_needs_is_not_removed_before_the_job_has_ended(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    job = sets.submit(photos="timber").json()["summary"]["id"]
    for answer in (sets.get("/v1/datasets/timber/removal"), sets.remove("timber"), sets.remove("timber/1")):
        assert answer.status_code == 422
        assert answer.json()["detail"].endswith(f"is used by {job}, which has not ended")
    node = sets.service.join()
    sets.service.claim(node)
    sets.service.ask("POST", f"/v1/jobs/{job}/cancel")
    shown = sets.remove("timber").json()
    assert shown["jobs"] == [job] and (shown["files"], shown["kept_files"]) == (0, 3)
    later(sets)
    assert all(is_stored(sets, content) for content in DOGS.values()), "the job may be retried"
    assert sets.service.ask("POST", f"/v1/jobs/{job}/retry").status_code == 201


def test_the_hint_of_a_removal_names_what_ends_all_jobs_that_need_the_version(sets: Sets) -> None:
    sets.ready("timber", DOGS)

    def hint() -> str:
        return sets.remove("timber").json()["hint"]

    spec = {"base": "pony", "prompt": "a photo of sks dog", "photos": "timber"}
    asked = {"name": "ranks", "spec": spec, "vary": {"rank": [4, 8]}}
    experiment = sets.service.ask("POST", "/v1/experiments", json=asked).json()
    assert hint().endswith(f"stop it first: gangline experiments stop {experiment['id']}")
    job = sets.submit(photos="timber").json()["summary"]["id"]
    assert hint() == "wait for their end, or cancel them first: `gangline jobs ls` lists them"
    sets.service.ask("POST", f"/v1/experiments/{experiment['id']}/stop")
    assert hint() == f"wait for its end, or cancel it first: gangline jobs cancel {job}"


def test_a_job_that_is_deleted_leaves_the_photos_of_a_data_set(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    job = sets.submit(photos="timber").json()["summary"]["id"]
    sets.service.ask("POST", f"/v1/jobs/{job}/cancel")
    sets.service.wait(7200)
    going = sets.service.ask("DELETE", f"/v1/jobs/{job}").json()
    assert next(each for each in going["kept"] if each["kind"] == "uploads")["files"] <= 1, "the base's file alone"
    later(sets)
    assert all(is_stored(sets, content) for content in DOGS.values())
    assert sets.get("/v1/datasets").json()[0]["jobs"] == 0


def test_no_age_deletes_what_a_version_has(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    sets.upload(b"nobody names it")
    sets.service.wait(sets.service.deployment.policy.inputs_s + 10)
    give_up_unused(sets.service.deployment, sets.service.now_ms)
    later(sets)
    assert all(is_stored(sets, content) for content in DOGS.values()) and not is_stored(sets, b"nobody names it")
    kinds = sets.get("/v1/storage").json()["kinds"]
    assert next(kind for kind in kinds if kind["kind"] == "uploads")["going_bytes"] == 0


def test_a_removal_that_is_cut_off_between_its_steps_leaves_nothing(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    assert sets.remove("timber").status_code == 200
    assert sets.get("/v1/datasets/timber").status_code == 404, "nobody sees it any more"
    with pytest.raises(ConnectionError):
        removal.continue_removals(replace(sets.service.deployment, objects=_Away()), sets.service.now_ms)
    assert has_thumbnail(sets, picture(1))
    later(sets)
    later(sets)
    assert not any(is_stored(sets, content) for content in DOGS.values())
    assert not any(has_thumbnail(sets, content) for content in DOGS.values())
    assert all(sets.service.look(f"SELECT * FROM {table}") == [] for table in ROWS)


class _Away:
    """An object store that does not answer."""

    def __getattr__(self, name: str) -> object:
        raise ConnectionError


def test_a_request_gives_versions_up_and_a_tick_removes_a_bounded_number_of_their_files(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "AT_ONCE", 2)
    monkeypatch.setattr(removal, "VERSIONS_AT_ONCE", 2)
    for name in ("timber", "limber", "amber"):
        sets.add(name, {f"{number}.txt": f"{name} {number}".encode() for number in range(5)} | {"a.png": picture(1)})
        assert sets.remove(name).status_code == 200

    def left() -> list[int]:
        counts = sets.service.look("SELECT COUNT(*) AS files FROM dataset_file GROUP BY version ORDER BY 1")
        return [row["files"] for row in counts]

    assert left() == [6, 6, 6]
    later(sets, 5)
    assert left() == [4, 4, 6]
    later(sets, 5)
    assert left() == [2, 4, 4], "the version whose last step is longest ago comes first"
    for _ in range(10):
        later(sets, 5)
    assert left() == [] and sets.service.look("SELECT * FROM dataset_version") == []


@pytest.mark.parametrize("files", [200, 800])
def test_a_step_of_a_removal_looks_each_content_up_once(sets: Sets, files: int) -> None:
    """Captions are often the same: the work of a step must not grow with the square of the files."""
    sets.upload(b"a dog", picture(1))
    same = [named(f"{number}.txt", b"a dog") for number in range(files)]
    assert sets.post("timber", {"files": [named("a.png", picture(1)), *same]}).status_code == 201
    sets.remove("timber")
    asked = list[int]()

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(sets.service.deployment.store, name)

        def load(self, name: str, **values: object) -> object:
            rows = sets.service.deployment.store.load(name, **values)
            asked.append(len(rows)) if name == "contents_going" else None
            return rows

    removal.continue_removals(replace(sets.service.deployment, store=Counting()), sets.service.now_ms)  # type: ignore[arg-type]
    assert asked == [1], "the caption, once"


def test_the_numbers_that_jobs_remember_are_not_given_again(sets: Sets) -> None:
    sets.ready("timber", DOGS)
    job = sets.submit(photos="timber").json()["summary"]["id"]
    sets.service.ask("POST", f"/v1/jobs/{job}/cancel")
    sets.remove("timber")
    later(sets)
    later(sets)
    assert sets.service.look("SELECT * FROM dataset") == []
    assert sets.ready("timber", DOGS)["number"] == 2
    assert sets.get("/v1/datasets").json()[0]["jobs"] == 0, "the job named another data set of this name"


def test_versions_that_were_not_shown_are_not_removed(sets: Sets) -> None:
    for number in range(2):
        sets.ready("timber", {"a.png": picture(number)})
    shown = "&".join(f"versions={number}" for number in sets.get("/v1/datasets/timber/removal").json()["versions"])
    sets.ready("timber", {"a.png": picture(7)})
    answer = sets.remove(f"timber?{shown}")
    assert answer.status_code == 422
    assert answer.json()["detail"] == (
        "timber has other versions than were shown: now timber@1, timber@2 and timber@3; nothing was removed"
    )
    assert len(sets.get("/v1/datasets/timber").json()) == 3
    assert sets.remove(f"timber?{shown}&versions=3").status_code == 200


def test_two_versions_with_the_same_photos_that_are_removed_at_once_leave_nothing(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets.ready("timber", DOGS)
    sets.ready("limber", DOGS)
    for name in ("timber", "limber"):
        sets.remove(name)
    monkeypatch.setattr(removal, "VERSIONS_AT_ONCE", 1)
    later(sets, 5)
    assert sets.service.look("SELECT * FROM photo") == [], "a version that is removed holds nothing"
    assert not has_thumbnail(sets, picture(1))
    for _ in range(3):
        later(sets)
    assert all(sets.service.look(f"SELECT * FROM {table}") == [] for table in ROWS)
    assert not any(is_stored(sets, content) for content in DOGS.values())


def test_a_push_in_the_midst_of_a_removal_keeps_its_thumbnails(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    sets.ready("timber", {"a.png": picture(1), "b.png": picture(2)})
    sets.service.wait(1)
    sets.remove("timber")
    forget = removal.forget_thumbnails

    def meanwhile(deployment: object, project: str, contents: list[str]) -> None:
        sets.service.execute("UPDATE blob SET going = ''")
        sets.ready("limber", {"a.png": picture(1)})
        forget(deployment, project, contents)  # type: ignore[arg-type]

    monkeypatch.setattr(removal, "forget_thumbnails", meanwhile)
    removal.continue_removals(sets.service.deployment, sets.service.now_ms)
    sha256 = named("a", picture(1))["sha256"]
    assert sets.get(f"/v1/datasets/limber/1/thumbnails/{sha256}").status_code == 200
    assert not has_thumbnail(sets, picture(2))


def test_of_many_jobs_that_named_a_version_a_hundred_are_listed_and_all_are_counted(
    sets: Sets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "JOBS_LISTED_MAX", 2)
    sets.ready("timber", DOGS)
    for _ in range(3):
        job = sets.submit(photos="timber").json()["summary"]["id"]
        sets.service.ask("POST", f"/v1/jobs/{job}/cancel")
    shown = sets.get("/v1/datasets/timber/removal").json()
    assert (len(shown["jobs"]), shown["jobs_count"]) == (2, 3)


def test_a_push_that_was_never_completed_is_forgotten_after_a_day(sets: Sets) -> None:
    sets.add("timber", DOGS)
    sets.service.execute("UPDATE dataset_version SET state = 'adding'")
    later(sets, 3600)
    assert len(sets.service.look("SELECT * FROM dataset_version")) == 1
    later(sets, 24 * 3600)
    later(sets, 120)
    assert all(sets.service.look(f"SELECT * FROM {table}") == [] for table in ROWS)


def test_a_push_that_was_cut_off_is_completed_by_the_next_one(sets: Sets) -> None:
    sets.add("timber", DOGS)
    sets.service.execute("UPDATE dataset_version SET state = 'adding'", "DELETE FROM dataset_file WHERE path > 'a.pnz'")
    assert sets.get("/v1/datasets").json() == []
    again = sets.ready("timber", DOGS)
    assert (again["number"], again["state"], len(sets.files("timber", 1))) == (1, "ready", 3)


def test_a_version_that_is_removed_while_it_is_checked_leaves_nothing(sets: Sets) -> None:
    sets.add("timber", DOGS)
    inspector = sets.service.deployment.inspector
    assert inspector is not None

    class Removing:
        def pictures(self, files: object) -> object:
            found = inspector.pictures(files)  # type: ignore[arg-type]
            assert sets.remove("timber").status_code == 200
            return found

    sets.service.deployment = replace(sets.service.deployment, inspector=Removing())  # type: ignore[arg-type]
    sets.check()
    later(sets)
    assert all(sets.service.look(f"SELECT * FROM {table}") == [] for table in ROWS)
    assert not any(has_thumbnail(sets, content) for content in DOGS.values())
