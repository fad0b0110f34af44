"""Races and rules about data sets of photos: who adds a version, checks it, names it in a job, and removes it."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from gangline.core.datasets.names import DatasetReference
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.files import File
from gangline.core.jobs.keys import blob_key, thumbnail_key
from gangline.core.parsing import to_json
from gangline.ports.places.inspector import InspectedPicture, InspectedTexts
from gangline.ports.server import Upload
from gangline.ports.store import Write, guard, write
from gangline.service.content.batches import missing_blobs
from gangline.service.content.blobs import giving_up
from gangline.service.datasets import removal, versions
from gangline.service.datasets.check import check_datasets
from gangline.service.deployment import Deployment
from gangline.service.jobs import steer
from gangline.service.jobs.submit import submit
from gangline.sim.objects import Object
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused

DAY_S = 86_400


@dataclass
class Inspector:
    """The `inspector` port; `looking` is called before it answers."""

    looking: Callable[[], object] = lambda: None

    def pictures(self, files: Mapping[str, Any]) -> Mapping[str, InspectedPicture]:
        self.looking()
        return {
            sha256: InspectedPicture(width=600, height=600, sharpness=99, likeness=sha256[:16], thumbnail=b"small")
            for sha256 in files
        }

    def texts(self, photos: Any, masks: Any, captions: Any) -> InspectedTexts:
        self.looking()
        return InspectedTexts(because="", notes=())


def files(*names: str) -> tuple[File, ...]:
    return tuple(File(path=name, bytes=9, sha256=hashlib.sha256(name.encode()).hexdigest()) for name in names)


def upload(bench: Bench, found: tuple[File, ...], project: str = PROJECT) -> None:
    for file in found:
        bench.objects.objects.setdefault(blob_key(project, file.sha256), Object(file.bytes, file.sha256, 0))
    asked = [Upload(path=file.sha256, bytes=file.bytes, sha256=file.sha256) for file in found]
    assert not missing_blobs(bench.deployment, project, asked, bench.now_ms).missing


def add(bench: Bench, name: str, *names: str, project: str = PROJECT) -> int:
    upload(bench, files(*names), project)
    return versions.add_version(bench.deployment, project, name, files(*names), bench.now_ms).number


def check(bench: Bench, looking: Callable[[], object] = lambda: None, **changes: Any) -> None:
    deployment: Deployment = replace(bench.deployment, inspector=Inspector(looking), **changes)
    for _ in check_datasets(deployment):
        pass


def ready(bench: Bench, name: str, *names: str) -> int:
    number = add(bench, name, *names)
    check(bench)
    assert state(bench, name, number) == "ready"
    return number


def state(bench: Bench, name: str, number: int, project: str = PROJECT) -> str:
    reference = DatasetReference(name=name, number=number)
    return versions.find_version(bench.deployment, project, reference)["state"]


def paths(bench: Bench, version: str) -> list[str]:
    return bench.look("SELECT path FROM dataset_file WHERE version = ? ORDER BY path", version)


def remove(bench: Bench, name: str, number: int | None = None) -> None:
    removal.remove_versions(bench.deployment, PROJECT, DatasetReference(name=name, number=number), bench.now_ms)
    removal.continue_removals(bench.deployment, bench.now_ms)


def name_in_job(bench: Bench, named: str) -> str:
    spec = bench.spec()
    for file in spec.input_files().values():
        key = blob_key(PROJECT, file.sha256)
        bench.objects.objects.setdefault(key, Object(file.bytes, file.sha256, 0))
        upload(bench, (file,))
    value = to_json(spec) | {"photos": named, "captions": []}
    return submit(bench.deployment, PROJECT, value, name="", request=None, now_ms=bench.now_ms)


def is_away(act: Callable[[], object]) -> bool:
    try:
        act()
    except Unreachable:
        return True
    return False


@probe()
def each_name_of_each_project_counts_its_versions_by_itself(bench: Bench) -> None:
    for number, names in ((1, ("a.png", "b.png", "c.png")), (2, ("d.png", "e.png", "f.png"))):
        assert add(bench, "timber", names[0]) == number
        assert add(bench, "limber", names[1]) == number
        assert add(bench, "timber", names[2], project="other") == number
    assert [each.number for each in versions.versions_of(bench.deployment, PROJECT, "timber")] == [2, 1]
    assert [each.newest.number for each in versions.datasets_of(bench.deployment, "other")] == [2]


@probe()
def numbers_that_jobs_of_a_removed_data_set_remember_are_not_given_again(bench: Bench) -> None:
    for name, project in (("timber", "other"), ("limber", PROJECT)):  # neither of these counts
        of_name = {"project": project, "name": name, "number": 7, "digest": "", "version": "gone"}
        bench.store.apply(write("add_job_dataset", job=f"job of {name}", **of_name))
    assert add(bench, "timber", "a.png") == 1
    assert add(bench, "limber", "a.png") == 8
    of_name = {"project": PROJECT, "name": "amber", "number": 3, "digest": "", "version": "gone"}
    bench.store.apply(write("add_job_dataset", job="job of amber", **of_name))
    assert add(bench, "amber", "a.png") == 4


@probe()
def photos_that_are_pushed_again_are_the_newest_version_and_no_older_one(bench: Bench) -> None:
    for number, name in enumerate(("a.png", "b.png", "a.png"), 1):
        assert ready(bench, "timber", name) == number
        assert add(bench, "timber", name) == number
    remove(bench, "timber", 3)
    assert add(bench, "timber", "b.png") == 2, "the newest one that is there"
    upload(bench, files("c.png"))
    bench.store.look("UPDATE dataset_version SET state = 'adding' WHERE number = 2")
    assert add(bench, "timber", "b.png") == 2 and state(bench, "timber", 2) == "checking"


@probe()
def a_refused_version_that_is_pushed_again_is_looked_at_again(bench: Bench) -> None:
    for name in ("a.png", "b.png"):
        ready(bench, "timber" if name == "a.png" else "limber", name)
    bench.store.look("UPDATE photo SET because = 'is not an image'")
    bench.store.look("UPDATE dataset_version SET state = 'refused', because = 'a.png is not an image', tries = 3")
    add(bench, "timber", "a.png")
    assert bench.look("SELECT state, tries FROM dataset_version WHERE because = ''") == [("checking", 0)]
    assert bench.look("SELECT sha256 FROM photo") == [files("b.png")[0].sha256], (
        "the other one is of no version of these"
    )
    check(bench)
    assert state(bench, "timber", 1) == "ready"
    bench.store.look("UPDATE dataset_version SET state = 'refused'")
    bench.store.look("UPDATE photo SET because = 'is not an image'")
    bench.meanwhile("check_version_again", lambda: bench.store.look("UPDATE dataset_version SET state = 'going'"))
    assert is_away(lambda: add(bench, "timber", "a.png"))
    assert set(bench.look("SELECT state FROM dataset_version")) == {"going"}
    assert len(bench.look("SELECT sha256 FROM photo")) == 2, "nothing is forgotten for it"


@probe()
def a_photo_that_cannot_be_looked_at_refuses_its_version_after_three_steps(bench: Bench) -> None:
    add(bench, "timber", "a.png", "b.png")
    lost, inspector = files("a.png")[0].sha256, Inspector()

    def pictures(wanted: Mapping[str, Any]) -> Mapping[str, InspectedPicture]:
        failed = {sha256: InspectedPicture(because="is lost", may_pass=True) for sha256 in wanted if sha256 == lost}
        return dict(inspector.pictures(wanted)) | failed

    forgetful: Any = SimpleNamespace(pictures=pictures, texts=inspector.texts)
    deployment = replace(bench.deployment, inspector=forgetful)
    steps = check_datasets(deployment)
    next(steps)
    assert bench.look("SELECT tries, state FROM dataset_version") == [(1, "checking")]
    assert bench.look("SELECT sha256 FROM photo") == [files("b.png")[0].sha256], "the other one is known"
    next(steps)
    bench.store.look("DELETE FROM photo")
    bench.meanwhile("judge_dataset_version", lambda: remove(bench, "timber"))
    for _ in steps:
        pass
    assert bench.look("SELECT sha256 FROM photo") == [], "it was removed meanwhile"
    bench.store.look("UPDATE blob SET going = ''")
    add(bench, "limber", "a.png")
    for _ in check_datasets(deployment):
        pass
    assert bench.look("SELECT state, because FROM dataset_version") == [("refused", "a.png is lost")]
    assert bench.look("SELECT sha256 FROM photo") == []


@probe()
def a_refused_version_keeps_what_is_known_of_its_usable_photos(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    bench.store.look("UPDATE dataset_version SET state = 'refused'")
    add(bench, "timber", "a.png")
    assert len(bench.look("SELECT sha256 FROM photo")) == 1
    bench.store.look("UPDATE dataset_version SET state = 'refused'")
    bench.store.look("UPDATE photo SET because = 'is not an image'")
    add(bench, "limber", "a.png", project="other")
    check(bench)
    add(bench, "timber", "a.png")
    assert bench.look("SELECT project FROM photo") == ["other"]


@probe()
def of_two_servers_one_takes_a_step_of_a_removal(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    bench.wait(1)
    request = removal.remove_versions
    request(bench.deployment, PROJECT, DatasetReference(name="timber"), bench.now_ms)
    taken: Callable[[], object] = lambda: bench.store.look(  # noqa: E731
        "UPDATE dataset_version SET moved_ms = moved_ms + 1"
    )
    bench.meanwhile("move_dataset_removal", taken)
    removal.continue_removals(bench.deployment, bench.now_ms)
    assert bench.look("SELECT going FROM blob WHERE sha256 = ?", files("a.png")[0].sha256) == [""]
    before = bench.look("SELECT moved_ms FROM dataset_version")
    removal.continue_removals(bench.deployment, bench.now_ms)
    assert before and bench.look("SELECT id FROM dataset_version") == []


@probe()
def a_removal_goes_on_only_with_versions_that_were_given_up(bench: Bench) -> None:
    for name in ("a.png", "b.png"):
        ready(bench, "timber", name)
    remove(bench, "timber", 1)
    assert bench.look("SELECT number FROM dataset_version") == [2]
    ready(bench, "limber", "c.png")
    assert len(bench.look("SELECT path FROM dataset_file")) == 2


@probe()
def of_two_that_two_requests_remove_at_once_nothing_is_left(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    ready(bench, "limber", "a.png")
    bench.wait(1)
    for name in ("timber", "limber"):
        removal.remove_versions(bench.deployment, PROJECT, DatasetReference(name=name), bench.now_ms)
    removal.continue_removals(bench.deployment, bench.now_ms)
    assert bench.look("SELECT sha256 FROM photo") == []
    assert bench.objects.stat(thumbnail_key(PROJECT, files("a.png")[0].sha256)) is None
    assert bench.look("SELECT going FROM blob WHERE sha256 = ?", files("a.png")[0].sha256) == ["asked"]


@probe()
def a_version_that_is_completed_while_it_is_given_up_as_unfinished_stays(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    bench.store.look("UPDATE dataset_version SET state = 'adding'")
    bench.wait(2 * DAY_S)
    bench.meanwhile(
        "give_up_unfinished_version", lambda: bench.store.look("UPDATE dataset_version SET state = 'ready'")
    )
    removal.give_up_unfinished(bench.deployment, bench.now_ms)
    assert bench.look("SELECT state FROM dataset_version") == ["ready"]


@probe()
def of_two_that_add_a_version_at_once_each_gets_a_number_of_its_own(bench: Bench) -> None:
    upload(bench, files("a.png"))
    bench.meanwhile("add_dataset_version", lambda: add(bench, "timber", "b.png"))
    assert versions.add_version(bench.deployment, PROJECT, "timber", files("a.png"), bench.now_ms).number == 2
    bench.meanwhile("add_dataset_version", lambda: add(bench, "timber", "c.png"))
    assert add(bench, "timber", "c.png") == 3
    numbers = [each.number for each in versions.versions_of(bench.deployment, PROJECT, "timber")]
    assert numbers == [3, 2, 1]


@probe()
def two_that_add_the_same_files_at_once_add_one_version(bench: Bench) -> None:
    upload(bench, files("a.png", "b.png"))
    bench.meanwhile("add_dataset_file", lambda: add(bench, "timber", "a.png", "b.png"))
    assert add(bench, "timber", "a.png", "b.png") == 1
    (version,) = bench.look("SELECT id FROM dataset_version")
    assert paths(bench, version) == ["a.png", "b.png"]


@probe()
def files_of_an_interrupted_push_are_added_once(bench: Bench) -> None:
    add(bench, "timber", "a.png", "b.png")
    (version,) = bench.look("SELECT id FROM dataset_version")
    bench.store.look("UPDATE dataset_version SET state = 'adding'")
    bench.store.look("DELETE FROM dataset_file WHERE path = 'b.png'")
    assert add(bench, "timber", "a.png", "b.png") == 1
    assert paths(bench, version) == ["a.png", "b.png"] and state(bench, "timber", 1) == "checking"


@probe()
def a_version_that_was_given_up_meanwhile_takes_no_more_files(bench: Bench) -> None:
    upload(bench, files("a.png"))
    bench.meanwhile("add_dataset_file", lambda: bench.store.look("UPDATE dataset_version SET state = 'going'"))
    assert is_away(lambda: add(bench, "timber", "a.png"))
    assert bench.look("SELECT path FROM dataset_file") == []
    assert bench.look("SELECT state FROM dataset_version") == ["going"]


@probe()
def a_version_that_was_completed_and_removed_is_not_shown_again(bench: Bench) -> None:
    upload(bench, files("a.png"))
    gone: Callable[[], object] = lambda: bench.store.look("UPDATE dataset_version SET state = 'going'")  # noqa: E731
    bench.meanwhile("complete_dataset_version", gone)
    assert is_away(lambda: add(bench, "timber", "a.png"))
    assert bench.look("SELECT state FROM dataset_version") == ["going"]


@probe()
def a_file_that_is_being_deleted_is_neither_recorded_nor_named(bench: Bench) -> None:
    found = files("a.png")
    upload(bench, found)

    def give_up() -> None:
        seen = bench.look("SELECT used_ms FROM blob WHERE sha256 = ?", found[0].sha256)[0]
        row: Any = {"sha256": found[0].sha256, "used_ms": seen}
        bench.store.apply(giving_up(PROJECT, row, bench.now_ms))

    bench.meanwhile("add_blob", give_up)
    assert is_away(lambda: upload(bench, found))
    assert refused(BadInput, lambda: versions.add_version(bench.deployment, PROJECT, "timber", found, bench.now_ms))


@probe()
def one_server_at_a_time_takes_a_step_of_a_check(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    seen = list[str]()
    check(bench, lambda: check(bench, lambda: seen.append("another"), server="another"))
    assert seen == [] and state(bench, "timber", 1) == "ready"
    add(bench, "limber", "b.png")
    bench.meanwhile("take_version_to_check", lambda: _take(bench, "another"))
    check(bench, lambda: seen.append("this"))
    assert seen == [] and state(bench, "limber", 1) == "checking"
    bench.wait(2 * 3600)
    check(bench)
    assert state(bench, "limber", 1) == "ready", "the other one does not come back"


def _take(bench: Bench, server: str) -> None:
    (version,) = bench.look("SELECT id FROM dataset_version WHERE state = 'checking'")
    turn = {"server": server, "now": bench.now_ms, "turn_ends_ms": bench.now_ms + 3_600_000}
    assert bench.store.apply(guard("take_version_to_check", id=version, **turn))


@probe()
def a_server_whose_turn_was_taken_over_does_not_end_the_turn_of_the_other_one(bench: Bench) -> None:
    add(bench, "timber", "a.png")

    turns = list[str]()

    def taken_over() -> None:
        turns.append("this")
        if len(turns) == 1:
            bench.wait(2 * 3600)
            _take(bench, "another")

    check(bench, taken_over, server="this")
    assert bench.look("SELECT server, state FROM dataset_version") == [("another", "checking")]


@probe()
def a_version_that_another_server_has_judged_is_not_taken(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    bench.meanwhile("take_version_to_check", lambda: check(bench, server="another"))
    seen = list[str]()
    check(bench, lambda: seen.append("this"))
    assert seen == []
    assert bench.look("SELECT state, server FROM dataset_version") == [("ready", "")]


@probe()
def what_is_found_of_a_version_that_was_removed_meanwhile_is_not_kept(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    check(bench, lambda: remove(bench, "timber"))
    assert bench.look("SELECT sha256 FROM photo") == []
    assert bench.objects.stat(thumbnail_key(PROJECT, files("a.png")[0].sha256)) is None
    add(bench, "timber", "b.png")
    gone: Callable[[], object] = lambda: bench.store.look(  # noqa: E731
        "UPDATE dataset_version SET state = 'going', server = ''"
    )
    bench.meanwhile("judge_dataset_version", gone)
    check(bench)
    assert bench.look("SELECT state FROM dataset_version") == ["going"]


@probe()
def two_servers_that_look_at_the_same_photo_record_it_once(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    add(bench, "limber", "a.png", "b.png")
    bench.meanwhile("add_photo", lambda: check(bench, server="another"))
    check(bench)
    assert state(bench, "timber", 1) == state(bench, "limber", 1) == "ready"
    assert len(bench.look("SELECT sha256 FROM photo")) == 2


@probe()
def a_version_that_is_given_up_in_the_moment_in_which_a_job_names_it_is_not_named(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    gone: Callable[[], object] = lambda: bench.store.look("UPDATE dataset_version SET state = 'going'")  # noqa: E731
    bench.meanwhile("name_dataset_version", gone)
    try:
        name_in_job(bench, "timber@1")
    except (NotFound, Unreachable):
        assert bench.look("SELECT job FROM job_dataset") == []
    else:
        raise AssertionError("it was given up")


@probe()
def a_version_is_not_given_up_while_a_job_that_names_it_has_not_ended(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    first = name_in_job(bench, "timber")
    assert refused(BadInput, lambda: remove(bench, "timber"))
    steer.cancel(bench.deployment, first, bench.now_ms)
    again: Callable[[], object] = lambda: steer.submit_again(  # noqa: E731
        bench.deployment, PROJECT, first, bench.now_ms
    )
    bench.meanwhile("give_up_dataset_version", again)
    assert refused(BadInput, lambda: remove(bench, "timber"))
    assert state(bench, "timber", 1) == "ready"


@probe()
def jobs_of_other_versions_and_jobs_that_have_ended_keep_no_version(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    ready(bench, "timber", "b.png")
    job = name_in_job(bench, "timber@1")
    remove(bench, "timber", 2)
    steer.cancel(bench.deployment, job, bench.now_ms)
    remove(bench, "timber", 1)
    assert bench.look("SELECT id FROM dataset_version") == []


@probe()
def who_removes_a_version_looks_again_when_a_job_names_it_in_this_moment(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    version = bench.look("SELECT id FROM dataset_version")[0]
    tries = list[int]()

    def hear(writes: tuple[Write, ...]) -> None:
        if any(each.name == "give_up_dataset_version" for each in writes):
            tries.append(len(tries))
            if len(tries) == 1:
                bench.store.apply(write("name_dataset_version", id=version, now=bench.now_ms))

    bench.store.meanwhile = hear
    remove(bench, "timber")
    bench.store.meanwhile = lambda _: None
    assert tries == [0, 1]


@probe()
def an_unfinished_push_that_goes_on_is_not_given_up(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    bench.store.look("UPDATE dataset_version SET state = 'adding'")
    bench.wait(2 * DAY_S)
    bench.meanwhile("give_up_unfinished_version", lambda: add(bench, "timber", "a.png"))
    removal.give_up_unfinished(bench.deployment, bench.now_ms)
    assert state(bench, "timber", 1) == "checking"


@probe()
def a_push_that_adds_more_files_in_this_moment_is_not_given_up(bench: Bench) -> None:
    add(bench, "timber", "a.png")
    bench.store.look("UPDATE dataset_version SET state = 'adding'")
    bench.wait(2 * DAY_S)
    (version,) = bench.look("SELECT id FROM dataset_version")
    more = write("hold_dataset_version", id=version, now=bench.now_ms)
    bench.meanwhile("give_up_unfinished_version", lambda: bench.store.apply(more))
    removal.give_up_unfinished(bench.deployment, bench.now_ms)
    assert bench.look("SELECT state FROM dataset_version") == ["adding"]


@probe()
def a_name_to_which_a_version_is_added_in_this_moment_stays(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    of_name = {"project": PROJECT, "name": "timber", "seen": 1}
    bench.meanwhile("drop_dataset", lambda: bench.store.apply(write("number_dataset_version", **of_name)))
    remove(bench, "timber")
    assert bench.look("SELECT name FROM dataset") == ["timber"]


@probe()
def a_name_goes_with_its_last_version_and_not_before(bench: Bench) -> None:
    for name in ("a.png", "b.png"):
        ready(bench, "timber", name)
    ready(bench, "limber", "c.png")
    remove(bench, "timber", 1)
    assert bench.look("SELECT name FROM dataset ORDER BY name") == ["limber", "timber"]
    remove(bench, "timber", 2)
    assert bench.look("SELECT name FROM dataset") == ["limber"]


@probe()
def what_is_known_of_a_photo_stays_as_long_as_a_version_of_its_project_has_it(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    ready(bench, "limber", "b.png")
    bench.meanwhile("drop_photo", lambda: add(bench, "amber", "a.png"))
    remove(bench, "timber")
    known = bench.look("SELECT sha256 FROM photo WHERE project = ?", PROJECT)
    assert set(known) == {file.sha256 for file in files("a.png", "b.png")}


@probe()
def what_is_known_of_a_photo_goes_with_the_last_version_of_its_project(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    add(bench, "timber", "a.png", project="other")
    ready(bench, "limber", "b.png")
    remove(bench, "timber")
    assert bench.look("SELECT sha256 FROM photo WHERE project = ?", PROJECT) == [files("b.png")[0].sha256]


@probe()
def a_removal_takes_no_file_that_a_version_names_in_this_moment(bench: Bench) -> None:
    ready(bench, "timber", "a.png")
    bench.wait(1)
    bench.meanwhile("give_up_blob", lambda: add(bench, "limber", "a.png"))
    remove(bench, "timber")
    assert bench.look("SELECT going FROM blob WHERE sha256 = ?", files("a.png")[0].sha256) == [""]
