"""Track which jobs and bases use an uploaded file, and delete files that were unused for long.

Files are named by their content, so a name that was deleted may be uploaded again. Three steps keep the two apart: a file is marked as
going, unless it was named since it was looked at; one server takes it and deletes its bytes; then its row is deleted. In between it can be
neither uploaded nor named, and the client is asked to try again.
"""

import json
from collections.abc import Iterable, Mapping

from gangline.core.errors import BadInput, Unreachable, UserError
from gangline.core.files import File
from gangline.core.jobs.keys import blob_key
from gangline.core.runs.retention import before_ms
from gangline.core.specs.fields import FilesBase, parse_base
from gangline.core.specs.spec import parse_task
from gangline.ports.store import Row, Write, guard, write
from gangline.service.deployment import Deployment

AT_ONCE = 200
LATE_MS = 3_600_000
"""Another server takes over a deletion that was begun longer ago than this."""


def naming(project: str, files: Iterable[File], now_ms: int) -> list[Write]:
    """Return the guards that come before the write of a job or a base that names these files.

    They fail if one is being deleted, and they make a concurrent deletion look again. Files are sorted, so that two jobs never deadlock.
    """
    return [guard("use_blob", project=project, sha256=sha256, now=now_ms) for sha256 in _contents(files)]


def listing(project: str, job: str, files: Iterable[File]) -> list[Write]:
    """Return the writes that come after the write of a job: its files are not deleted while it needs them."""
    return [write("add_job_file", project=project, sha256=sha256, job=job) for sha256 in _contents(files)]


def _contents(files: Iterable[File]) -> list[str]:
    return sorted({file.sha256 for file in files})


def record_blob(deployment: Deployment, project: str, file: File, now_ms: int) -> None:
    """Record that the file is stored. Raise `Unreachable` while it is being deleted."""
    if not deployment.store.apply(guard("add_blob", project=project, sha256=file.sha256, bytes=file.bytes, now=now_ms)):
        raise going_just_now(file)


def refuse_going(deployment: Deployment, project: str, file: File) -> None:
    """Raise `Unreachable` while the file is being deleted: an upload now might be deleted with it."""
    rows = deployment.store.load("blob", project=project, sha256=file.sha256)
    if rows and rows[0]["going"]:
        raise going_just_now(file)


def going_just_now(file: File) -> Unreachable:
    return Unreachable(f"{file.path} is being deleted, as no job used it", hint="try again in a minute")


def check_here(deployment: Deployment, project: str, files: Mapping[str, File]) -> None:
    """Raise `BadInput` if one of these files was not uploaded."""
    missing = [path for path, file in sorted(files.items()) if not _is_here(deployment, project, file)]
    if missing:
        raise BadInput(
            f"{len(missing)} input files are not in the object store, the first is {missing[0]}",
            hint="upload each with POST /v1/blobs before you submit the job; files that no job uses are deleted after a while",
        )


def _is_here(deployment: Deployment, project: str, file: File) -> bool:
    rows = deployment.store.load("blob", project=project, sha256=file.sha256)
    return bool(rows) and rows[0]["bytes"] == file.bytes and not rows[0]["going"]


def give_up_unused(deployment: Deployment, now_ms: int) -> None:
    """Mark a batch of unused files for deletion. While there are jobs whose files are not listed yet, mark none."""
    if _list_inputs(deployment):
        return
    rows = deployment.store.load("blobs_unused", before=before_ms(now_ms, deployment.policy.inputs_s), limit=AT_ONCE)
    of_bases = {project: files_of_bases(deployment, project) for project in {row["project"] for row in rows}}
    for row in rows:
        if row["sha256"] not in of_bases[row["project"]]:
            deployment.store.apply(giving_up(row["project"], row, now_ms))


def giving_up(project: str, blob: Row, now_ms: int) -> Write:
    """Return the write that marks a file for deletion. It changes nothing if the file was named since it was loaded."""
    return write("give_up_blob", project=project, sha256=blob["sha256"], seen=blob["used_ms"], now=now_ms)


def delete_given_up(deployment: Deployment, now_ms: int) -> None:
    """Delete marked files: first the bytes, then the row. As long as the row exists, nobody can upload the file again."""
    going = deployment.store.load("blobs_going", server=deployment.server, late=now_ms - LATE_MS, limit=AT_ONCE)
    for row in going:
        which = {"project": row["project"], "sha256": row["sha256"], "server": deployment.server}
        if deployment.store.apply(guard("take_blob", **which, seen=row["going_ms"], now=now_ms)):
            deployment.objects.delete([blob_key(row["project"], row["sha256"])])
            deployment.store.apply(write("drop_blob", **which))


def files_of_bases(deployment: Deployment, project: str) -> set[str]:
    """Return the SHA-256 of all files of a project's bases: named ones, and mirrors of the hub."""
    found = set[str]()
    for row in deployment.store.load("bases", project=project):
        for text in filter(None, (row["base"], row["vae"])):
            model = parse_base(json.loads(text))
            found |= {file.sha256 for file in model.files} if isinstance(model, FilesBase) else set()
    for row in deployment.store.load("mirrored_files", project=project):
        found |= {each["sha256"] for each in json.loads(row["files"]) if each["sha256"]}
    return found


def _list_inputs(deployment: Deployment) -> bool:
    """List the files of jobs that an older server submitted without doing so. Return whether there were any."""
    rows = deployment.store.load("jobs_unlisted", limit=AT_ONCE)
    for row in rows:
        deployment.store.apply(guard("mark_listed", id=row["id"]), *listing(row["project"], row["id"], _inputs(row)))
    return bool(rows)


def _inputs(job: Row) -> list[File]:
    """Return the input files of a job; none if its spec can no longer be parsed, as it can then neither run nor be retried."""
    try:
        return list(parse_task(json.loads(job["spec"])).input_files().values())
    except UserError:
        return []
