"""Uploaded files: who uses them, and how those that nobody has used for long are deleted.

Their names say their content, so a name that was deleted may come back. Three steps keep that apart: a file is given up, unless
somebody has named it since it was looked at; one server takes it and deletes its bytes; then its row goes. In between it can be
neither handed in nor named, and who tries is asked to try again.
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
"""A server that took a file to delete it and has not for so long is not waited for."""


def naming(project: str, files: Iterable[File], now_ms: int) -> list[Write]:
    """What belongs before the write of a job or a base that names these: who was about to delete one looks again, and none is being
    deleted. In an order that is the same for all, so that two jobs never wait for each other."""
    return [guard("use_blob", project=project, sha256=sha256, now=now_ms) for sha256 in _contents(files)]


def listing(project: str, job: str, files: Iterable[File]) -> list[Write]:
    """What belongs after the write of a job: as long as it needs them, nobody deletes them."""
    return [write("add_job_file", project=project, sha256=sha256, job=job) for sha256 in _contents(files)]


def _contents(files: Iterable[File]) -> list[str]:
    return sorted({file.sha256 for file in files})


def record_blob(deployment: Deployment, project: str, file: File, now_ms: int) -> None:
    """It is there. Raises `Unreachable` while it is being deleted."""
    if not deployment.store.apply(guard("add_blob", project=project, sha256=file.sha256, bytes=file.bytes, now=now_ms)):
        raise going_just_now(file)


def refuse_going(deployment: Deployment, project: str, file: File) -> None:
    """Raises `Unreachable` while it is being deleted: what is uploaded now might be deleted with it."""
    rows = deployment.store.load("blob", project=project, sha256=file.sha256)
    if rows and rows[0]["going"]:
        raise going_just_now(file)


def going_just_now(file: File) -> Unreachable:
    return Unreachable(f"{file.path} is being deleted, as no job used it", hint="try again in a minute")


def check_here(deployment: Deployment, project: str, files: Mapping[str, File]) -> None:
    """Raises `BadInput` where one of these was not handed in."""
    missing = [path for path, file in sorted(files.items()) if not _is_here(deployment, project, file)]
    if missing:
        raise BadInput(
            f"{len(missing)} input files are not in the object store, {missing[0]} the first of them",
            hint="hand each in with POST /v1/blobs before submitting; files that no job uses are deleted after a while",
        )


def _is_here(deployment: Deployment, project: str, file: File) -> bool:
    rows = deployment.store.load("blob", project=project, sha256=file.sha256)
    return bool(rows) and rows[0]["bytes"] == file.bytes and not rows[0]["going"]


def give_up_unused(deployment: Deployment, now_ms: int) -> None:
    """A little at a time. As long as there are jobs whose files nobody has listed, nothing is given up."""
    if _list_inputs(deployment):
        return
    rows = deployment.store.load("blobs_unused", before=before_ms(now_ms, deployment.policy.inputs_s), limit=AT_ONCE)
    of_bases = {project: files_of_bases(deployment, project) for project in {row["project"] for row in rows}}
    for row in rows:
        if row["sha256"] not in of_bases[row["project"]]:
            deployment.store.apply(giving_up(row["project"], row, now_ms))


def giving_up(project: str, blob: Row, now_ms: int) -> Write:
    """Nothing happens where somebody has named it since it was seen."""
    return write("give_up_blob", project=project, sha256=blob["sha256"], seen=blob["used_ms"], now=now_ms)


def delete_given_up(deployment: Deployment, now_ms: int) -> None:
    """The bytes first: as long as the row stands, nobody puts them there again."""
    going = deployment.store.load("blobs_going", server=deployment.server, late=now_ms - LATE_MS, limit=AT_ONCE)
    for row in going:
        which = {"project": row["project"], "sha256": row["sha256"], "server": deployment.server}
        if deployment.store.apply(guard("take_blob", **which, seen=row["going_ms"], now=now_ms)):
            deployment.objects.delete([blob_key(row["project"], row["sha256"])])
            deployment.store.apply(write("drop_blob", **which))


def files_of_bases(deployment: Deployment, project: str) -> set[str]:
    """The SHA-256 of all files of a project's bases: those with a name, and copies from the hub."""
    found = set[str]()
    for row in deployment.store.load("bases", project=project):
        for text in filter(None, (row["base"], row["vae"])):
            model = parse_base(json.loads(text))
            found |= {file.sha256 for file in model.files} if isinstance(model, FilesBase) else set()
    for row in deployment.store.load("mirrored_files", project=project):
        found |= {each["sha256"] for each in json.loads(row["files"]) if each["sha256"]}
    return found


def _list_inputs(deployment: Deployment) -> bool:
    """Whether there were jobs whose files had to be listed: those of servers that do not do it."""
    rows = deployment.store.load("jobs_unlisted", limit=AT_ONCE)
    for row in rows:
        deployment.store.apply(guard("mark_listed", id=row["id"]), *listing(row["project"], row["id"], _inputs(row)))
    return bool(rows)


def _inputs(job: Row) -> list[File]:
    """What nobody can read any more can neither run nor be retried."""
    try:
        return list(parse_task(json.loads(job["spec"])).input_files().values())
    except UserError:
        return []
