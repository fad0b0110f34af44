"""Many small files at once: which are stored, and how to upload the others."""

from collections.abc import Sequence
from functools import partial

from gangline.core.datasets.views import MissingBlob, MissingBlobsView
from gangline.core.errors import Damaged
from gangline.core.files import File
from gangline.core.jobs.keys import blob_key
from gangline.core.jobs.lists.ids import as_list
from gangline.ports.server import Refused, Upload
from gangline.ports.store import guard
from gangline.service.content.blobs import going_just_now
from gangline.service.content.parts import attested
from gangline.service.content.upload import grant, stored_as
from gangline.service.deployment import Deployment


def missing_blobs(deployment: Deployment, project: str, files: Sequence[Upload], now_ms: int) -> MissingBlobsView:
    """Return those of these files that are not stored, with requests that upload them. Record the others; a recorded one is not asked
    for in the store.

    Clients call this before and after an upload, so what arrived before a client was killed is found and recorded. Raise `Unreachable`
    while one of them is being deleted.
    """
    wanted = {file.sha256: file for file in files}
    rows = deployment.store.load("blobs_recorded", project=project, **as_list(list(wanted)))
    going = next((wanted[row["sha256"]] for row in rows if row["going"]), None)
    if going:
        raise going_just_now(going)
    recorded = {row["sha256"] for row in rows if row["bytes"] == wanted[row["sha256"]].bytes}
    asked = [file for sha256, file in wanted.items() if sha256 not in recorded]
    small = [file for file in asked if not deployment.objects.in_parts(file.bytes)]
    found = dict(
        zip(
            small,
            deployment.objects.at_once([partial(_stands, deployment, project, file) for file in small]),
            strict=True,
        )
    )
    for file in asked:
        if file not in found:  # the parts of a large one may have arrived, and are joined now
            stored = stored_as(deployment, [(blob_key(project, file.sha256), file)], file.parts)
            found[file] = not isinstance(stored, Refused)
    missing = [file for file in asked if not found[file]]
    here = [file for file in wanted.values() if file not in missing]
    _record(deployment, project, here, now_ms)
    return MissingBlobsView(
        missing=tuple(
            MissingBlob(sha256=file.sha256, grant=grant(deployment, blob_key(project, file.sha256), file, now_ms))
            for file in missing
        )
    )


def _stands(deployment: Deployment, project: str, file: File) -> bool:
    try:
        attested(deployment.objects, blob_key(project, file.sha256), file, ())
    except Damaged:
        return False
    return True


def _record(deployment: Deployment, project: str, files: Sequence[File], now_ms: int) -> None:
    """Record files in one transaction. They are sorted, so that two requests never wait for each other's rows."""
    ordered = sorted(files, key=lambda file: file.sha256)
    writes = [guard("add_blob", project=project, sha256=file.sha256, bytes=file.bytes, now=now_ms) for file in ordered]
    if writes and not deployment.store.apply(*writes):
        raise going_just_now(ordered[0])
