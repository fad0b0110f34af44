"""Download the photos of jobs that name other places, one file at a time in the background; then complete the job's spec, for good.

The job waits meanwhile: no node gets it while `job.fetching` is 1. The files are checked as a user's own machine checks photos, and stored
by content as uploads are. One server at a time works on a job, in turns as with gated models (`mirror.py`).
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BufferedIOBase

from gangline.core.canonical import canonical_json, digest
from gangline.core.display import as_words
from gangline.core.errors import BadInput, GanglineError, Unreachable, UserError
from gangline.core.files import File, part_lengths
from gangline.core.jobs.failure import Verdict
from gangline.core.jobs.keys import blob_key
from gangline.core.jobs.retry import pause_s
from gangline.core.parsing import to_json
from gangline.core.places.places import PhotoPlace, parse_places, places_to_json
from gangline.core.specs.spec import Spec, parse_spec, spec_hash, workload
from gangline.core.words import counted
from gangline.ports.objects import UploadPart
from gangline.ports.places.fetcher import Brought, FetchedPhotos, Fetcher
from gangline.ports.store import Row, Write, guard, write
from gangline.service.attempts import WAITS, as_job, event, moving
from gangline.service.content.blobs import listing, naming
from gangline.service.content.mirror import copied_files
from gangline.service.deployment import Deployment

log = logging.getLogger("gangline.imports")

FETCHING = "its photos are being fetched"
FASTER = "name fewer or smaller photos, or a faster place; the operator sets this limit with job_s in [fetching]"
TURN_S = 960.0
"""Another server takes over a job without progress for this long plus the time limit of one file. Checking the photos takes less."""


# Submitting


def places_of(deployment: Deployment, project: str, given: object) -> tuple[PhotoPlace, ...]:
    """Return the places that `photos` of a submission names. Raise `BadInput` if they may not be downloaded."""
    places = parse_places(given)
    if deployment.fetcher is None:
        raise BadInput("this server fetches no photos", hint="upload them, as `gangline train FOLDER` does")
    deployment.fetcher.check(project, places)
    return places


def awaiting(job: str, spec: Spec, places: Sequence[PhotoPlace]) -> tuple[str, list[Write]]:
    """Return a hash of the submission, and the writes that come after the write of a job whose photos are still to be downloaded."""
    asked = canonical_json({**to_json(spec), "photos": places_to_json(places)})
    added = {"asked": digest(json.loads(asked)), "places": json.dumps(places_to_json(places))}
    return added["asked"], [write("await_photos", id=job, spec=asked), write("add_import", job=job, **added)]


def why_waiting(row: Row | None, now_ms: int) -> str:
    """Return how far the photos of a job are, from the row of its import."""
    if row is None:
        return FETCHING
    far = f": {row['done']} of {row['files']}" if row["files"] else ""
    if not row["because"]:
        return f"{FETCHING}{far}"
    wait_s = max(0, row["turn_ends_ms"] - now_ms) / 1000
    return f"{FETCHING}{far}; {row['because']}, and is tried again in {wait_s:.0f} s"


# Downloading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One server's turn at downloading the photos of one job.

    `server` names the thread as well: the threads of a server take turns, too.
    """

    deployment: Deployment
    fetcher: Fetcher
    server: str
    job: str
    project: str
    places: tuple[PhotoPlace, ...]
    tries: int
    begun_ms: int
    spent_before_ms: int

    @property
    def spent_ms(self) -> int:
        """Milliseconds that all turns at this job have taken up to now."""
        return self.spent_before_ms + self.deployment.store.now_ms() - self.begun_ms

    @property
    def who(self) -> dict[str, object]:
        return {"job": self.job, "server": self.server, "spent_ms": self.spent_ms}

    def check(self) -> None:
        """Check during a download whether to continue. If the database does not answer, continue."""
        with suppress(Unreachable):
            _check(self)


class _Unwanted(GanglineError):
    """Nobody waits for these photos: the job has ended or was deleted."""


def fetch_photos(deployment: Deployment, thread: int = 0) -> Iterator[None]:
    """Download the photos of all jobs that wait for them.

    This takes long, so it yields after each step: a caller may stop there and resume later.
    """
    if deployment.fetcher is None:
        return
    if thread == 0:
        _sweep(deployment, deployment.fetcher)
    server = f"{deployment.server}/{thread}"
    had = set[str]()
    while row := _take_next(deployment, server, had):
        had.add(row["job"])
        yield from _fetch(deployment, deployment.fetcher, server, row)


def _take_next(deployment: Deployment, server: str, had: Set[str]) -> Row | None:
    """Take the next job, which may be another project's after each download.

    A job that was tried in this round waits for the next round.
    """
    who = {"server": server, "at_once_max": deployment.fetching.of_one_project_max}
    for found in deployment.store.load("imports_to_make", now=deployment.store.now_ms(), **who):
        job, project = found["job"], found["project"]
        turn = {
            "job": job,
            "project": project,
            "now": deployment.store.now_ms(),
            "turn_ends_ms": _turn_ends_ms(deployment),
        }
        if job not in had and deployment.store.apply(
            write("hold_project", project=project), guard("take_import", **who, **turn)
        ):
            return _find(deployment, job)
    return None


def _sweep(deployment: Deployment, fetcher: Fetcher) -> None:
    """Delete local downloads for jobs that no longer wait: deleted, ended, or completed by another server."""
    for job in fetcher.kept():
        row = _find(deployment, job)
        if row is None or row["state"] != "fetching":
            fetcher.forget(job)


def _fetch(deployment: Deployment, fetcher: Fetcher, server: str, row: Row) -> Iterator[None]:
    job = row["job"]
    turn = _Turn(
        deployment=deployment,
        fetcher=fetcher,
        server=server,
        job=job,
        project=row["project"],
        places=(),
        tries=row["tries"],
        begun_ms=deployment.store.now_ms(),
        spent_before_ms=row["spent_ms"],
    )
    try:
        turn = replace(turn, places=parse_places(json.loads(row["places"])))
        yield from _bring(turn, row)
    except _Unwanted:
        _end(turn, "dropped", "")
        fetcher.forget(job)
    except Unreachable as error:
        _pause(turn, error)
    except OSError as error:  # e.g. the disk is full
        _pause(turn, Unreachable(f"this server cannot keep what it fetches: {(error.strerror or str(error)).lower()}"))
    except GanglineError as error:
        _fail(turn, error)
    except Exception:
        log.exception("the photos of %s could not be fetched; trying again", job)
        _pause(turn, Unreachable("an error occurred in this server, and its log says why"))


def _bring(turn: _Turn, row: Row) -> Iterator[None]:
    """Download, check and store the photos of a job. Stop if another server has taken over. Raise `_Unwanted` if nobody waits for them."""
    before = Brought(row["done"], row["files"])
    for brought in turn.fetcher.bring(turn.job, turn.project, turn.places, turn.check):
        before = _further(before, brought)
        if not _advance(turn, before, row["done"]):
            return
        yield
    found = turn.fetcher.look(turn.job, turn.places, turn.check)
    files = dict[str, File]()
    for name in (*found.photos, *found.captions):
        files[name] = _keep(turn, name)
        if not _advance(turn, before, row["done"]):
            return
        yield
    _fill(turn, found, files)


def _check(turn: _Turn) -> None:
    """Raise `_Unwanted` if the job has ended or was deleted; `UserError` if the downloads took longer than `job_s` in all."""
    row, most_s = _find(turn.deployment, turn.job), turn.deployment.fetching.job_s
    if row is None or row["ended_ms"] is not None:
        raise _Unwanted(f"no job waits for the photos of {turn.job}")
    if turn.spent_ms > most_s * 1000:
        raise UserError(f"fetching them took longer than {most_s:,.0f} s in all", hint=FASTER)


def _further(before: Brought, brought: Brought) -> Brought:
    """Return the progress, which never falls behind that of an earlier try."""
    return Brought(max(before.done, brought.done), max(before.of, brought.of))


def _advance(turn: _Turn, brought: Brought, done_before: int) -> bool:
    """Record the progress. Return False if it is no longer this server's turn. A file that arrived resets the number of tries."""
    _check(turn)
    progress = {"done": brought.done, "files": brought.of, "because": ""}
    tries = 0 if brought.done > done_before else turn.tries
    return turn.deployment.store.apply(
        guard("advance_import", **turn.who, **progress, tries=tries, turn_ends_ms=_turn_ends_ms(turn.deployment))
    )


def _keep(turn: _Turn, name: str) -> File:
    """Store a downloaded file in the object store, by content."""
    deployment = turn.deployment
    with turn.fetcher.open(turn.job, name) as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
        file = File(path=name, bytes=content.seek(0, os.SEEK_END), sha256=sha256)
        content.seek(0)
        _put(deployment, blob_key(turn.project, sha256), file, content)
    here = {"project": turn.project, "sha256": file.sha256, "bytes": file.bytes, "now": deployment.store.now_ms()}
    if not deployment.store.apply(guard("add_blob", **here)):
        raise Unreachable(f"{name} is being deleted, as no job used it")
    return file


def _put(deployment: Deployment, key: str, file: File, content: BufferedIOBase) -> None:
    if deployment.objects.stat(key):
        if deployment.objects.read_back(key) == file.sha256:
            return
        deployment.objects.delete([key])
    if not deployment.objects.in_parts(file.bytes):
        deployment.objects.write(key, content.read())
        return
    upload = deployment.objects.begin(key)
    parts = list[UploadPart]()
    for number, length in enumerate(part_lengths(file.bytes), start=1):
        part = content.read(length)
        deployment.objects.put_part(key, upload, number, part)
        parts.append(UploadPart(len(part), hashlib.sha256(part).hexdigest()))
    deployment.objects.complete(key, upload, parts)
    if deployment.objects.stat(key) is None:
        raise Unreachable(f"{file.path} is not complete in the object store")


def _fill(turn: _Turn, found: FetchedPhotos, files: dict[str, File]) -> None:
    """Complete the job's spec and queue it, unless it has ended or another server was faster."""
    deployment, now_ms = turn.deployment, turn.deployment.store.now_ms()
    asked = json.loads(deployment.store.load("job", id=turn.job)[0]["spec"])
    photos, captions = ([to_json(files[name]) for name in names] for names in (found.photos, found.captions))
    spec = parse_spec(asked | {"photos": photos, "captions": captions})
    inputs = spec.input_files().values()
    size = sum(file.bytes for file in (*inputs, *copied_files(deployment, turn.project, spec).values()))
    filled = {"spec": canonical_json(to_json(spec)), "spec_hash": spec_hash(spec), "workload": workload(spec)}
    fetched = list(files.values())
    if deployment.store.apply(
        *naming(turn.project, fetched, now_ms),
        guard("fill_job", id=turn.job, **filled, input_bytes=size, because=WAITS, now=now_ms),
        *listing(turn.project, turn.job, fetched),
        guard("end_import", **turn.who, state="ready", because="", tries=0, not_before_ms=0),
        event(turn.job, "fetched", _in_words(found), now_ms),
    ):
        turn.fetcher.forget(turn.job)


def _in_words(found: FetchedPhotos) -> str:
    count, own = len(found.photos), len(found.captions)
    captions = f" and {counted(own, 'file')} of captions" if own else ""
    told = f"; {'; '.join(found.told[:5])}" if found.told else ""
    return as_words(f"{counted(count, 'photo')}{captions} fetched{told}")


def _pause(turn: _Turn, error: GanglineError) -> None:
    """Schedule a retry; after `tries_max` tries, fail the job."""
    row = _find(turn.deployment, turn.job)
    tries = 1 + (row["tries"] if row else turn.tries)
    if tries >= turn.deployment.fetching.tries_max:
        _fail(turn, UserError(f"{error.message}, in {tries} tries"))
        return
    _end(turn, "fetching", error.message, tries=tries, wait_s=pause_s(tries))


def _fail(turn: _Turn, error: GanglineError) -> None:
    """Fail the job with this error, unless it has ended meanwhile."""
    deployment, now_ms = turn.deployment, turn.deployment.store.now_ms()
    rows = deployment.store.load("job", id=turn.job)
    if not rows or rows[0]["ended_ms"] is not None:  # the job may have been deleted
        _end(turn, "dropped", "")
        return
    job = as_job(rows[0])
    because = as_words(f"its photos could not be fetched: {error.message}" + (f" ({error.hint})" if error.hint else ""))
    verdict = Verdict(attempt="failed", job="failed", attempts_failed=job.attempts_failed, because=because)
    ended = guard("end_import", **turn.who, state="failed", because=because, tries=turn.tries, not_before_ms=0)
    if deployment.store.apply(moving(job, verdict, now_ms), ended, event(turn.job, "failed", because, now_ms)):
        turn.fetcher.forget(turn.job)


def _end(turn: _Turn, state: str, because: str, *, tries: int = 0, wait_s: float = 0.0) -> None:
    not_before_ms = turn.deployment.store.now_ms() + round(wait_s * 1000)
    end = {"state": state, "because": as_words(because), "tries": tries, "not_before_ms": not_before_ms}
    turn.deployment.store.apply(write("end_import", **turn.who, **end))


def _turn_ends_ms(deployment: Deployment) -> int:
    return deployment.store.now_ms() + round((TURN_S + deployment.fetching.file_s) * 1000)


def _find(deployment: Deployment, job: str) -> Row | None:
    rows = deployment.store.load("import_of", job=job)
    return rows[0] if rows else None
