"""What nobody refers to goes from the object store: what attempts left there that have ended, and uploads that users gave up.

What goes by its age (`service/retention`) is forgotten there and swept here."""

import json

from gangline.core.jobs.keys import attempt_prefix
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment

AT_ONCE = 200
"""So much is swept in one call; the next one goes on."""


def sweep_attempts(deployment: Deployment, now_ms: int) -> None:
    """Each once, when the last URL that it was given has expired for long; and again where something of it was given up, even while it
    was swept. Looks only at what these attempts wrote."""
    before = now_ms - round(deployment.policy.orphans_s * 1000)
    for attempt in deployment.store.load("attempts_to_sweep", before=before, limit=AT_ONCE):
        for upload in deployment.store.load("uploads_of_attempt", attempt=attempt["id"]):
            _give_up(deployment, upload)
        delete_unreferred(deployment, attempt["project"], attempt["job"], attempt["id"])
        deployment.store.apply(write("mark_swept", attempt=attempt["id"], asked=attempt["sweeps_asked"]))


def delete_unreferred(deployment: Deployment, project: str, job: str, attempt: str) -> None:
    """What an attempt wrote that nothing refers to. Its names are its own, so none of them comes back."""
    kept = _referred(deployment, attempt)
    keys = deployment.objects.list(attempt_prefix(project, job, attempt))
    deployment.objects.delete([key for key in keys if key not in kept])


def sweep_uploads(deployment: Deployment, now_ms: int) -> None:
    """Those of users that were begun long ago: they are finished, or will not be."""
    before = now_ms - round(deployment.policy.uploads_s * 1000)
    for upload in deployment.store.load("uploads_left", before=before, limit=AT_ONCE):
        _give_up(deployment, upload)


def _give_up(deployment: Deployment, upload: Row) -> None:
    """With all that were begun under its key: a server may have died before it wrote down which one counts."""
    for begun in deployment.objects.uploads(upload["key"]):
        deployment.objects.abort(upload["key"], begun)
    deployment.store.apply(write("drop_upload", key=upload["key"], begun=upload["begun"]))


def _referred(deployment: Deployment, attempt: str) -> set[str]:
    """The keys of its checkpoints, results and log."""
    keys = set[str]()
    for row in deployment.store.load("referred", attempt=attempt):
        if row["manifest"]:
            keys |= {f"{row['key']}/{file['path']}" for file in json.loads(row["manifest"])["files"]}
        else:
            keys.add(row["key"])
    return keys
