"""Define the views of a project's stored objects. Times are milliseconds UTC, money is US dollars with six decimals."""

from dataclasses import dataclass
from typing import Any, Literal

from gangline.core.job import JobState

KeptKind = Literal["uploads", "prepared", "checkpoints", "results", "previews", "logs"]
"""Kinds of stored objects: uploaded files (photos, data sets, bases); latents, embeddings and class images; checkpoints; final weights
with their samples; samples of steps; logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """A stored checkpoint. `goes_ms` is when it will be deleted, None while that is not known: its job has not ended, or it is pinned.
    `best`: held-out samples, which are measured at intervals, were never better."""

    step: int
    bytes: int
    verified: bool
    pinned: bool
    best: bool = False
    committed_ms: int
    goes_ms: int | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFileView:
    """A file of a checkpoint, with a signed URL that expires."""

    path: str
    bytes: int
    sha256: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFilesView:
    """The files of a checkpoint, and the manifest that belongs beside them: with it, a trainer may resume from a copy."""

    job: str
    step: int
    manifest: dict[str, Any]
    files: tuple[StoredFileView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingView:
    """The objects of one kind that are deleted with a job."""

    kind: KeptKind
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalView:
    """The objects that are deleted with a job; uploaded files only if nothing else uses them. The job's costs stay in the ledger."""

    job: str
    name: str
    kept: tuple[GoingView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptView:
    """A project's stored objects of one kind. `going_bytes` of their bytes will be deleted by age, the first of them at `next_ms` unless
    they are used; `rule` says how long they are kept. `usd_per_month` is None if no price of storage is known."""

    kind: KeptKind
    files: int
    bytes: int
    jobs: int
    usd_per_month: float | None
    going_bytes: int
    next_ms: int | None
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSizeView:
    """The stored bytes of one job, without uploaded files, which several jobs may share."""

    job: str
    name: str
    state: JobState
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageView:
    """A project's stored objects, and its jobs with the most stored bytes."""

    bytes: int
    usd_per_month: float | None
    kinds: tuple[KeptView, ...]
    largest: tuple[JobSizeView, ...]
