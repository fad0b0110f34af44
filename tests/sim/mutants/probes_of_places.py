"""Races about photos that are fetched for jobs, and results that are delivered."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BufferedIOBase, BytesIO
from typing import Any

from gangline.core.errors import BadInput, Unreachable
from gangline.core.parsing import to_json
from gangline.core.places.places import PhotoPlace
from gangline.core.server.sources import FetchingSettings
from gangline.ports.places.deliverer import Outgoing
from gangline.ports.places.fetcher import Brought, Check, FetchedPhotos
from gangline.ports.store import guard
from gangline.service.content import deliver
from gangline.service.content.deliver import check_target
from gangline.service.content.imports import TURN_S, fetch_photos
from gangline.service.deployment import Deployment
from gangline.service.jobs import steer
from gangline.service.jobs.submit import blob_here, submit
from gangline.service.retention.removal import remove
from gangline.sim.objects import Object
from tests.sim.mutants.bench import PROJECT, Bench, probe

NAMES = ("a.png", "b.png")
LONG_S = TURN_S + 10_000


@dataclass
class Photos:
    """The `fetcher` port; `bringing`, `looking` and `reading` are called before each."""

    bringing: Callable[[], object] = lambda: None
    looking: Callable[[], object] = lambda: None
    reading: Callable[[], object] = lambda: None
    brought: list[str] = field(default_factory=list)
    begun: int = 0

    def check(self, project: str, places: Sequence[PhotoPlace]) -> None:
        pass

    def bring(self, job: str, project: str, places: Sequence[PhotoPlace], check: Check) -> Iterator[Brought]:
        self.begun += 1
        for number, name in enumerate(NAMES):
            yield Brought(number, len(NAMES))
            self.bringing()
            check()
            self.brought.append(name)
        yield Brought(len(NAMES), len(NAMES))

    def look(self, job: str, places: Sequence[PhotoPlace], check: Check) -> FetchedPhotos:
        self.looking()
        return FetchedPhotos(photos=NAMES, captions=(), told=())

    def open(self, job: str, name: str) -> BufferedIOBase:
        self.reading()
        return BytesIO(name.encode())

    def forget(self, job: str) -> None:
        pass

    def kept(self) -> list[str]:
        return []


def ask(bench: Bench, photos: Photos, **settings: Any) -> tuple[Deployment, str]:
    bench.deployment = replace(bench.deployment, fetcher=photos)
    spec = bench.spec(**settings)
    base = next(iter(spec.model_files().values()))
    bench.objects.objects.setdefault(f"projects/{PROJECT}/blobs/{base.sha256}", Object(base.bytes, base.sha256, 0))
    assert blob_here(bench.deployment, PROJECT, base.sha256, base.bytes, bench.now_ms).present
    value = json.loads(json.dumps(to_json(spec))) | {"photos": "https://a.example/dogs.zip", "captions": []}
    return bench.deployment, submit(bench.deployment, PROJECT, value, name="", request=None, now_ms=bench.now_ms)


def drain(steps: Iterator[None]) -> int:
    return len(list(steps))


def imported(bench: Bench) -> str:
    return bench.look("SELECT state FROM photo_import")[0]


def photos_of(bench: Bench, job: str) -> list[str]:
    return [file["path"] for file in json.loads(bench.look("SELECT spec FROM job WHERE id = ?", job)[0])["photos"]]


@probe()
def a_job_whose_photos_are_not_here_is_given_to_nobody_and_rents_nothing(bench: Bench) -> None:
    deployment, job = ask(bench, Photos())
    node = bench.join()
    bench.claim_nothing(node)
    bench.tend()
    assert bench.rented() == []
    bench.wait(bench.policy.unmatched_s + 1)
    bench.tick()
    assert bench.state(job) == "queued"
    drain(fetch_photos(deployment))
    assert photos_of(bench, job) == list(NAMES) and imported(bench) == "ready"
    again = bench.join("b")
    bench.take(again, job)


@probe()
def a_job_is_ready_from_the_moment_in_which_its_photos_are_here(bench: Bench) -> None:
    deployment, job = ask(bench, Photos())
    bench.wait(100)
    before = bench.look("SELECT version FROM job WHERE id = ?", job)[0]
    drain(fetch_photos(deployment))
    assert bench.look("SELECT fetching, version FROM job WHERE id = ?", job) == [(0, before + 1)]
    assert bench.events(job) == ["submitted", "fetched"]


@probe()
def two_servers_do_not_fetch_the_same(bench: Bench) -> None:
    photos = Photos()
    deployment, _ = ask(bench, photos)
    first, second = fetch_photos(deployment), fetch_photos(replace(deployment, server="another"))
    next(first)
    assert drain(second) == 0
    drain(first)
    assert photos.brought == list(NAMES)


@probe()
def of_two_servers_that_look_at_the_same_time_one_fetches(bench: Bench) -> None:
    photos = Photos()
    deployment, _ = ask(bench, photos)
    other = fetch_photos(replace(deployment, server="another"))
    bench.meanwhile("take_import", lambda: next(other))
    assert drain(fetch_photos(deployment)) == 0
    drain(other)
    assert photos.brought == list(NAMES) and photos.begun == 1


@probe()
def what_was_fetched_in_this_moment_is_not_fetched_again(bench: Bench) -> None:
    photos = Photos()
    deployment, job = ask(bench, photos)
    bench.meanwhile("take_import", lambda: drain(fetch_photos(replace(deployment, server="another"))))
    bench.wait(1)
    drain(fetch_photos(deployment))
    assert photos.brought == list(NAMES) and bench.events(job) == ["submitted", "fetched"]


@probe()
def a_server_whose_turn_is_over_writes_nothing_more(bench: Bench) -> None:
    deployment, job = ask(bench, Photos())
    late, other = fetch_photos(deployment), fetch_photos(replace(deployment, server="another"))
    next(late)
    bench.wait(LONG_S)
    next(other)
    before = bench.look("SELECT * FROM photo_import")
    assert drain(late) == 0 and bench.look("SELECT * FROM photo_import") == before
    drain(other)
    assert bench.events(job) == ["submitted", "fetched"]


@probe()
def a_server_that_is_overtaken_at_its_last_step_does_not_fill_the_job(bench: Bench) -> None:
    """Another one took over while this one was about to write, and waits for the photos still."""
    deployment, job = ask(bench, Photos())
    other = fetch_photos(replace(deployment, server="another"))

    def overtake() -> None:
        bench.wait(LONG_S)
        next(other)

    bench.meanwhile("fill_job", overtake)
    drain(fetch_photos(deployment))
    assert bench.look("SELECT fetching FROM job WHERE id = ?", job) == [1]
    drain(other)
    assert bench.events(job) == ["submitted", "fetched"]


@probe()
def a_job_that_is_canceled_in_this_moment_stays_canceled(bench: Bench) -> None:
    deployment, job = ask(bench, Photos())
    bench.meanwhile("fill_job", lambda: steer.cancel(bench.deployment, job, bench.now_ms))
    drain(fetch_photos(deployment))
    assert bench.events(job) == ["submitted", "canceled"] and bench.state(job) == "canceled"
    drain(fetch_photos(deployment))
    assert imported(bench) == "dropped"


@probe()
def a_photo_that_is_just_being_deleted_is_named_by_no_job(bench: Bench) -> None:
    deployment, job = ask(bench, Photos())
    give_up = "UPDATE blob SET going = 'another' WHERE sha256 NOT IN (SELECT sha256 FROM job_file)"
    bench.meanwhile("fill_job", lambda: bench.store._connection().execute(give_up))
    drain(fetch_photos(deployment))
    assert bench.look("SELECT fetching FROM job WHERE id = ?", job) == [1]


@probe()
def nothing_is_kept_under_the_name_of_what_is_just_being_deleted(bench: Bench) -> None:
    photos = Photos()
    deployment, job = ask(bench, photos)
    drain_first = fetch_photos(deployment)
    for _ in range(4):
        next(drain_first)
    bench.store._connection().execute(
        "UPDATE blob SET going = 'another' WHERE sha256 NOT IN (SELECT sha256 FROM job_file)"
    )
    bench.wait(LONG_S)
    drain(fetch_photos(replace(deployment, server="another")))
    assert bench.look("SELECT fetching FROM job WHERE id = ?", job) == [1]
    assert "being deleted" in bench.look("SELECT because FROM photo_import")[0]


@probe()
def photos_that_cannot_be_fetched_fail_their_job_once(bench: Bench) -> None:
    def refuse() -> None:
        raise BadInput("there is nothing")

    deployment, job = ask(bench, Photos(bringing=refuse))
    drain(fetch_photos(deployment))
    drain(fetch_photos(deployment))
    assert bench.state(job) == "failed" and imported(bench) == "failed"
    assert bench.events(job) == ["submitted", "failed"]


@probe()
def a_server_that_is_overtaken_does_not_fail_the_job(bench: Bench) -> None:
    photos = Photos()
    deployment, job = ask(bench, photos)
    other = fetch_photos(replace(deployment, server="another"))

    def fail() -> None:
        photos.bringing = lambda: None
        bench.wait(LONG_S)
        next(other)
        raise BadInput("its disk is full")

    photos.bringing = fail
    drain(fetch_photos(deployment))
    assert bench.state(job) == "queued"
    drain(other)
    assert bench.events(job) == ["submitted", "fetched"]


@probe()
def a_server_that_fails_late_does_not_take_the_turn_from_another(bench: Bench) -> None:
    photos = Photos()
    deployment, job = ask(bench, photos)
    other = fetch_photos(replace(deployment, server="another"))

    def meanwhile() -> None:
        photos.bringing = lambda: None
        bench.wait(LONG_S)
        next(other)
        raise Unreachable("the site is away")

    photos.bringing = meanwhile
    drain(fetch_photos(deployment))
    drain(other)
    assert imported(bench) == "ready" and bench.events(job) == ["submitted", "fetched"]


@probe()
def what_is_on_its_way_for_a_job_that_ends_is_left_there(bench: Bench) -> None:
    photos = Photos()
    deployment, job = ask(bench, photos)
    photos.bringing = lambda: steer.cancel(bench.deployment, job, bench.now_ms)
    drain(fetch_photos(deployment))
    assert photos.brought == [] and imported(bench) == "dropped"


@probe()
def all_tries_together_have_a_time(bench: Bench) -> None:
    """Without the time in which nothing was fetched."""

    def slow() -> None:
        bench.wait(40)
        raise Unreachable("the site is away")

    bench.deployment = replace(bench.deployment, fetching=FetchingSettings(job_s=100))
    deployment, job = ask(bench, Photos(bringing=slow))
    for _ in range(3):
        drain(fetch_photos(deployment))
        bench.wait(3600)
    assert bench.state(job) == "queued"
    drain(fetch_photos(deployment))
    assert bench.state(job) == "failed" and "fetching them took longer than 100 s" in bench.said(job)


@probe()
def a_restart_forgets_no_time_that_was_spent(bench: Bench) -> None:
    bench.deployment = replace(bench.deployment, fetching=FetchingSettings(job_s=100))
    deployment, job = ask(bench, Photos())
    for _ in range(2):
        assert bench.state(job) == "queued"
        steps = fetch_photos(deployment)
        next(steps)
        bench.wait(60)
        next(steps, None)
        steps.close()
        bench.wait(3600)
    assert bench.state(job) == "failed"


# Of one project


def ask_several(bench: Bench, photos: Photos, count: int, most: int = 1) -> tuple[Deployment, list[str]]:
    """Jobs of one project, of which `most` may be fetched for at once."""
    bench.deployment = replace(bench.deployment, fetching=FetchingSettings(at_once_per_project_max=most))
    jobs = [ask(bench, photos, seed=seed)[1] for seed in range(count)]
    return bench.deployment, jobs


def under_way(bench: Bench) -> list[str]:
    return bench.look("SELECT job FROM photo_import WHERE server <> '' ORDER BY job")


@probe()
def a_project_has_no_more_fetches_at_once_than_it_may(bench: Bench) -> None:
    deployment, jobs = ask_several(bench, Photos(), 4, most=2)
    threads = [fetch_photos(deployment, number) for number in range(4)]
    for thread in threads:
        next(thread, None)
    assert under_way(bench) == jobs[:2]
    drain(threads[0])
    assert [len(bench.events(job)) for job in jobs] == [2, 1, 2, 2], "the others came in their turn"


@probe()
def who_takes_a_fetch_in_this_moment_counts(bench: Bench) -> None:
    deployment, jobs = ask_several(bench, Photos(), 3)
    other = fetch_photos(replace(deployment, server="another"))
    bench.meanwhile("take_import", lambda: next(other))
    assert drain(fetch_photos(deployment)) == 0 and under_way(bench) == jobs[:1]
    drain(other)


@probe()
def a_project_at_its_limit_is_not_asked_for_again_and_again(bench: Bench) -> None:
    deployment, _ = ask_several(bench, Photos(), 3)
    next(fetch_photos(deployment))
    tried = list[str]()
    bench.store.meanwhile = lambda writes: tried.extend(write.name for write in writes)
    assert drain(fetch_photos(deployment, 1)) == 0 and tried == []


@probe()
def one_projects_fetches_hold_up_no_other_project(bench: Bench) -> None:
    """Whoever has the fewest under way comes first, then the oldest."""
    deployment, ours = ask_several(bench, Photos(), 3, most=2)
    bench.store._connection().execute("UPDATE job SET project = 'other' WHERE id = ?", ours[2:])
    threads = [fetch_photos(deployment, number) for number in range(2)]
    for thread in threads:
        next(thread)
    assert under_way(bench) == [ours[0], ours[2]]


@probe()
def the_limit_is_each_projects_own(bench: Bench) -> None:
    deployment, ours = ask_several(bench, Photos(), 2)
    bench.store._connection().execute("UPDATE job SET project = 'other' WHERE id = ?", ours[1:])
    for number in range(2):
        next(fetch_photos(deployment, number))
    assert under_way(bench) == ours


@probe()
def a_job_that_waits_to_be_tried_again_leaves_its_place_to_another(bench: Bench) -> None:
    def away() -> None:
        raise Unreachable("the site is away")

    photos = Photos(bringing=away)
    deployment, jobs = ask_several(bench, photos, 1)
    drain(fetch_photos(deployment))
    photos.bringing = lambda: None
    ready = ask(bench, photos, seed=9)[1]
    drain(fetch_photos(deployment))
    assert bench.events(ready) == ["submitted", "fetched"] and bench.events(jobs[0]) == ["submitted"]


@probe()
def a_server_that_starts_again_goes_on_with_what_it_had(bench: Bench) -> None:
    deployment, jobs = ask_several(bench, Photos(), 2)
    next(fetch_photos(deployment))
    drain(fetch_photos(deployment))
    assert [bench.events(job) for job in jobs] == [["submitted", "fetched"]] * 2


@probe()
def what_a_dead_server_was_fetching_takes_no_place_once_its_turn_is_over(bench: Bench) -> None:
    deployment, jobs = ask_several(bench, Photos(), 2)
    next(fetch_photos(deployment))
    bench.wait(LONG_S)
    drain(fetch_photos(replace(deployment, server="another")))
    assert [bench.events(job) for job in jobs] == [["submitted", "fetched"]] * 2


# Deliveries


@dataclass
class Shelf:
    """The `deliverer` port; `putting` is called before each file."""

    putting: Callable[[], object] = lambda: None
    there: list[str] = field(default_factory=list)

    def check(self, project: str, address: str) -> None:
        pass

    def put(self, project: str, address: str, files: Sequence[Outgoing]) -> Iterator[tuple[Outgoing, ...]]:
        for file in files:
            self.putting()
            self.there.append(file.path)
            yield (file,)


def succeeded(bench: Bench, shelf: Shelf) -> tuple[Deployment, str]:
    bench.deployment = replace(bench.deployment, deliverer=shelf)
    check_target(bench.deployment, PROJECT, "s3://bucket/results/")
    job = bench.submit(deliver="s3://bucket/results/")
    node = bench.join()
    bench.succeed(node, bench.take(node, job))
    return bench.deployment, job


def delivery(bench: Bench) -> str:
    return bench.look("SELECT state FROM delivery")[0]


@probe()
def results_are_delivered_once_after_success(bench: Bench) -> None:
    shelf = Shelf()
    bench.deployment = replace(bench.deployment, deliverer=shelf)
    bench.submit(deliver="s3://bucket/results/", seed=5)
    drain(deliver.deliver(bench.deployment))
    assert shelf.there == []
    steer.cancel(bench.deployment, bench.look("SELECT id FROM job")[0], bench.now_ms)
    deployment, job = succeeded(bench, shelf)
    drain(deliver.deliver(deployment))
    drain(deliver.deliver(deployment))
    assert len(shelf.there) == 1 and bench.events(job)[-1] == "delivered"
    assert sorted(bench.look("SELECT state FROM delivery")) == ["delivered", "dropped"]


@probe()
def two_servers_do_not_deliver_the_same(bench: Bench) -> None:
    shelf = Shelf()
    deployment, job = succeeded(bench, shelf)
    first, second = deliver.deliver(deployment), deliver.deliver(replace(deployment, server="another"))
    next(first)
    assert drain(second) == 0
    drain(first)
    assert len(shelf.there) == 1 and bench.events(job).count("delivered") == 1


@probe()
def of_two_servers_that_look_at_the_same_time_one_delivers(bench: Bench) -> None:
    shelf = Shelf()
    deployment, job = succeeded(bench, shelf)
    turn = {"job": job, "server": "another/0", "now": bench.now_ms, "turn_ends_ms": bench.now_ms + 1000}
    bench.meanwhile("take_delivery", lambda: bench.store.apply(guard("take_delivery", **turn)))
    assert drain(deliver.deliver(deployment)) == 0 and shelf.there == []
    bench.wait(2)
    drain(deliver.deliver(deployment))
    assert len(shelf.there) == 1 and bench.events(job).count("delivered") == 1


@probe()
def a_server_whose_turn_is_over_tells_of_no_delivery(bench: Bench) -> None:
    deployment, job = succeeded(bench, Shelf())
    late, other = deliver.deliver(deployment), deliver.deliver(replace(deployment, server="another"))
    next(late)
    bench.wait(LONG_S)
    drain(other)
    assert delivery(bench) == "delivered"
    before = bench.look("SELECT * FROM delivery")
    drain(late)
    assert bench.look("SELECT * FROM delivery") == before and bench.events(job).count("delivered") == 1


@probe()
def what_a_server_delivered_after_its_turn_is_not_written_down(bench: Bench) -> None:
    shelf = Shelf()
    deployment, job = succeeded(bench, shelf)
    other = deliver.deliver(replace(deployment, server="another"))

    def overtake() -> None:
        shelf.putting = lambda: None
        bench.wait(LONG_S)
        next(other)

    shelf.putting = overtake
    assert drain(deliver.deliver(deployment)) == 0
    drain(other)
    assert delivery(bench) == "delivered" and bench.events(job).count("delivered") == 1


@probe()
def a_server_that_fails_late_says_nothing_of_anothers_delivery(bench: Bench) -> None:
    for error in (BadInput("refused"), Unreachable("away")):
        shelf = Shelf()
        deployment, job = succeeded(bench, shelf)
        other = deliver.deliver(replace(deployment, server="another"))

        def meanwhile(shelf: Shelf = shelf, other: Any = other, error: Exception = error) -> None:
            shelf.putting = lambda: None
            bench.wait(LONG_S)
            next(other)
            raise error

        shelf.putting = meanwhile
        drain(deliver.deliver(deployment))
        drain(other)
        assert bench.events(job)[-1] == "delivered" and "not delivered" not in bench.events(job)


@probe()
def what_is_removed_leaves_no_place_behind(bench: Bench) -> None:
    deployment, _ = succeeded(bench, Shelf())
    _, other = ask(bench, Photos(), seed=9)
    steer.cancel(bench.deployment, other, bench.now_ms)
    for job in bench.look("SELECT id FROM job"):
        remove(replace(deployment, fetcher=Photos()), job, bench.now_ms)
    assert bench.look("SELECT * FROM delivery") == bench.look("SELECT * FROM photo_import") == []
