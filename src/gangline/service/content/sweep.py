"""What nobody refers to goes from the object store: what attempts left there that have ended, and uploads that users gave up.

What goes by its age (`service/retention`) is forgotten there and swept here."""

import json

from gangline.core.jobs.keys import attempt_prefix
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment

AT_ONCE = 200
"""So much is swept in one call; the next one goes on."""


def sweep_attempts(at: Deployment, now_ms: int) -> None:
    """Each once, when the last URL that it was given has expired for long; and again where something of it was given up, even while it
    was swept. Looks only at what these attempts wrote."""
    before = now_ms - round(at.policy.orphans_s * 1000)
    for attempt in at.store.load("attempts_to_sweep", before=before, limit=AT_ONCE):
        for upload in at.store.load("uploads_of_attempt", attempt=attempt["id"]):
            _give_up(at, upload)
        delete_unreferred(at, attempt["project"], attempt["job"], attempt["id"])
        at.store.apply(write("mark_swept", attempt=attempt["id"], asked=attempt["sweeps_asked"]))


def delete_unreferred(at: Deployment, project: str, job: str, attempt: str) -> None:
    """What an attempt wrote that nothing refers to. Its names are its own, so none of them comes back."""
    kept = _referred(at, attempt)
    keys = at.objects.list(attempt_prefix(project, job, attempt))
    at.objects.delete([key for key in keys if key not in kept])


def sweep_uploads(at: Deployment, now_ms: int) -> None:
    """Those of users that were begun long ago: they are finished, or will not be."""
    before = now_ms - round(at.policy.uploads_s * 1000)
    for upload in at.store.load("uploads_left", before=before, limit=AT_ONCE):
        _give_up(at, upload)


def _give_up(at: Deployment, upload: Row) -> None:
    """With all that were begun under its key: a server may have died before it wrote down which one counts."""
    for begun in at.objects.uploads(upload["key"]):
        at.objects.abort(upload["key"], begun)
    at.store.apply(write("drop_upload", key=upload["key"], begun=upload["begun"]))


def _referred(at: Deployment, attempt: str) -> set[str]:
    """The keys of its checkpoints, results and log."""
    keys = set[str]()
    for row in at.store.load("referred", attempt=attempt):
        if row["manifest"]:
            keys |= {f"{row['key']}/{file['path']}" for file in json.loads(row["manifest"])["files"]}
        else:
            keys.add(row["key"])
    return keys
