"""Mirror gated models of the hub in the object store, part by part: nodes read them there and need no token of the hub."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gangline.core.errors import Damaged, GanglineError, Unreachable
from gangline.core.files import PART_BYTES, File, part_ranges
from gangline.core.jobs.keys import blob_key
from gangline.core.jobs.retry import pause_s
from gangline.core.models.bases import ROLES, ModelRole
from gangline.core.specs.fields import HubBase
from gangline.core.specs.spec import SampleSpec, Spec
from gangline.ports.objects import UploadPart
from gangline.ports.store import Row, guard, write
from gangline.service.deployment import Deployment

TURN_S = 300.0
"""Another server takes over a mirror without progress for this long. One part of a file takes less."""


def mirror(deployment: Deployment) -> Iterator[None]:
    """Make all pending mirrors. This takes long, so it yields after each step: a caller may stop there and resume later."""
    now_ms = deployment.store.now_ms()
    for row in deployment.store.load("mirrors_to_make", now=now_ms, server=deployment.server):
        which = {name: row[name] for name in ("project", "base", "role")}
        if deployment.store.apply(guard("take_mirror", **which, **_turn(deployment), now=now_ms)):
            yield from _go_on(deployment, which)


def _go_on(deployment: Deployment, which: dict[str, Any]) -> Iterator[None]:
    """Continue one mirror. If the hub or the object store does not answer, schedule a retry, with a longer pause each time."""
    row = find(deployment, **which)
    if row is None or row["state"] != "fetching":
        return
    copy = _as_copy(row)
    try:
        yield from _copy(deployment, copy)
    except Unreachable as error:
        tries = row["tries"] + 1
        _end(deployment, copy, "fetching", error.message, tries=tries, wait_s=pause_s(tries))
    except GanglineError as error:
        _end(deployment, copy, "failed", error.message)


def copied_files(deployment: Deployment, project: str, spec: Spec | SampleSpec) -> dict[str, File]:
    """Return the files of a spec's hub models that are in the object store, by their path below `inputs/`."""
    found: dict[str, File] = {}
    settings = spec.of if isinstance(spec, SampleSpec) else spec
    for role, model in zip(ROLES, (settings.base, settings.vae), strict=True):
        row = find(deployment, project, model.id, role) if isinstance(model, HubBase) else None
        if row and row["state"] == "ready":
            found |= {f"{role}/{each['path']}": File(**each) for each in json.loads(row["files"])}
    return found


def find(deployment: Deployment, project: str, base: str, role: ModelRole) -> Row | None:
    rows = deployment.store.load("mirrors", project=project, base=base)
    return next((row for row in rows if row["role"] == role), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """The progress of a mirror. `begun` is the id of the upload of `files[done]`; `parts` has the SHA-256 of each part that is stored."""

    project: str
    base: str
    role: str
    model: HubBase
    files: tuple[dict[str, Any], ...]
    done: int = 0
    begun: str = ""
    parts: tuple[str, ...] = field(default=())

    @property
    def which(self) -> dict[str, str]:
        return {"project": self.project, "base": self.base, "role": self.role}

    @property
    def done_bytes(self) -> int:
        return sum(each["bytes"] for each in self.files[: self.done]) + PART_BYTES * len(self.parts)


def _as_copy(row: Row) -> _Copy:
    return _Copy(
        project=row["project"],
        base=row["base"],
        role=row["role"],
        model=HubBase(repo=row["repo"], revision=row["revision"]),
        files=tuple(json.loads(row["files"])),
        done=row["done_files"],
        begun=row["begun"],
        parts=tuple(json.loads(row["parts"])),
    )


def _copy(deployment: Deployment, copy: _Copy) -> Iterator[None]:
    """Copy the remaining files. Stop if another server has taken over."""
    for number in range(copy.done, len(copy.files)):
        bring = _large if deployment.objects.in_parts(copy.files[number]["bytes"]) else _small
        for step in bring(deployment, copy):
            if not _advance(deployment, step, copy):
                return
            copy = step
            yield
    _end(deployment, copy, "ready", "")


def _small(deployment: Deployment, copy: _Copy) -> Iterator[_Copy]:
    each = copy.files[copy.done]
    content = deployment.hub.read(copy.model.repo, copy.model.revision, each["path"])
    sha256 = hashlib.sha256(content).hexdigest()
    # The hub lists no SHA-256 for small files, which it knows by another hash.
    if len(content) != each["bytes"] or each["sha256"] not in (None, sha256):
        raise _other(each["path"])
    deployment.objects.write(blob_key(copy.project, sha256), content)
    yield _done(copy, sha256)


def _large(deployment: Deployment, copy: _Copy) -> Iterator[_Copy]:
    """Copy a file in parts. The hub lists its SHA-256, which is checked by reading the complete file back."""
    each, model = copy.files[copy.done], copy.model
    key, ranges = blob_key(copy.project, each["sha256"]), part_ranges(each["bytes"])
    if deployment.objects.stat(key):  # another model has it, or a server stopped before it could record it
        yield _checked(deployment, copy, key)
        return
    if not copy.begun or deployment.objects.parts(key, copy.begun) is None:
        copy = replace(copy, begun=deployment.objects.begin(key), parts=())
        yield copy
    while len(copy.parts) < len(ranges):
        part = ranges[len(copy.parts)]
        content = deployment.hub.read(model.repo, model.revision, each["path"], part)
        if len(content) != len(part):
            raise Unreachable(f"the hub sent {len(content)} of {len(part)} bytes of {each['path']}")
        deployment.objects.put_part(key, copy.begun, len(copy.parts) + 1, content)
        copy = replace(copy, parts=(*copy.parts, hashlib.sha256(content).hexdigest()))
        yield copy
    declared = [UploadPart(len(part), sha256) for part, sha256 in zip(ranges, copy.parts, strict=True)]
    deployment.objects.complete(key, copy.begun, declared)
    if deployment.objects.stat(key) is None:
        raise Unreachable(f"{each['path']} is not complete in the object store")
    yield _checked(deployment, copy, key)


def _checked(deployment: Deployment, copy: _Copy, key: str) -> _Copy:
    each = copy.files[copy.done]
    if deployment.objects.read_back(key) != each["sha256"]:
        deployment.objects.delete([key])
        raise _other(each["path"])
    return _done(copy, each["sha256"])


def _other(path: str) -> Damaged:
    return Damaged(f"{path} does not match its hash on the hub")


def _done(copy: _Copy, sha256: str) -> _Copy:
    number = copy.done
    files = (*copy.files[:number], copy.files[number] | {"sha256": sha256}, *copy.files[number + 1 :])
    return replace(copy, files=files, done=number + 1, begun="", parts=())


def _advance(deployment: Deployment, copy: _Copy, before: _Copy) -> bool:
    """Record the progress. Return False if it is no longer this server's turn, or one of the files is being deleted."""
    now_ms = deployment.store.now_ms()
    here = copy.files[before.done : copy.done]
    progress = {"files": json.dumps(copy.files), "done_files": copy.done, "done_bytes": copy.done_bytes}
    return deployment.store.apply(
        guard(
            "advance_mirror",
            **copy.which,
            **_turn(deployment),
            **progress,
            begun=copy.begun,
            parts=json.dumps(copy.parts),
        ),
        *(
            guard("add_blob", project=copy.project, sha256=each["sha256"], bytes=each["bytes"], now=now_ms)
            for each in here
        ),
    )


def _end(deployment: Deployment, copy: _Copy, state: str, because: str, *, tries: int = 0, wait_s: float = 0.0) -> None:
    not_before_ms = deployment.store.now_ms() + round(wait_s * 1000)
    end = {"state": state, "because": because, "tries": tries, "not_before_ms": not_before_ms}
    deployment.store.apply(write("end_mirror", **copy.which, server=deployment.server, **end))


def _turn(deployment: Deployment) -> dict[str, object]:
    return {"server": deployment.server, "turn_ends_ms": deployment.store.now_ms() + round(TURN_S * 1000)}
