"""Plan a job before it is submitted: what it would do, where, how long that takes and what it costs.

It is asked while somebody types. It changes nothing, reads no photo, and asks no provider and no hub.
"""

from collections.abc import Sequence
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.jobs.lists.ids import as_list
from gangline.core.plans.base import KnownBase, of_spec, with_model
from gangline.core.plans.document import Answer
from gangline.core.plans.stored import stored_photos
from gangline.core.plans.view import JobPlanView, PlannedPhotos, fetched_from, job_plan
from gangline.core.specs.fields import Base
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import parse_submitted
from gangline.service.content.bases import base_of_content
from gangline.service.datasets.named import with_dataset_named
from gangline.service.deployment import Deployment
from gangline.service.jobs.placing.placement import place_spec
from gangline.service.jobs.submit import with_inputs_named

AT_ONCE = 500
"""Pictures whose sizes one statement reads."""


def planned(deployment: Deployment, project: str, value: dict[str, Any], now_ms: int) -> JobPlanView:
    """Return the plan of a LoRA's training, as it would be submitted. Its files need not be uploaded.

    Raise `InvalidSpec` if a setting is invalid, `BadInput` if the settings do not suit the base or the job is of another kind, `NotFound`
    for a base or a data set that is not there.
    """
    value, version = with_dataset_named(deployment, project, value)
    wanted, places = with_inputs_named(deployment, project, value)
    spec = parse_submitted(wanted)
    if not isinstance(spec, LoraSpec):
        raise BadInput(
            f"kind: jobs of kind {spec.kind} have no such plan", hint="POST /v1/plans says where the job could run"
        )
    base = _known(deployment, project, spec.base)
    vae = _known(deployment, project, spec.vae) if spec.vae else None
    spec = with_model(spec, base, own_vae=vae is not None)
    photos = (
        fetched_from([place.shown for place in places])
        if places
        else _stored(deployment, project, spec, str(version) if version else "")
    )
    answer = Answer(placed=place_spec(deployment, project, spec, now_ms))
    return job_plan(spec, photos, base, vae, answer)


def _known(deployment: Deployment, project: str, base: Base) -> KnownBase:
    return of_spec(base, base_of_content(deployment, project, base.id))


def _stored(deployment: Deployment, project: str, spec: LoraSpec, reference: str) -> PlannedPhotos:
    stored = stored_photos(spec, _sizes(deployment, project, spec.photos))
    return PlannedPhotos(addresses=(reference,) if reference else (), shown=reference, stored=stored)


def _sizes(deployment: Deployment, project: str, photos: Sequence[File]) -> dict[str, tuple[int, int]]:
    """Return width and height of the photos that were looked at, by their contents."""
    found = dict[str, tuple[int, int]]()
    for start in range(0, len(photos), AT_ONCE):
        contents = sorted({photo.sha256 for photo in photos[start : start + AT_ONCE]})
        rows = deployment.store.load("photo_sizes", project=project, **as_list(contents))
        found |= {row["sha256"]: (row["width"], row["height"]) for row in rows}
    return found
