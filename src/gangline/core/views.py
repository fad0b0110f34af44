"""What users are shown. Times are milliseconds UTC, money is US dollars with six decimals."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from gangline.core.access import KeyRole, Standing
from gangline.core.events import Described, RecordedKind, markdown_list
from gangline.core.files import Grant
from gangline.core.job import AttemptState, JobState
from gangline.core.jobs.failure import MEANING
from gangline.core.money.cost import CostPart
from gangline.core.runs.metrics import Measured
from gangline.core.specs.kinds import KINDS

TITLES = {name: kind.title for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptView:
    id: str
    node: str
    node_name: str
    state: AttemptState
    because: str
    phase: str | None
    from_step: int
    step: int
    loss: float | None
    seconds_per_step: float | None
    started_ms: int
    ended_ms: int | None
    cost_usd: float
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """`step` is the last that is known to be taken, and never less than `committed_step`, the one that nothing can take away any more.
    `phase` is what its node is doing, or `pausing` until that has saved. `cost_usd` is what is known of the cost, without what
    `cost_lacks`."""

    id: str
    name: str
    kind: Annotated[str, Described(f"The kind of the job:\n\n{markdown_list(TITLES)}", TITLES)]
    state: JobState
    because: str
    steps: int
    step: int
    committed_step: int
    phase: str | None
    node_name: str | None
    loss: float | None
    seconds_per_step: float | None
    eta_s: float | None
    attempts: int
    interruptions: int
    cost_usd: float
    cost_lacks: tuple[CostPart, ...] = ()
    submitted_ms: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesView:
    """Pictures of a training job: how many there are; of the jobs that render them, how many are still to do it and how many did
    not, and why the last of those; what they cost, which is not in the training job's own cost."""

    pictures: int
    waiting: int
    failed: int
    because: str
    cost_usd: float
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    """Where results go after success, and how far that is: `because` says what the last try met, if it came to nothing."""

    to: str
    state: Literal["waiting", "delivered", "failed", "dropped"]
    because: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    summary: JobSummary
    spec: dict[str, object]
    attempts: tuple[AttemptView, ...]
    steps_redone: int
    seconds_lost: float
    samples: SamplesView
    delivery: DeliveryView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLineView:
    """What became of line `line` of a batch, the first being 1: a `job`, or the `problem` (RFC 9457) for which it was refused."""

    line: int
    job: str | None = None
    problem: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """`next` asks for the page after this one; None where this is the last."""

    jobs: tuple[JobSummary, ...]
    next: str | None


FAILURES = markdown_list({kind: f"{meaning.says}. {meaning.sentence}" for kind, meaning in MEANING.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    number: int
    at_ms: int
    kind: RecordedKind
    attempt: str | None
    node: str | None
    because: Annotated[str, Described(f"Why. After a failure it has the words of its kind:\n\n{FAILURES}")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """What a job is doing, for those who follow it; None where no node is at work on it."""

    state: JobState
    phase: str | None
    step: int | None
    loss: float | None
    seconds_per_step: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedView:
    """How far a tracker was told of a job; `because` says what keeps it from being told, if anything does."""

    tracker: str
    step: int
    ended: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsView:
    """One run of all attempts. Ask after `next` for what is new: points beyond it may still be replaced by another attempt's."""

    points: tuple[Measured, ...]
    committed_step: int
    next: int
    trackers: tuple[TrackedView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndView:
    """A job has ended: there is nothing more to follow."""

    state: JobState
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactView:
    path: str
    bytes: int
    sha256: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """A piece of what the trainers printed; `next` asks for what comes after it."""

    text: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """`job` is None also where it is another project's. Where `price_known` is false, `price_usd_per_hour` says nothing."""

    id: str
    name: str
    machine: str
    pool: str
    state: str
    because: str
    gpu: str
    slots: int
    price_usd_per_hour: float
    price_known: bool = True
    trust: int = 0
    job: str | None
    phase: str | None
    seen_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobView:
    """Whether the bytes are here; if not, how to put them there."""

    present: bool
    grant: Grant | None


BaseState = Literal["ready", "fetching", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseView:
    """A base by its name. `base` and `vae` are what a spec takes; `id` changes with any byte of it. One that is gated on the hub is
    `fetching` until all of its `bytes` are in the object store."""

    name: str
    base: dict[str, Any]
    vae: dict[str, Any] | None
    id: str
    family: str
    prediction_type: str
    licence: str
    because: str
    bytes: int
    state: BaseState
    fetched_bytes: int
    why: str
    made_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectView:
    """`reserved_usd` is set aside for what runs; `budget_usd` is None where there is no limit. `spent_usd` is what is known, without what
    `cost_lacks`."""

    project: str
    share: float
    budget_usd: float | None
    spent_usd: float
    reserved_usd: float
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """What lets a person or a program in. `used_ms` is right to the hour; an operator's key has no `project`."""

    id: str
    role: KeyRole
    name: str
    project: str | None
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    used_ms: int | None
    standing: Standing


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """`secret` is shown this once, and in no log."""

    key: KeyView
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTokenView:
    """What lets workers join a pool, and nothing else. Their price and trust are its pool's where it has none; `nodes_max` nodes may be
    here at once, `nodes_per_hour` may join within an hour, any number where there is no limit; `nodes` are here now."""

    id: str
    name: str
    pool: str
    made_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    used_ms: int | None
    standing: Standing
    price_usd_per_hour: float | None = None
    trust: int | None = None
    nodes_max: int | None = None
    nodes_per_hour: int | None = None
    nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJoinToken:
    """`secret` is shown this once, and in no log."""

    join_token: JoinTokenView
    secret: str = field(repr=False)
