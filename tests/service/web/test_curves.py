"""The small curves of the list: some batches of a job's metrics, the steps that count, and no other project's."""

from gangline.core.runs.metrics import Point
from gangline.ports.server import Points
from gangline.service.jobs import metrics
from gangline.service.jobs.lists.curves import POINTS_MAX, curves
from tests.service.conftest import Service


def test_a_curve_has_few_points_and_ends_with_the_last_one(service: Service) -> None:
    job, node = service.submit(steps=5000), service.join()
    hold = service.claim(node).hold
    for step in range(10, 2000, 10):
        points = (Point(step=step, values={"loss": 1000.0 / step}),)
        metrics.take(service.deployment, node, hold, Points(points=points), service.now_ms)
    found = curves(service.deployment, "default", [job])
    whole = [point.values["smoothed_loss"] for point in metrics.load_series(service.deployment, job)]
    assert len(found[job]) <= POINTS_MAX and found[job][0] > found[job][-1] > 0
    assert abs(found[job][-1] - whole[-1]) < whole[-1]  # smoothed over fewer points
    service.add_project("other")
    assert curves(service.deployment, "other", [job]) == {}


def test_jobs_without_metrics_have_no_curve(service: Service) -> None:
    assert curves(service.deployment, "default", [service.submit(), "job-none"]) == {}
    assert curves(service.deployment, "default", []) == {}
