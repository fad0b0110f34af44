"""What a project keeps in the object store, as users are shown it. Times are milliseconds UTC, money is US dollars with six decimals."""

from dataclasses import dataclass
from typing import Literal

from gangline.core.job import JobState

KeptKind = Literal["uploads", "prepared", "checkpoints", "results", "previews", "logs"]
"""What lies in the object store: uploaded files (photos, data sets, bases); latents, embeddings and class images; checkpoints;
final weights with the pictures of them; pictures of steps; logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """One that is kept. `goes_ms` says when it will be deleted, where that is known: the job has ended, and it is not pinned."""

    step: int
    bytes: int
    verified: bool
    pinned: bool
    committed_ms: int
    goes_ms: int | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoingView:
    """What goes with a job, of one kind."""

    kind: KeptKind
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalView:
    """What is deleted with a job: uploaded files only where nothing else uses them. Its bills stay."""

    job: str
    name: str
    kept: tuple[GoingView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptView:
    """What a project keeps of one kind. Of its bytes, `going_bytes` will be deleted by age, the first of them at `next_ms` unless
    somebody uses them; `rule` says how long they are kept. `usd_per_month` is None where no price of storage is known."""

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
    """What one job keeps, without uploaded files, which may be several jobs'."""

    job: str
    name: str
    state: JobState
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageView:
    """What a project keeps in the object store, and the jobs that keep the most of it."""

    bytes: int
    usd_per_month: float | None
    kinds: tuple[KeptView, ...]
    largest: tuple[JobSizeView, ...]
