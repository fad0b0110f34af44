"""Submit a job: upload photos and bases by content, then name them in a spec; or submit a spec that says where its photos are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.datasets.names import DatasetReference
from gangline.core.errors import BadInput, Unreachable
from gangline.core.files import STAND_IN, File
from gangline.core.jobs.keys import blob_key
from gangline.core.parsing import to_json
from gangline.core.places.places import PhotoPlace, names_places
from gangline.core.runs.proof import wanted_kind
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.kinds import needs_data_sets
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import SampleSpec, Spec, continued, parse_submitted, spec_hash, workload
from gangline.core.views import BlobView
from gangline.ports.server import Refused, Upload
from gangline.ports.store import Row, Write, guard, write
from gangline.service.access.secrets import check_secrets
from gangline.service.attempts import WAITS, event
from gangline.service.content.bases import pinned, with_base_named
from gangline.service.content.blobs import check_here, listing, naming, record_blob, refuse_going
from gangline.service.content.deliver import check_target, delivering
from gangline.service.content.imports import FETCHING, awaiting, places_of
from gangline.service.content.mirror import copied_files
from gangline.service.content.upload import grant, stored_as
from gangline.service.datasets.named import NamedVersion, naming_version, remembering_version, with_dataset_named
from gangline.service.datasets.versions import find_version
from gangline.service.deployment import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks for a job, and with which labels: `owner` is the id of a key. `fingerprint` is a hash of a request that may be repeated.

    `released` is how servers before fingerprints wrote the key of this request, if they wrote it in another way.
    """

    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str | None = None
    released: str | None = None


NOBODY = Asker()


def blob_here(
    deployment: Deployment, project: str, sha256: str, size: int, now_ms: int, parts: tuple[str, ...] = ()
) -> BlobView:
    """Return whether a file is stored, and record it if so; else return how to upload it. Clients call this before and after an upload."""
    key, file = blob_key(project, sha256), File(path=sha256, bytes=size, sha256=sha256)
    refuse_going(deployment, project, file)
    if isinstance(stored_as(deployment, [(key, file)], parts), Refused):
        return BlobView(
            present=False,
            grant=grant(deployment, key, Upload(path=sha256, bytes=size, sha256=sha256, parts=parts), now_ms),
        )
    record_blob(deployment, project, file, now_ms)
    return BlobView(present=True, grant=None)


def submit(
    deployment: Deployment,
    project: str,
    value: dict[str, Any],
    *,
    name: str,
    request: str | None,
    now_ms: int,
    asker: Asker = NOBODY,
) -> str:
    """Submit a job and return its id, or that of the job that the same `request` created before. Raise `BadInput` or `InvalidSpec`.

    The name that a user gives to a job is its LoRA's as well, unless the spec has one: two LoRAs of one prompt stay two files.
    """
    earlier = earlier_job(deployment, project, request, asker)
    if earlier:
        return earlier
    value, named = with_dataset_named(deployment, project, value)
    spec, places = read_submission(deployment, project, value)
    if isinstance(spec, LoraSpec) and not spec.output_name:
        spec = replace(spec, output_name=name)
    about = {"name": name, "request": request, "now_ms": now_ms}
    return queue(deployment, project, spec, places, **about, asker=asker, dataset=named)


def read_submission(
    deployment: Deployment, project: str, value: dict[str, Any], parse: Callable[[object], Spec] = parse_submitted
) -> tuple[Spec, tuple[PhotoPlace, ...]]:
    """Return the spec with its models pinned, and the places of its photos if it names some; the spec then has a stand-in for the photos.

    Raise as `submit` does.
    """
    wanted, places = with_inputs_named(deployment, project, value)
    return pinned(deployment, project, parse(wanted)), places


def with_inputs_named(
    deployment: Deployment, project: str, value: dict[str, Any]
) -> tuple[dict[str, Any], tuple[PhotoPlace, ...]]:
    """Return the spec with its base resolved, and the places of its photos, as `read_submission`, without asking the hub."""
    places = places_of(deployment, project, value["photos"]) if names_places(value.get("photos")) else ()
    if places and value.get("captions"):
        raise BadInput(
            "captions: they are fetched with the photos",
            hint="put them beside the photos, or give a caption with each URL",
        )
    if places and value.get("subjects"):
        raise BadInput("subjects: the server fetches photos of one subject only", hint="upload the photos of several")
    return with_base_named(deployment, project, value | ({"photos": [to_json(STAND_IN)]} if places else {})), places


def queue(
    deployment: Deployment,
    project: str,
    spec: Spec,
    places: Sequence[PhotoPlace] = (),
    *,
    name: str,
    request: str | None,
    now_ms: int,
    begins_from: str | None = None,
    begins_step: int | None = None,
    asker: Asker = NOBODY,
    dataset: NamedVersion | None = None,
) -> str:
    """Submit a spec that was read already. `dataset` is the version that its photos are, if they are one.

    The job may begin from the checkpoints of the job `begins_from`, which are kept until it has its first one; from none that is newer than
    `begins_step`. One that continues that job begins from that step alone.
    """
    check_sets(spec)
    inputs = {path: file for path, file in spec.input_files().items() if not (places and path.startswith("photos/"))}
    check_here(deployment, project, inputs)
    check_target(deployment, project, spec.deliver)
    if isinstance(spec, CommandSpec):
        check_secrets(deployment, project, spec.secrets)
    job = deployment.new_id("job")
    asked, awaited = awaiting(job, spec, places) if places else (spec_hash(spec), [])
    because = FETCHING if places else WAITS
    before = earlier_job(deployment, project, request, asker, asked) if asker.released else None
    if before:  # no index tells that its key is the same one
        return before
    added = deployment.store.apply(
        *naming(project, inputs.values(), now_ms),
        write("add_project", id=project),
        adding(
            spec,
            spec,
            id=job,
            project=project,
            name=name or spec.title,
            spec_hash=asked,
            request=request,
            because=because,
            steps=spec.steps,
            workload=workload(spec),
            copied_bytes=sum(file.bytes for file in copied_files(deployment, project, spec).values()),
            exact=spec.exact,
            owner=asker.owner,
            fingerprint=None if request is None else asker.fingerprint,
            now=now_ms,
        ),
        *(write("put_label", job=job, key=key, value=value) for key, value in asker.labels.items()),
        *awaited,
        *delivering(job, spec.deliver),
        *listing(project, job, inputs.values()),
        *naming_version(dataset, now_ms),
        *remembering_version(job, project, dataset),
        *picture_rhythm(spec, job, now_ms),
        *_inheriting(job, begins_from, begins_step, exactly=_begins_exactly(spec, begins_from)),
        event(
            job,
            "submitted",
            because if begins_from is None else f"{because}, to resume from {_at(begins_from, begins_step)}",
            now_ms,
        ),
    )
    if added:
        return job
    if begins_from is not None:
        kept = [row["step"] for row in deployment.store.load("checkpoints", job=begins_from)]
        if not kept:
            raise BadInput(f"{begins_from} keeps no checkpoint any more", hint="submit the job without it")
        if _begins_exactly(spec, begins_from) and begins_step not in kept:
            raise BadInput(f"{begins_from} keeps no checkpoint of step {begins_step} any more", hint="try again")
    earlier = earlier_job(deployment, project, request, asker, asked)
    if earlier is None:
        check_here(deployment, project, inputs)
        if dataset and dataset.resolved:
            find_version(deployment, project, DatasetReference(name=dataset.name, number=dataset.number))
        raise Unreachable("files of this job are being deleted, as nothing used them", hint="try again in a minute")
    return earlier


def earlier_job(
    deployment: Deployment, project: str, request: str | None, asker: Asker, asked: str | None = None
) -> str | None:
    """Return the job that the same request created before, if one did. Raise `BadInput` if that request was another one.

    Where either of them has no fingerprint, their specs are compared: `asked` is a hash of this one's, and without it nothing is found.
    """
    earlier = _of_request(deployment, project, request, asker.released) if request else None
    if earlier is None:
        return None
    before, fingerprint = earlier["fingerprint"], asker.fingerprint
    compared = (before, fingerprint) if before and fingerprint else (earlier["spec_hash"], asked)
    if None in compared:
        return None
    if compared[0] != compared[1]:
        what = "spec" if compared[1] == asked else "request"
        raise BadInput(f"this Idempotency-Key was used for another {what}", hint="use a new Idempotency-Key")
    return earlier["id"]


def _of_request(deployment: Deployment, project: str, request: str, released: str | None) -> Row | None:
    """Return the job that remembers the request, or its `released` form: that is of this request only in a job of before fingerprints."""
    rows = deployment.store.load("job_of_request", project=project, request=request)
    if not rows and released:
        found = deployment.store.load("job_of_request", project=project, request=released)
        rows = [row for row in found if row["fingerprint"] is None]
    return rows[0] if rows else None


def _at(job: str, step: int | None) -> str:
    return job if step is None else f"step {step} of {job}"


def _begins_exactly(spec: Spec, begins_from: str | None) -> bool:
    """Return whether a job can begin from one checkpoint alone of the job `begins_from`: the one that it continues."""
    continues = continued(spec)
    return continues is not None and continues.job == begins_from


def _inheriting(job: str, begins_from: str | None, step: int | None, *, exactly: bool) -> list[Write]:
    """Return the writes that let the job begin from another one's checkpoints, or `exactly` from that of the step.

    The mark on them fails every deletion that was decided before.
    """
    if begins_from is None:
        return []
    return [
        guard("bequeath_step", job=begins_from, step=step)
        if exactly
        else guard("bequeath_checkpoints", job=begins_from),
        write("begin_from", id=job, of=begins_from, step=step),
        write("measure_checkpoint", id=job),
    ]


def adding(
    spec: Spec | SampleSpec, settings: Spec, *, copied_bytes: int = 0, fetching: int = 0, **facts: object
) -> Write:
    """Return the write of a new job.

    `settings` has its base, needs and number of attempts; `copied_bytes` of its inputs were copied from the hub. `fetching` is not 0 for a
    job that no node may take yet.
    """
    needs = settings.needs
    return guard(
        "add_job",
        kind=spec.kind,
        wanted=wanted_kind(spec.kind, needs.isolation),
        spec=canonical_json(to_json(spec)),
        save_s=settings.checkpoint_every_s,
        priority=settings.priority,
        base=settings.base.id,
        slots=needs.slots,
        input_bytes=sum(file.bytes for file in spec.input_files().values()) + copied_bytes,
        gpu=needs.gpu,
        gpu_memory_gb=needs.gpu_memory_gb,
        pool=needs.pool,
        trust=needs.trust,
        attempts_max=settings.attempts_max,
        fetching=fetching,
        **facts,
    )


def check_sets(spec: Spec) -> None:
    """Raise `BadInput` if a data set is a local path: no node could read it."""
    sets = spec.data if needs_data_sets(spec) else ()
    for data in sets:
        if not data.is_remote and not data.files:
            raise BadInput(
                f"no node can read the data set at {data.place}",
                hint="upload its files, as `gangline scratch` does, or give an s3:// address",
            )


def picture_rhythm(spec: Spec, job: str, now_ms: int) -> list[Write]:
    """Return the write of when pictures of the job are due, if any are."""
    every = {"every_steps": spec.sample_every_steps, "every_s": spec.sample_every_s}
    return (
        [write("add_sampling", job=job, now=now_ms, **every)] if any(every.values()) and spec.prompts_to_sample else []
    )
