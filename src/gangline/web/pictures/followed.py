"""The grid of a job's pictures as an open page follows it."""

from gangline.service.deployment import Deployment
from gangline.service.jobs.query import owned
from gangline.service.pictures.listing import pictures_of_job
from gangline.web.frame.rendering import block
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments
from gangline.web.pictures.grid import SHOWN_MAX, PictureGrid, picture_grid


class PicturesScreen:
    """The pictures of a job. Pictures and their thumbnails come without an event, so each round asks whether some have."""

    def __init__(self, project: str, job: str) -> None:
        self.project: str | None = project
        self._of = project
        self._job = job
        self._seen: object = None
        self._grid = picture_grid(())
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return True

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        seen = deployment.store.load("pictures_seen", job=self._job)
        if changes is not None and self._job not in changes.jobs and seen == self._seen:
            return ""
        before, self._grid = self._grid, grid_of_job(deployment, self._of, self._job)
        self._seen = seen
        rows = {f"row-{row.prompt}": self._part("row", row=row) for row in self._grid.rows}
        changed = self._fragments.changed({name: self._part(name) for name in ("summary", "steps")} | rows)
        if [row.prompt for row in before.rows] == [row.prompt for row in self._grid.rows]:
            return changed
        return self.whole()  # a row that is new has no place of its own in the page yet

    def whole(self) -> str:
        return self._part("summary") + self._part("album")

    def _part(self, name: str, **values: object) -> str:
        return block("pictures/parts.html", name, job=self._job, grid=self._grid, oob=True, **values)


def grid_of_job(deployment: Deployment, project: str, job: str) -> PictureGrid:
    """Return the pictures of a job as a grid. Raise `NotFound`."""
    row = owned(deployment, project, job)
    found = pictures_of_job(deployment, row, None, 2 * SHOWN_MAX, deployment.store.now_ms())
    return picture_grid(found)
