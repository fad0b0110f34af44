"""Find out which jobs of a project have changed: by its new facts, by how far the nodes at work on it have come, and by what is deleted."""

from dataclasses import dataclass, field

from gangline.service.deployment import Deployment
from gangline.service.facts import FACTS_MAX, facts_after, last_fact
from gangline.service.jobs.lists.progress import progress_of_project, removed_lately

REMOVED_MS = 30_000
"""How long ago a deletion may have begun that is committed now."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The ids of the `jobs` that changed; `listed` says that some began, ended, moved on or were deleted, so that lists may have others
    now."""

    jobs: frozenset[str] = frozenset()
    listed: bool = False

    def __or__(self, other: "Changes") -> "Changes":
        return Changes(self.jobs | other.jobs, self.listed or other.listed)


NO_CHANGES = Changes()


@dataclass(slots=True)
class ProjectFeed:
    """What is known of a project's jobs since the last look, for all screens that show them."""

    project: str
    fact: int = -1
    progress: dict[str, tuple[object, ...]] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    """The jobs that were deleted lately."""

    def look(self, deployment: Deployment) -> Changes:
        """Return what changed since the last look. The first one finds nothing: each screen is then read as a whole."""
        first = self.fact < 0
        found = self._facts(deployment)
        before, self.progress = self.progress, self._progress(deployment)
        known, self.removed = self.removed, self._removed(deployment)
        if first:
            return NO_CHANGES
        moved = {job for job, now in self.progress.items() if before.get(job) != now}
        removed = self.removed - known
        return (
            found
            | Changes(removed, listed=bool(removed))
            | Changes(frozenset(moved | (before.keys() - self.progress.keys())))
        )

    def _facts(self, deployment: Deployment) -> Changes:
        if self.fact < 0:
            self.fact = last_fact(deployment, self.project)
            return NO_CHANGES
        jobs = set[str]()
        while found := facts_after(deployment, self.project, self.fact):
            self.fact = found[-1].number
            jobs |= {fact.job for fact in found}
            if len(found) < FACTS_MAX:
                break
        return Changes(frozenset(jobs), listed=bool(jobs))

    def _progress(self, deployment: Deployment) -> dict[str, tuple[object, ...]]:
        return progress_of_project(deployment, self.project)

    def _removed(self, deployment: Deployment) -> frozenset[str]:
        """Look for deleted jobs: they have no facts any more."""
        return removed_lately(deployment, self.project, deployment.store.now_ms() - REMOVED_MS)
