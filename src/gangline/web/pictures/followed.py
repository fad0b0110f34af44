"""The grid of a job's pictures as an open page follows it."""

from gangline.service.deployment import Deployment
from gangline.service.jobs import query
from gangline.service.pictures.last import pictures_seen
from gangline.service.pictures.listing import pictures_of_job
from gangline.service.retention import storage
from gangline.web.frame.rendering import block
from gangline.web.job.offered import SAMPLE, OfferedAction, offered_actions
from gangline.web.live.feed import Changes
from gangline.web.live.screens import Fragments
from gangline.web.pictures.grid import SHOWN_MAX, PictureGrid, picture_grid


class PicturesScreen:
    """The pictures of a job. Pictures and their thumbnails come without an event, so each round asks whether some have."""

    def __init__(self, project: str, job: str, *, may: bool) -> None:
        self.project: str | None = project
        self._of = project
        self._job = job
        self._may = may
        self._offered: OfferedAction | None = None
        self._seen: object = None
        self._grid = picture_grid(())
        self._fragments = Fragments()

    def is_about(self, changes: Changes) -> bool:
        return True

    def refresh(self, deployment: Deployment, changes: Changes | None) -> str:
        seen = pictures_seen(deployment, self._job)
        if changes is not None and self._job not in changes.jobs and seen == self._seen:
            return ""
        before, self._grid = self._grid, grid_of_job(deployment, self._of, self._job)
        self._seen = seen
        self._offered = offered_sampling(deployment, self._of, self._job) if self._may else None
        grid, new = self._grid, self._grid.places_after(before)
        cells = {
            grid.id_of(row, at): self._part("cell", row=row, at=at, oob=True)
            for row in grid.rows
            for at in range(len(row.cells))
        }
        if new is None:
            self._fragments = Fragments()
            self._fragments.changed(self._heads() | cells)
            return self.whole()
        # A whole row is more than a browser swaps without a pause, forty times: a step that comes in is its cells alone.
        inserted = "".join(self._part("cells", row=row, places=new) for row in grid.rows) if new else ""
        self._fragments.changed({grid.id_of(row, at): cells[grid.id_of(row, at)] for row in grid.rows for at in new})
        return self._fragments.changed(self._heads() | cells) + inserted

    def whole(self) -> str:
        return self._part("summary", oob=True) + self._sampling() + self._part("album", oob=True)

    def _heads(self) -> dict[str, str]:
        return {name: self._part(name, oob=True) for name in ("summary", "steps")} | {"sampling": self._sampling()}

    def _sampling(self) -> str:
        return block("pictures/parts.html", "sampling", job=self._job, offered=self._offered, oob=True)

    def _part(self, name: str, **values: object) -> str:
        return block("pictures/parts.html", name, job=self._job, grid=self._grid, **values)


def offered_sampling(deployment: Deployment, project: str, job: str) -> OfferedAction | None:
    """Return the action that has pictures made of what a job has now, if its own screen offers that. Raise `NotFound`."""
    found = query.job(deployment, project, job, deployment.store.now_ms())
    keeps = bool(storage.checkpoints(deployment, query.owned(deployment, project, job)))
    return next((each for each in offered_actions(found, keeps=keeps) if each == SAMPLE), None)


def grid_of_job(deployment: Deployment, project: str, job: str) -> PictureGrid:
    """Return the pictures of a job as a grid. Raise `NotFound`."""
    row = query.owned(deployment, project, job)
    found = pictures_of_job(deployment, row, None, 2 * SHOWN_MAX, deployment.store.now_ms())
    return picture_grid(found)
