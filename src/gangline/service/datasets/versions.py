"""Add versions of data sets, and show them. A version never changes: the files of the newest one again are that version."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from gangline.core.datasets.findings import DatasetFindings
from gangline.core.datasets.manifest import (
    DatasetFile,
    ManifestReference,
    VersionManifest,
    changed_files,
    make_manifest,
    parse_manifest_files,
)
from gangline.core.datasets.names import DatasetReference, check_dataset_name
from gangline.core.datasets.views import NOTHING_CHECKS, DatasetVersionView, DatasetView
from gangline.core.display import printable
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.core.files import File, Files
from gangline.core.jobs.keys import blob_key
from gangline.core.jobs.lists.ids import as_list
from gangline.core.parsing import parse_as
from gangline.core.words import counted
from gangline.ports.store import Row, guard, write
from gangline.service.attempts import TRIES_MAX
from gangline.service.content.blobs import naming
from gangline.service.deployment import Deployment

AT_ONCE = 500
"""Files of one transaction: it holds up other writers for some milliseconds."""
NUMBER_MAX = 10**15
LISTED_MAX = 1000
NAMED_MAX = 10
"""Versions that are named where one is missing."""


def add_version(deployment: Deployment, project: str, name: str, files: Files, now_ms: int) -> DatasetVersionView:
    """Add a version with these files, or return the newest one if it has exactly these; if that was refused, it is checked again.

    Raise `BadInput` if no data set may have them, or one was not uploaded; `Unreachable` if the version is removed meanwhile.
    """
    check_dataset_name(name)
    manifest = make_manifest(files)
    _check_uploaded(deployment, project, manifest.files)
    version, made = _begun(deployment, project, name, manifest, now_ms)
    if version["state"] == "adding":
        _fill(deployment, version, manifest, now_ms)
    elif version["state"] == "refused":
        _check_again(deployment, version, now_ms)
    rows = deployment.store.load("dataset_version", id=version["id"])
    if not rows or rows[0]["state"] == "going":
        raise Unreachable(f"{name}@{version['number']} was removed meanwhile", hint="try again")
    return version_view(deployment, name, rows[0], jobs=rows[0]["jobs"], made=made, findings=rows[0]["findings"])


def uploaded_manifest(deployment: Deployment, project: str, manifest: ManifestReference) -> Files:
    """Return the files of an uploaded manifest. Raise `BadInput` if it is not uploaded, or is none."""
    key = blob_key(project, manifest.sha256)
    found = deployment.objects.stat(key)
    if found is None or found.bytes != manifest.bytes:
        raise BadInput("manifest: it is not in the object store", hint="upload it with POST /v1/blobs first")
    return parse_manifest_files(deployment.objects.read(key))


def change_version(
    deployment: Deployment,
    project: str,
    reference: DatasetReference,
    put: Files,
    remove: Sequence[str],
    now_ms: int,
) -> DatasetVersionView:
    """Add a version that differs from another one in some files, and say which newer ones are not in it. Raise `NotFound` or `BadInput`."""
    old = find_version(deployment, project, reference)
    rows = deployment.store.load("dataset_files", version=old["id"], after="", limit=10**9)
    before = {row["path"]: {"path": row["path"], "sha256": row["sha256"], "bytes": row["bytes"]} for row in rows}
    files = tuple(File(**file) for file in changed_files(before, put, remove).values())
    made = add_version(deployment, project, reference.name, files, now_ms)
    newer = deployment.store.load("dataset_versions", dataset=old["dataset"], below=made.number, limit=LISTED_MAX)
    left_out = sorted(row["number"] for row in newer if row["number"] > old["number"]) if made.made else []
    return replace(made, began_from=old["number"], left_out=tuple(left_out))


def _check_again(deployment: Deployment, version: Row, now_ms: int) -> None:
    """Let a refused version be checked again: the decoder may be a newer one, or a file may be back."""
    deployment.store.apply(
        guard("check_version_again", id=version["id"], now=now_ms),
        write("forget_unusable_photos", project=version["project"], version=version["id"]),
    )


def _check_uploaded(deployment: Deployment, project: str, files: Sequence[DatasetFile]) -> None:
    missing = list[str]()
    for start in range(0, len(files), AT_ONCE):
        some = files[start : start + AT_ONCE]
        contents = as_list(sorted({file.sha256 for file in some}))
        rows = deployment.store.load("blobs_recorded", project=project, **contents)
        here = {row["sha256"]: row["bytes"] for row in rows if not row["going"]}
        missing += [file.path for file in some if here.get(file.sha256) != file.bytes]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise BadInput(
            f"{counted(len(missing), 'file')} {are} not in the object store, the first is {printable(missing[0])}",
            hint="upload them first, with POST /v1/blobs/missing",
        )


def _begun(deployment: Deployment, project: str, name: str, manifest: VersionManifest, now_ms: int) -> tuple[Row, bool]:
    """Return the version of this content, and whether it was added here. One that is added has no files yet, and is not seen."""
    for _ in range(TRIES_MAX):
        rows = deployment.store.load("dataset", project=project, name=name)
        if rows and (found := _of_content(deployment, rows[0]["id"], manifest)):
            return found, False
        of_name, version = {"project": project, "name": name}, deployment.new_id("set")
        seen = rows[0]["versions"] if rows else deployment.store.load("last_number_of_jobs", **of_name)[0]["number"]
        deployment.store.apply(
            write("add_project", id=project),
            write("add_dataset", id=deployment.new_id("dataset"), **of_name, now=now_ms),
            guard("number_dataset_version", **of_name, seen=seen),
            write(
                "add_dataset_version",
                id=version,
                **of_name,
                number=seen + 1,
                digest=manifest.digest,
                photos=manifest.count("photo"),
                captions=manifest.count("caption"),
                masks=manifest.count("mask"),
                bytes=manifest.bytes,
                now=now_ms,
            ),
        )
        added = deployment.store.load("dataset_version", id=version)
        if added:
            return added[0], True
    raise Unreachable(f"{name} was changed {TRIES_MAX} times meanwhile", hint="try again")


def _of_content(deployment: Deployment, dataset: str, manifest: VersionManifest) -> Row | None:
    rows = deployment.store.load("dataset_version_of_content", dataset=dataset, digest=manifest.digest)
    return rows[0] if rows else None


def _fill(deployment: Deployment, version: Row, manifest: VersionManifest, now_ms: int) -> None:
    """Add the files of a version, some in each transaction, and show it then. After a kill in between, the same request completes it."""
    which, project = version["id"], version["project"]
    for start in range(0, len(manifest.files), AT_ONCE):
        some = manifest.files[start : start + AT_ONCE]
        contents = (File(path=file.path, bytes=file.bytes, sha256=file.sha256) for file in some)
        of_files = (
            {"path": file.path, "sha256": file.sha256, "bytes": file.bytes, "role": file.role, "project": project}
            for file in some
        )
        if not deployment.store.apply(
            guard("hold_dataset_version", id=which, now=now_ms),
            *naming(project, contents, now_ms),
            *(write("add_dataset_file", version=which, **each) for each in of_files),
        ):
            rows = deployment.store.load("dataset_version", id=which)
            if rows and rows[0]["state"] != "adding":  # another request with the same files was faster
                return
            raise Unreachable(
                "files of this data set are being deleted, as nothing used them", hint="try again in a minute"
            )
    deployment.store.apply(write("complete_dataset_version", id=which, now=now_ms))


# Showing


def datasets_of(deployment: Deployment, project: str) -> list[DatasetView]:
    return [
        DatasetView(
            name=row["name"],
            made_ms=row["since_ms"],
            jobs=row["jobs"],
            newest=version_view(deployment, row["name"], row),
        )
        for row in deployment.store.load("datasets", project=project)
    ]


def versions_of(
    deployment: Deployment, project: str, name: str, *, below: int = NUMBER_MAX, limit: int = LISTED_MAX
) -> list[DatasetVersionView]:
    """Return versions of a data set below a number, newest first, without what their checks found. Raise `NotFound`."""
    dataset = find_dataset(deployment, project, name)
    rows = deployment.store.load("dataset_versions", dataset=dataset["id"], below=below, limit=limit)
    if not rows and below == NUMBER_MAX:  # the first one is being added
        refuse_unknown(name)
    return [version_view(deployment, name, row, jobs=row["jobs"]) for row in rows]


def show_version(deployment: Deployment, project: str, reference: DatasetReference) -> DatasetVersionView:
    """Return a version with what its check found. Raise `NotFound` if there is none."""
    found = find_version(deployment, project, reference)
    rows = deployment.store.load("dataset_version", id=found["id"])
    if not rows or rows[0]["state"] == "going":
        raise NotFound(f"there is no version {reference}", hint="it was removed just now")
    return version_view(deployment, reference.name, rows[0], jobs=rows[0]["jobs"], findings=rows[0]["findings"])


def find_dataset(deployment: Deployment, project: str, name: str) -> Row:
    """Return the row of a data set. Raise `NotFound` if there is none."""
    rows = deployment.store.load("dataset", project=project, name=name)
    return rows[0] if rows else refuse_unknown(name)


def refuse_unknown(name: str) -> NoReturn:
    """Raise `NotFound`: there is no data set of this name."""
    raise NotFound(
        f"there is no data set {printable(name)}",
        hint="`gangline datasets ls` lists them, `gangline datasets push` makes them",
    )


def find_version(deployment: Deployment, project: str, reference: DatasetReference) -> Row:
    """Return the row of a version; the newest one that is ready if none is named. Raise `NotFound`, or `BadInput` if none is ready."""
    of_name = {"project": project, "name": reference.name}
    if reference.number is None:
        rows = deployment.store.load("newest_ready", **of_name)
    else:
        rows = deployment.store.load("version_of_number", **of_name, number=reference.number)
    return rows[0] if rows else _refuse_missing(deployment, project, reference)


def _refuse_missing(deployment: Deployment, project: str, reference: DatasetReference) -> NoReturn:
    dataset = find_dataset(deployment, project, reference.name)
    rows = deployment.store.load("dataset_versions", dataset=dataset["id"], below=NUMBER_MAX, limit=NAMED_MAX)
    if not rows:
        refuse_unknown(reference.name)
    if reference.number is None:
        _refuse_unready(deployment, reference, rows[0])
    numbers = ", ".join(str(row["number"]) for row in rows)
    raise NotFound(f"there is no version {reference}", hint=f"{reference.name} has these: {numbers}")


def ready_version(deployment: Deployment, project: str, reference: DatasetReference) -> Row:
    """Return the row of a version that can be trained on. Raise `NotFound` or `BadInput`."""
    found = find_version(deployment, project, reference)
    return found if found["state"] == "ready" else _refuse_unready(deployment, reference, found)


def _refuse_unready(deployment: Deployment, reference: DatasetReference, row: Row) -> NoReturn:
    """Raise `BadInput`: the version is not ready."""
    shown = f"{reference.name}@{row['number']}"
    if row["state"] == "refused":
        raise BadInput(f"{shown} cannot be used: {row['because']}", hint="push the photos again without that file")
    raise BadInput(
        f"{shown} is not ready yet: {_progress(deployment, row)}",
        hint=f"`gangline datasets show {shown}` shows its progress",
    )


def version_view(
    deployment: Deployment, name: str, row: Row, *, jobs: int = 0, made: bool = False, findings: str = ""
) -> DatasetVersionView:
    return DatasetVersionView(
        name=name,
        number=row["number"],
        digest=row["digest"],
        state="checking" if row["state"] == "adding" else row["state"],
        because=_progress(deployment, row) if row["state"] == "checking" else row["because"],
        **{each: row[each] for each in ("photos", "captions", "masks", "bytes", "made_ms", "checked_ms")},
        jobs=jobs,
        findings=parse_as(DatasetFindings, json.loads(findings)) if findings else None,
        made=made,
    )


def _progress(deployment: Deployment, row: Row) -> str:
    if deployment.inspector is None:
        return NOTHING_CHECKS
    far = deployment.store.load("count_inspected", version=row["id"])[0]
    return f"{far['inspected']:,} of {far['pictures']:,} pictures are checked"
