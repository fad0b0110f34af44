"""Clone a job: show what a new job with some other settings would be, and submit it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.jobs.clone import CloneView, changes_of, name_of_clone, notes_of_clone, output_name_of_clone
from gangline.core.parsing import to_json
from gangline.core.places.places import PhotoPlace, without_keys
from gangline.core.specs.changes import apply_changes
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import Spec, parse_spec
from gangline.ports.store import Row
from gangline.service.datasets.named import version_of_job
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.labels import inherited_labels
from gangline.service.jobs.submit import NOBODY, Asker, earlier_job, queue, read_submission


@dataclass(frozen=True, slots=True)
class _Clone:
    """The new job, with its models pinned, and the places of its photos if they are still to be fetched."""

    name: str
    spec: Spec
    places: tuple[PhotoPlace, ...]


def what_clones(
    deployment: Deployment, project: str, job: Row, changes: Mapping[str, Any], name: str = ""
) -> CloneView:
    """Return what `clone` would submit. Nothing changes. Raise as `clone` does."""
    before, made = json.loads(job["spec"]), _made(deployment, project, job, changes, name)
    after = to_json(made.spec)
    found = changes_of(before, after)
    return CloneView(
        job=job["id"],
        name=made.name,
        changes=found,
        notes=notes_of_clone(found, made.spec.deliver),
        spec=after | ({"photos": without_keys(before["photos"])} if made.places else {}),
    )


def clone(
    deployment: Deployment,
    project: str,
    job: Row,
    changes: Mapping[str, Any],
    now_ms: int,
    *,
    name: str = "",
    request: str | None = None,
    asker: Asker = NOBODY,
) -> str:
    """Submit a new job with the inputs and labels of this one and with `changes` to its settings, and return its id.

    Raise `BadInput` if the job renders pictures, continues another one or would have other inputs, and `InvalidSpec` for settings that
    cannot be used.
    """
    earlier = earlier_job(deployment, project, request, asker)
    if earlier:
        return earlier
    made = _made(deployment, project, job, changes, name)
    return queue(
        deployment,
        project,
        made.spec,
        made.places,
        name=made.name,
        request=request,
        now_ms=now_ms,
        asker=replace(asker, labels=inherited_labels(deployment, job["id"])),
        dataset=version_of_job(deployment, job["id"]),
    )


def _made(deployment: Deployment, project: str, job: Row, changes: Mapping[str, Any], name: str) -> _Clone:
    if KINDS[job["kind"]].renders:
        raise BadInput(f"{job['id']} renders pictures and cannot be cloned", hint="clone the job that trains")
    value = json.loads(job["spec"])
    spec, places = read_submission(deployment, project, apply_changes(value, changes))
    title = spec.title if places else parse_spec(value).title
    called = name_of_clone(name, job["name"], title, spec.title)
    if isinstance(spec, LoraSpec):
        spec = replace(spec, output_name=output_name_of_clone(to_json(spec), changes, job["name"], called))
    return _Clone(called, spec, places)
