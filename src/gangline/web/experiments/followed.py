"""Experiments as open pages follow them."""

from dataclasses import dataclass

from gangline.core.experiments.views import ExperimentPage
from gangline.service.deployment import Deployment
from gangline.service.experiments.query import experiment_view, page_of_experiments, runs_view
from gangline.web.experiments.compared import compared
from gangline.web.frame.rendering import block
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments

LISTED = 20
MANY_JOBS, MANY_AGAIN_MS = 200, 5_000
"""A screen of more jobs that are not at rest is read again at most every so often: each look reads all of them."""


@dataclass(slots=True)
class _Pace:
    """How many jobs the last look read, and when it was; `late`: something has changed since that was not read."""

    jobs: int = 0
    at_ms: int = 0
    late: bool = False

    def is_due(self, changes: Changes | None, now_ms: int) -> bool:
        many = changes is not None and self.jobs > MANY_JOBS
        self.late = many and 0 <= now_ms - self.at_ms < MANY_AGAIN_MS
        return not self.late

    def was_read(self, jobs: int, now_ms: int) -> None:
        self.jobs, self.at_ms = jobs, now_ms


class ExperimentsScreen:
    """A page of the list of experiments."""

    def __init__(self, project: str, cursor: str | None, *, may: bool) -> None:
        self.project: str | None = project
        self._of = project
        self._cursor = cursor
        self._may = may
        self._page = ExperimentPage(experiments=(), next=None)
        self._pace = _Pace()
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return self._pace.late or changes.listed or bool(changes.jobs)

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        before, now_ms = self._page, deployment.store.now_ms()
        if not self._pace.is_due(changes, now_ms):
            return ""
        self._page = page_of_experiments(deployment, self._of, now_ms, limit=LISTED, cursor=self._cursor)
        self._pace.was_read(sum(each.jobs for each in self._page.experiments if each.ended_ms is None), now_ms)
        changed = self._fragments.changed(
            {each.id: block("experiments/rows.html", "row", found=each, oob=True) for each in self._page.experiments}
        )
        same = [each.id for each in before.experiments] == [each.id for each in self._page.experiments]
        return changed if same else self.whole()

    def whole(self) -> str:
        return block("experiments/rows.html", "experiments", page=self._page, may=self._may, oob=True)


class ExperimentScreen:
    """An experiment: what it waits for, its cost, and the rows of its table, which stay where they are."""

    def __init__(self, project: str, experiment: str, *, by_job: bool, may: bool) -> None:
        self.project: str | None = project
        self._of = project
        self._experiment = experiment
        self._by_job = by_job
        self._may = may
        self._jobs = frozenset[str]()
        self._pace = _Pace()
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return self._pace.late or not changes.jobs.isdisjoint(self._jobs)

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        now_ms = deployment.store.now_ms()
        if not self._pace.is_due(changes, now_ms):
            return ""
        found = experiment_view(deployment, self._of, self._experiment, now_ms)
        runs = runs_view(deployment, self._of, self._experiment, now_ms)
        self._pace.was_read(found.jobs, now_ms)
        self._jobs = frozenset(run.job for run in runs)
        table = compared(found, runs, by_job=self._by_job)
        filled_template = {
            name: block("experiments/parts.html", name, found=found, may=self._may, oob=True)
            for name in ("facts", "actions")
        }
        filled_template |= {
            row.id: block("experiments/parts.html", "sent_row", of=row, table=table, found=found) for row in table.rows
        }
        return self._fragments.changed(filled_template)

    def whole(self) -> str:
        return self._fragments.whole()
