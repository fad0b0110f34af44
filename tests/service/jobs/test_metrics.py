"""What nodes measured, as users see it: one run, whatever happened to the job meanwhile."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from gangline.cli import main
from gangline.cli.jobs.metrics import sparkline
from gangline.compose.client import Client
from gangline.core.errors import NotFound
from gangline.core.runs.metrics import POINTS_MAX, Point
from gangline.core.views import MetricsView
from gangline.ports.server import Committed, Done, Failed, Hold, Points, Stale
from gangline.service.jobs import metrics, steer
from gangline.service.jobs.finish import finish
from gangline.service.jobs.query import job as job_view
from tests.service.conftest import OPERATOR, POLICY, PROJECT, Service
from tests.service.jobs.test_one_at_a_time import commit, upload
from tests.service.served import serving
from tests.service.test_rules import beat, succeed


def points(first: int, last: int, loss: float = 1.0) -> Points:
    """One for each step."""
    return Points(points=tuple(Point(step=step, values={"loss": loss / step}) for step in range(first, last + 1)))


def measure(service: Service, node: str, hold: Hold, first: int, last: int, loss: float = 1.0) -> Done | Stale:
    return metrics.take(service.deployment, node, hold, points(first, last, loss), service.now_ms)


def save(service: Service, node: str, hold: Hold, step: int) -> None:
    upload(service, node, hold, step)
    assert isinstance(commit(service, node, hold, step), Committed)


def lose(service: Service) -> None:
    """The lease of who is at work."""
    service.wait(POLICY.lease_s + 1)
    service.tick()


def seen(service: Service, job: str, after: int = 0) -> MetricsView:
    return metrics.metrics_after(service.deployment, PROJECT, job, after)


def steps(found: MetricsView) -> list[int]:
    return [point.step for point in found.points]


def test_a_job_interrupted_twice_is_one_run_without_doubled_or_missing_steps(service: Service) -> None:
    job = service.submit()
    for name, first, last, saved in (("a", 1, 30, 20), ("b", 21, 60, 50), ("c", 51, 70, 70)):
        node = service.join(name)
        hold = service.claim(node).hold
        measure(service, node, hold, first, saved, loss=ord(name))
        save(service, node, hold, saved)
        if last > saved:
            measure(service, node, hold, saved + 1, last, loss=ord(name))
        lose(service)
    found = seen(service, job)
    assert steps(found) == list(range(1, 71))
    told_by = {point.step: round(point.values["loss"] * point.step) for point in found.points}
    assert (told_by[20], told_by[21], told_by[50], told_by[51]) == (ord("a"), ord("b"), ord("b"), ord("c"))


def test_a_batch_that_comes_twice_or_late_changes_nothing(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    measure(service, node, hold, 1, 10)
    measure(service, node, hold, 11, 20)
    before = service.dump()
    assert measure(service, node, hold, 1, 10, loss=7.0) == Done()
    assert measure(service, node, hold, 11, 20, loss=7.0) == Done()
    assert service.dump() == before
    measure(service, node, hold, 16, 25, loss=7.0)  # what was sent again together with what is new
    assert steps(seen(service, job)) == list(range(1, 26))


def test_who_has_lost_the_lease_measures_nothing(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    lose(service)
    before = service.dump()
    assert isinstance(measure(service, node, hold, 1, 10), Stale)
    assert service.dump() == before and not steps(seen(service, job))


def test_the_next_question_asks_again_for_what_may_still_be_replaced(service: Service) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    measure(service, node, hold, 1, 20)
    save(service, node, hold, 20)
    measure(service, node, hold, 21, 30)
    found = seen(service, job)
    assert (steps(found)[-1], found.committed_step, found.next) == (30, 20, 20)
    assert steps(seen(service, job, found.next)) == list(range(21, 31))
    finish(service.deployment, node, hold, Failed(kind="bad data", because="b"), service.now_ms)
    steer.cancel(service.deployment, job, service.now_ms)
    assert seen(service, job).next == 30
    with pytest.raises(NotFound):
        metrics.metrics_after(service.deployment, "another", job, 0)


@pytest.mark.parametrize(
    "body",
    [
        {"points": []},
        {"points": [{"step": 0, "values": {}}]},
        {"points": [{"step": 1, "values": {"a b": 1}}]},
        {"points": [{"step": 1, "values": {"loss": "NaN"}}]},
        {"points": [{"step": 1, "values": {f"n{number}": 1 for number in range(40)}}]},
        {"points": [{"step": 2, "values": {}}, {"step": 2, "values": {}}]},
        {"points": [{"step": step, "values": {}} for step in range(1, POINTS_MAX + 2)]},
    ],
)
def test_what_is_no_batch_of_points_is_refused(service: Service, body: dict[str, Any]) -> None:
    service.submit()
    token = service.join_with("gl_join_test").json()["token"]
    claimed = service.ask("POST", "/v1/claims", token).json()
    path = f"/v1/attempts/{claimed['hold']['attempt']}/metrics?fencing={claimed['hold']['fencing']}"
    assert service.ask("POST", path, token, json=body).status_code == 422
    assert not service.look("SELECT * FROM metric")


def test_users_see_the_newest_values_and_how_the_loss_went(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    job, node = service.submit(), service.join()
    hold = service.claim(node).hold
    with serving(service.app) as served:
        monkeypatch.setenv("GANGLINE_SERVER", served.url)
        monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
        empty = CliRunner().invoke(main.app, ["metrics", job])
        assert empty.exit_code == 0 and "has no metrics yet" in empty.stderr
        measure(service, node, hold, 1, 40)
        told = CliRunner().invoke(main.app, ["metrics", job])
        assert told.exit_code == 0 and "the training loss" in told.stdout and "0.025" in told.stdout
        assert "█" in told.stdout and told.stdout.strip()[-1] == "▁"
        shown = CliRunner().invoke(main.app, ["jobs", "show", job])
        assert shown.exit_code == 0 and "smoothed_loss" in shown.stdout
        found = json.loads(CliRunner().invoke(main.app, ["metrics", job, "-o", "json"]).stdout)
        assert (found["points"][-1]["step"], found["points"][-1]["values"]["loss"]) == (40, 0.025)
        assert Client(served.url, OPERATOR).metrics.get(job, after=39).points[0].step == 40


def test_a_line_of_bars_has_a_width_and_shows_what_is_flat() -> None:
    assert len(sparkline([float(number) for number in range(1000)])) == 60
    assert sparkline([2.0]) == "▁" and sparkline([1.0, 1.0, 1.0]) == "▁▁▁"
    assert sparkline([0.0, 7.0]) == "▁█"


def test_metrics_say_more_than_the_last_heartbeat(service: Service) -> None:
    """The loss and the step of an attempt are those that were measured last, while it is live and when it has ended."""
    job, node = service.submit(steps=60), service.join()
    hold = service.claim(node).hold
    beat(service, node, hold, 6, loss=0.9, seconds_per_step=0.1)
    service.wait(1)
    measure(service, node, hold, 1, 53)
    live = job_view(service.deployment, PROJECT, job, service.now_ms)
    assert (live.summary.step, live.summary.loss) == (53, live.attempts[0].loss) == (53, 1 / 53)
    measure(service, node, hold, 54, 60)
    beat(service, node, hold, 60, phase="uploading", loss=0.7)  # of that step alone; the metrics may be means over some
    measure(service, node, hold, 1, 20, loss=9.0)  # late
    succeed(service, node, hold)
    ended = job_view(service.deployment, PROJECT, job, service.now_ms)
    assert (ended.summary.step, ended.summary.loss, ended.attempts[0].loss) == (60, 1 / 60, 1 / 60)
    assert ended.summary.loss == seen(service, job).points[-1].values["loss"]
