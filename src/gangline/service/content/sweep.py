"""Delete from the object store what no row refers to: files of ended attempts, and uploads that users abandoned.

What expires by age (`service/retention`) loses its rows there and its bytes here.
"""

import json

from gangline.core.jobs.keys import attempt_prefix
from gangline.ports.store import Row, write
from gangline.service.deployment import Deployment

AT_ONCE = 200
"""The number of attempts, or uploads, that one call sweeps at most; the next call continues."""


def sweep_attempts(deployment: Deployment, now_ms: int) -> None:
    """Sweep each ended attempt once, long after its last signed URL has expired; and again if one of its files was given up, even during a
    sweep.

    Only the attempts' own prefixes are listed. Long after an outage, too: in a database that was restored, attempts ended before the
    restore, but the server of the time since then may still be at work, and refer to what they wrote.
    """
    before = now_ms - round(deployment.policy.orphans_s * 1000)
    if deployment.store.load("ticks")[0]["back_ms"] > before:
        return
    for attempt in deployment.store.load("attempts_to_sweep", before=before, limit=AT_ONCE):
        for upload in deployment.store.load("uploads_of_attempt", attempt=attempt["id"]):
            _give_up(deployment, upload)
        delete_unreferred(deployment, attempt["project"], attempt["job"], attempt["id"])
        deployment.store.apply(write("mark_swept", attempt=attempt["id"], asked=attempt["sweeps_asked"]))


def delete_unreferred(deployment: Deployment, project: str, job: str, attempt: str) -> None:
    """Delete what an attempt wrote and nothing refers to. No other attempt writes under its prefix, so no key comes back."""
    keys = list(deployment.objects.list(attempt_prefix(project, job, attempt)))
    kept = _referred(deployment, attempt)  # after the list: what a server writes is referred to before it is there
    deployment.objects.delete([key for key in keys if key not in kept])


def sweep_uploads(deployment: Deployment, now_ms: int) -> None:
    """Abort uploads of users that began long ago: they are complete, or never will be."""
    before = now_ms - round(deployment.policy.uploads_s * 1000)
    for upload in deployment.store.load("uploads_left", before=before, limit=AT_ONCE):
        _give_up(deployment, upload)


def _give_up(deployment: Deployment, upload: Row) -> None:
    """Abort all uploads under this key: a server may have died before it recorded which one counts."""
    for begun in deployment.objects.uploads(upload["key"]):
        deployment.objects.abort(upload["key"], begun)
    deployment.store.apply(write("drop_upload", key=upload["key"], begun=upload["begun"]))


def _referred(deployment: Deployment, attempt: str) -> set[str]:
    """Return the keys of an attempt's checkpoints, results and log."""
    keys = set[str]()
    for row in deployment.store.load("referred", attempt=attempt):
        if row["manifest"]:
            keys |= {f"{row['key']}/{file['path']}" for file in json.loads(row["manifest"])["files"]}
        else:
            keys.add(row["key"])
    return keys
