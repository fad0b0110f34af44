"""Races and rules about what trainers measure, and about who is told of it."""

from dataclasses import replace
from random import Random

from gangline.core.runs.metrics import Point
from gangline.ports.server import Done, Hold, Points, Stale
from gangline.ports.store import write
from gangline.service.jobs import metrics
from gangline.service.jobs.track import Tracking
from tests.book import Book
from tests.sim.mutants.bench import PROJECT, Bench, probe
from tests.sim.mutants.probes import canceled_meanwhile, is_stale


def measure(bench: Bench, node: str, hold: Hold, first: int, last: int) -> Done | Stale:
    points = tuple(Point(step=step, values={"loss": 1 / step}) for step in range(first, last + 1))
    return metrics.take(bench.deployment, node, hold, Points(points=points), bench.now_ms)


def steps(bench: Bench, job: str) -> list[int]:
    return [point.step for point in metrics.metrics_after(bench.deployment, PROJECT, job, 0).points]


def followed(bench: Bench) -> Book:
    book = Book()
    bench.deployment = replace(bench.deployment, trackers=(book,))
    return book


def look(bench: Bench) -> None:
    """As a server does that has just started."""
    Tracking(bench.deployment, bench.deployment.trackers[0], Random(0)).look(bench.now_ms)


def train(bench: Bench, node: str, hold: Hold, first: int, last: int) -> None:
    measure(bench, node, hold, first, last)
    bench.commit(node, hold, last)


@probe()
def nothing_is_measured_after_the_lease_is_lost(bench: Bench) -> None:
    job, node, hold = canceled_meanwhile(bench, "add_metric")
    assert is_stale(measure(bench, node, hold, 1, 10))
    assert not steps(bench, job) and not bench.look("SELECT step FROM metric")


@probe()
def metrics_say_how_far_an_attempt_is_and_its_loss(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.beat(node, hold, phase="training", step=3)
    bench.wait(1)
    for first in (1, 11):
        measure(bench, node, hold, first, first + 9)
        assert bench.look("SELECT step, loss FROM lease") == [(first + 9, 1 / (first + 9))]
    came_ms = bench.now_ms
    bench.wait(1)
    again = Points(points=(Point(step=20, values={"loss": 9.0}),))
    for late in (again, replace(again, points=(Point(step=15, values={"loss": 9.0}),))):
        metrics.take(bench.deployment, node, hold, late, bench.now_ms)
    bench.beat(node, hold, phase="training", step=20, loss=0.9)  # of one step, and metrics may be means over some
    assert bench.look("SELECT step, loss, stepped_ms FROM lease") == [(20, 1 / 20, came_ms)]
    bench.beat(node, hold, phase="training", step=29, loss=0.9)
    measure(bench, node, hold, 21, 25)
    assert bench.look("SELECT step, loss FROM lease") == [(29, 0.9)]


@probe()
def every_word_of_a_node_says_that_it_lives(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.wait(4)
    measure(bench, node, hold, 1, 3)
    assert bench.look("SELECT beat_ms FROM lease") == [bench.now_ms]
    holding_earlier = metrics.take(
        bench.deployment, node, hold, Points(points=(Point(step=4, values={}),)), bench.now_ms - 1000
    )  # by a server whose clock is behind
    assert holding_earlier == Done()
    assert bench.look("SELECT beat_ms FROM lease") == [bench.now_ms]


@probe()
def a_phase_is_written_once_with_the_beat_that_brought_it(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    for phase in ("preparing", "preparing", "training", "training"):
        bench.beat(node, hold, phase=phase)
        bench.beat(node, hold, phase=phase)  # again within the same millisecond
        bench.wait(1)
    assert bench.look("SELECT phase FROM attempt_phase ORDER BY at_ms") == ["preparing", "training"]


@probe()
def batches_follow_each_other_and_one_that_comes_twice_is_kept_once(bench: Bench) -> None:
    job, node = bench.submit(), bench.join()
    hold = bench.take(node, job)
    bench.meanwhile("add_metric", lambda: measure(bench, node, hold, 1, 10))
    for first, last in ((1, 10), (11, 20), (1, 10), (11, 20)):
        assert measure(bench, node, hold, first, last) == Done()
    assert bench.look("SELECT step FROM metric ORDER BY step") == [10, 20]
    assert steps(bench, job) == list(range(1, 21))


@probe()
def what_others_measured_keeps_nobody_from_measuring(bench: Bench) -> None:
    far, near = (bench.take(bench.join(name), bench.submit(seed=seed)) for seed, name in enumerate("ab"))
    nodes = dict(bench.look("SELECT id, node FROM attempt"))
    measure(bench, nodes[far.attempt], far, 1, 90)
    measure(bench, nodes[near.attempt], near, 1, 10)
    assert bench.look("SELECT step FROM metric ORDER BY step") == [10, 90]


@probe()
def a_job_is_tracked_from_its_first_point_on_once(bench: Bench) -> None:
    book, job, node = followed(bench), bench.submit(), bench.join()
    hold = bench.take(node, job)
    train(bench, node, hold, 1, 10)
    look(bench)
    train(bench, node, hold, 11, 20)
    look(bench)
    assert book.told == {job: list(range(1, 21))}


@probe()
def a_mark_that_another_server_moved_on_stays(bench: Bench) -> None:
    """Its tracker cannot say what it holds: the mark is all that is known."""
    book, job, node = followed(bench), bench.submit(), bench.join()
    hold = bench.take(node, job)
    train(bench, node, hold, 1, 10)
    look(bench)

    def go_further() -> None:
        train(bench, node, hold, 21, 30)
        look(bench)

    train(bench, node, hold, 11, 20)
    slow = Tracking(bench.deployment, book, Random(0))
    told = book.write

    def write_slowly(*what: object) -> None:
        book.write = told  # type: ignore[method-assign]
        go_further()

    book.write = write_slowly  # type: ignore[method-assign,assignment]
    slow.look(bench.now_ms)
    assert bench.look("SELECT step FROM tracked") == [30]
    look(bench)
    assert book.told == {job: list(range(1, 31))}


@probe()
def a_picture_that_two_servers_show_at_once_is_marked_once(bench: Bench) -> None:
    book, job, node = followed(bench), bench.submit(), bench.join()
    hold = bench.take(node, job)
    train(bench, node, hold, 1, 100)
    look(bench)
    key = "projects/default/a.png"
    bench.objects.write(key, b"a picture")
    picture = {
        "job": job,
        "path": "samples/a.png",
        "attempt": hold.attempt,
        "key": key,
        "bytes": 9,
        "sha256": "0" * 64,
        "now": 1,
    }
    bench.store.apply(write("add_artifact", **picture))
    bench.fail(node, hold, "bad data")
    bench.store.apply(write("set_job_state", **_failed(bench, job)))
    bench.meanwhile("picture_tracked", lambda: look(bench))
    look(bench)
    assert set(book.shown) == {"samples/a.png 100"} and job in book.ended
    assert bench.look("SELECT path FROM tracked_picture") == ["samples/a.png"]


def _failed(bench: Bench, job: str) -> dict[str, object]:
    version = bench.look("SELECT version FROM job WHERE id = ?", job)[0]
    facts = {"because": "bad data", "attempts_failed": 1, "gpu_memory_gb": 0, "ready_ms": 0, "now": bench.now_ms}
    return {"id": job, "version": version, "state": "failed"} | facts
