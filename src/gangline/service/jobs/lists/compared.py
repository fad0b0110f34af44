"""Load two jobs to compare them, as `gangline jobs diff` does."""

from gangline.core.compared.outcome import compared_job
from gangline.core.errors import BadInput, NotFound
from gangline.core.jobs.lists.diff import ComparedJob, JobsDiff, compare
from gangline.core.jobs.lists.filters import JobFilters
from gangline.core.views import JobView
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.page import page_of_jobs
from gangline.service.jobs.metrics import load_series
from gangline.service.jobs.query import job as job_view
from gangline.service.jobs.story.held_out import read_report


def compared_jobs(deployment: Deployment, project: str, first: str, second: str, now_ms: int) -> JobsDiff:
    """Return what differs between a job, by its id, and a second one, by its id or its name, and what came of each.

    Raise `NotFound` for a job that the project has not, and `BadInput` for a name that several jobs have.
    """
    one = _compared(deployment, job_view(deployment, project, first, now_ms), now_ms)
    other = _find(deployment, project, second, now_ms)
    return compare(one, _compared(deployment, job_view(deployment, project, other, now_ms), now_ms))


def _find(deployment: Deployment, project: str, named: str, now_ms: int) -> str:
    found = [job.id for job in page_of_jobs(deployment, project, JobFilters(named=named), now_ms, limit=2).jobs]
    if not found:
        raise NotFound(f"there is no job {named}", hint="write its id, or its name")
    if len(found) > 1 and named not in found:
        raise BadInput(f"several jobs are called {named}", hint="write the id of one of them")
    return named if named in found else found[0]


def _compared(deployment: Deployment, view: JobView, now_ms: int) -> ComparedJob:
    return compared_job(view, load_series(deployment, view.id), lambda: read_report(deployment, view.id), now_ms)
