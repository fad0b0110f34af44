"""The grid of a job's pictures as an open page follows it."""

from gangline.service.deployment import Deployment
from gangline.service.jobs.query import owned
from gangline.service.pictures.last import pictures_seen
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
        seen = pictures_seen(deployment, self._job)
        if changes is not None and self._job not in changes.jobs and seen == self._seen:
            return ""
        before, self._grid = self._grid, grid_of_job(deployment, self._of, self._job)
        self._seen = seen
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
        return self._part("summary", oob=True) + self._part("album", oob=True)

    def _heads(self) -> dict[str, str]:
        return {name: self._part(name, oob=True) for name in ("summary", "steps")}

    def _part(self, name: str, **values: object) -> str:
        return block("pictures/parts.html", name, job=self._job, grid=self._grid, **values)


def grid_of_job(deployment: Deployment, project: str, job: str) -> PictureGrid:
    """Return the pictures of a job as a grid. Raise `NotFound`."""
    row = owned(deployment, project, job)
    found = pictures_of_job(deployment, row, None, 2 * SHOWN_MAX, deployment.store.now_ms())
    return picture_grid(found)
