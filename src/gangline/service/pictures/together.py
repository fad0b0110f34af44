"""List the sample pictures of several jobs, to show them beside each other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gangline.core.jobs.lists.ids import as_list
from gangline.core.pictures.names import PicturePlace, picture_place
from gangline.core.pictures.views import ThumbnailState
from gangline.service.deployment import Deployment
from gangline.service.pictures.listing import thumbnail_state


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPicture:
    """A sample picture of a job, and whether there is a thumbnail of it."""

    job: str
    place: PicturePlace
    path: str
    sha256: str
    thumbnail: ThumbnailState

    @property
    def small(self) -> bool:
        return self.thumbnail == "ready"


def pictures_of_jobs(
    deployment: Deployment, last_steps: Mapping[str, int], prompt: int | None
) -> Iterator[PlacedPicture]:
    """Yield the sample pictures of these jobs, of one prompt by its number or of all. `last_steps` has the step of each job's result."""
    if not last_steps:
        return
    path = "samples/%seed-%.png" if prompt is None else f"samples/%prompt-{prompt:02d}-%seed-%.png"
    for row in deployment.store.load("pictures_of_jobs", path=path, **as_list([*last_steps])):
        place = picture_place(row["path"], last_steps[row["job"]])
        if place is not None:
            yield PlacedPicture(
                job=row["job"], place=place, path=row["path"], sha256=row["sha256"], thumbnail=thumbnail_state(row)
            )
