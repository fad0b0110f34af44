"""Share what one attempt prepared with other jobs of its project: record it under its key, offer it with a claim, delete it when unused."""

import json

from gangline.core.canonical import canonical_json
from gangline.core.errors import Damaged
from gangline.core.jobs.keys import attempt_prefix, prepared_prefix
from gangline.core.runs.contract import Prepared, parse_prepared
from gangline.core.runs.prepared import KEY, KINDS, is_under_numerics, prepared_kind, subject_of, subjects
from gangline.core.specs.kinds import needs_prepared_files
from gangline.core.specs.spec import SampleSpec, Spec, parse_task
from gangline.ports.server import Done, Hold, Keep, Offered, Refused, Stale, Stored
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import LOST, event, holding, job_of_hold, load_node
from gangline.service.content.upload import stored_as
from gangline.service.deployment import Deployment

DAY_MS = 86_400_000
AT_ONCE = 200


def record_prepared(
    deployment: Deployment, node: str, hold: Hold, request: Keep, now_ms: int
) -> Done | Stale | Refused:
    """Record prepared files, whose bytes are all in the object store, and offer them to other jobs from now on."""
    job = job_of_hold(deployment, node, hold)
    if job is None:
        return LOST
    try:
        prepared = parse_prepared(request.manifest)
    except Damaged as error:
        return Refused(because=error.message)
    if not KEY.fullmatch(prepared.key) or subject_of(prepared.key) not in _subjects(deployment, job["id"]):
        return Refused(because=f"this job does not prepare {prepared.key[:100]}")
    prefix = prepared_prefix(attempt_prefix(job["project"], job["id"], hold.attempt), prepared.key)
    found = stored_as(deployment, [(f"{prefix}/{file.path}", file) for file in prepared.files])
    if isinstance(found, Refused):
        return found
    maker = load_node(deployment, node)
    kept = deployment.store.apply(
        holding(node, hold, now_ms),
        guard(
            "add_prepared",
            project=job["project"],
            key=prepared.key,
            attempt=hold.attempt,
            subject=subject_of(prepared.key),
            numerics=maker.numerics if is_under_numerics(prepared.key) else "",
            trust=maker.trust,
            prefix=prefix,
            manifest=canonical_json(request.manifest),
            now=now_ms,
        ),
        event(job["id"], "prepared", _told(prepared), now_ms, attempt=hold.attempt, node=node),
    )
    if kept or job_of_hold(deployment, node, hold):
        return Done()  # else it was recorded before, and the answer was lost
    return LOST


def offered_files(
    deployment: Deployment, project: str, job: str, spec: Spec, numerics: str, now_ms: int
) -> tuple[Offered, ...]:
    """Return the prepared files that a run of `spec` can download on a node of these `numerics`."""
    found = dict.fromkeys(KINDS, "") | {prepared_kind(subject): subject for subject in _subjects_of(spec)}
    rows = deployment.store.load(
        "prepared_for", project=project, job=job, numerics=numerics, trust=spec.needs.trust, **found
    )
    chosen: dict[str, Row] = {}
    for row in rows:
        chosen.setdefault(row["key"], row)
    unmarked = [row for row in chosen.values() if now_ms - row["used_ms"] >= DAY_MS]
    if unmarked:
        common = {"project": project, "now": now_ms}
        deployment.store.apply(
            *(write("use_prepared", key=row["key"], attempt=row["attempt"], **common) for row in unmarked)
        )
    return tuple(_offered(row) for row in chosen.values())


def prune_prepared(deployment: Deployment, now_ms: int) -> None:
    """Delete prepared files that were unused for long: the rows first, so that everything that is offered exists."""
    before = now_ms - round(deployment.policy.prepared_s * 1000)
    for row in deployment.store.load("prepared_unused", before=before, limit=AT_ONCE):
        which = {name: row[name] for name in ("project", "key", "attempt")}
        again = write("sweep_attempt_again", attempt=row["attempt"])
        if deployment.store.apply(guard("forget_prepared", **which, seen=row["used_ms"]), again):
            deployment.objects.delete([stored.key for stored in _offered(row).files])


def _subjects(deployment: Deployment, job: str) -> tuple[str, ...]:
    spec = parse_task(json.loads(deployment.store.load("job", id=job)[0]["spec"]))
    return _subjects_of(spec)


def _subjects_of(spec: Spec | SampleSpec) -> tuple[str, ...]:
    """Return what a job of this spec prepares. Jobs on data sets prepare nothing: their prepared files are in the data set."""
    return subjects(spec) if needs_prepared_files(spec) else ()


def _offered(row: Row) -> Offered:
    manifest = json.loads(row["manifest"])
    files = parse_prepared(manifest).files
    return Offered(
        key=row["key"],
        manifest=manifest,
        files=tuple(
            Stored(path=file.path, bytes=file.bytes, sha256=file.sha256, key=f"{row['prefix']}/{file.path}")
            for file in files
        ),
    )


def _told(prepared: Prepared) -> str:
    size = sum(file.bytes for file in prepared.files)
    return f"{prepared_kind(prepared.key).replace('_', ' ')} are kept for other jobs ({size / 1e6:.1f} MB)"
