"""Read the losses of the jobs of a page as small curves: a few batches of each, however long it trained."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from gangline.core.jobs.lists.ids import as_list
from gangline.core.runs.metrics import AttemptPoints, series, unpack_points, with_smoothed_loss
from gangline.service.deployment import Deployment

BATCHES = 24
POINTS_MAX = 40


def curves(deployment: Deployment, project: str, jobs: Sequence[str]) -> Mapping[str, tuple[float, ...]]:
    """Return the smoothed losses of those of these jobs that are the project's and have some, at most `POINTS_MAX` each.

    Steps that a later attempt redid are left out.
    """
    found = dict[str, tuple[float, ...]]()
    rows = deployment.store.load("curves", project=project, most=BATCHES, **as_list(jobs)) if jobs else []
    for job, of_job in groupby(rows, lambda row: row["job"]):
        attempts = [
            AttemptPoints(
                from_step=batches[0]["from_step"],
                points=tuple(point for row in batches for point in unpack_points(row["points"], row["at_ms"])),
            )
            for batches in (list(of_one) for _, of_one in groupby(of_job, lambda row: row["fencing"]))
        ]
        points = with_smoothed_loss(series(attempts, None))
        losses = [point.values["smoothed_loss"] for point in points if "smoothed_loss" in point.values]
        if losses:
            found[job] = _thinned(losses)
    return found


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    """Return at most `POINTS_MAX` of the values at equal distances, the last one among them."""
    step = -(-len(values) // POINTS_MAX)
    return tuple(reversed(values[::-1][::step]))
