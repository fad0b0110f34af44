"""Define the answers of the API. Times are milliseconds UTC, money is US dollars with six decimals."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from gangline.core.access import KeyRole, OwnerView, Standing
from gangline.core.events import Described, RecordedKind, markdown_list
from gangline.core.files import Grant
from gangline.core.job import AttemptState, JobState
from gangline.core.jobs.failure import MEANING
from gangline.core.jobs.wishes import WishKind
from gangline.core.money.cost import CostPart
from gangline.core.runs.metrics import Measured
from gangline.core.runs.saving import Saving
from gangline.core.specs.kinds import KINDS

TITLES = {name: kind.title for name, kind in KINDS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingView(Saving):
    """How often an attempt saves, and `because` of what, as its node said with its last checkpoint."""

    because: str


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
    saving: SavingView | None = None
    gpu: str = ""
    numerics: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """A job without its spec and attempts. `step` is the last step that is known to be done, and never less than `committed_step`, which no
    interruption can undo; `steps` are all, 0 if that is unknown. One that succeeded with fewer was finished early. `phase` is what
    its node is doing, `pausing` until it has saved, or `silent` if two of its heartbeats have not come. `cost_usd` is the known part of the
    cost, without the parts in `cost_lacks`. `owner` is None for a job of an older version."""

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
    owner: OwnerView | None = None
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def steps_done(self) -> str:
        """The steps that are done, of all if it is known how many there are: a command need not say."""
        return f"{self.step}/{self.steps}" if self.steps else str(self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesView:
    """The samples of a training job: the number of `pictures`; how many of the jobs that render them are `waiting` and how many `failed`;
    `because` is the reason of the last failure. Their cost is not in the training job's cost."""

    pictures: int
    waiting: int
    failed: int
    because: str
    cost_usd: float
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryView:
    """The delivery of results after success: its target and its state; `because` says why the last try failed, if it did."""

    to: str
    state: Literal["waiting", "delivered", "failed", "dropped"]
    because: str
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job. `dataset` is the version that its photos are, such as `timber@3`, if it named a data set. `asked` is what its owner asked of
    it that is not done yet. `version` rises with every change of its state, its reason and its labels, but not with its progress. `verdict`
    says in one sentence how the job stands (empty: the server is older). `seconds_lost` were lost to interruptions; a pause is none."""

    summary: JobSummary
    spec: dict[str, object]
    attempts: tuple[AttemptView, ...]
    steps_redone: int
    seconds_lost: float
    samples: SamplesView
    delivery: DeliveryView | None = None
    dataset: str = ""
    asked: tuple[WishKind, ...] = ()
    version: int = 0
    verdict: str = ""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.summary.id

    @property
    def state(self) -> JobState:
        """The job's state."""
        return self.summary.state

    @property
    def because(self) -> str:
        """Why the job is in this state."""
        return self.summary.because


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLineView:
    """The result of line `line` (from 1) of a batch: a `job`, or the `problem` (RFC 9457) for which it was refused."""

    line: int
    job: str | None = None
    problem: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """A page of a list of jobs. `next` asks for the following page; it is None on the last one. A page of several filters, or
    of a search, may have fewer jobs than were asked for, or none, and a next one."""

    jobs: tuple[JobSummary, ...]
    next: str | None


FAILURES = markdown_list({kind: f"{meaning.says}. {meaning.sentence}" for kind, meaning in MEANING.items()})


JobStateAfter = Annotated[str, Described("The job's state after it: `failed` if this ended it. Empty: not recorded.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    number: int
    at_ms: int
    kind: RecordedKind
    attempt: str | None
    node: str | None
    because: Annotated[str, Described(f"Why. After a failure it has the words of its kind:\n\n{FAILURES}")]
    state: JobStateAfter = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactView:
    """An event of a job in the stream of its project. `number` is its place there: greater ones came later, and one that is missing was of
    a job that its owner has deleted."""

    number: int
    at_ms: int
    job: str
    job_name: str
    kind: RecordedKind
    attempt: str | None
    node: str | None
    because: str
    state: JobStateAfter


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """The progress of a job, for clients that follow it. Fields are None while no node works on it."""

    state: JobState
    phase: str | None
    step: int | None
    loss: float | None
    seconds_per_step: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedView:
    """The last step of a job that was sent to a tracker; `because` says what prevents sending more, if anything does."""

    tracker: str
    step: int
    ended: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsView:
    """The metrics of all attempts as one series. Ask for new points after `next`: another attempt may still replace those beyond it."""

    points: tuple[Measured, ...]
    committed_step: int
    next: int
    trackers: tuple[TrackedView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndView:
    """The end of a job, after which there is nothing more to follow."""

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
    """A part of the trainers' log; `next` asks for the part after it."""

    text: str
    next: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobView:
    """The answer whether a file is stored already; if not, `grant` has the requests that upload it."""

    present: bool
    grant: Grant | None


BaseState = Literal["ready", "fetching", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseView:
    """A base by its name. `base` and `vae` are the values that a spec takes; `id` changes with any byte of it. A base that is gated on the
    hub is `fetching` until all of its `bytes` are in the object store."""

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
    """A project and its money. `reserved_usd` is reserved for running attempts; `budget_usd` is None if there is no limit. `spent_usd` is
    the known part of the cost, without the parts in `cost_lacks`."""

    project: str
    share: float
    budget_usd: float | None
    spent_usd: float
    reserved_usd: float
    cost_lacks: tuple[CostPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """An API key, without its secret. `used_ms` is accurate to the hour; an operator's key has no `project`."""

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
class SecretView:
    """A secret of a project, without its value. One that is not `readable` was encrypted under a key that the server does not have."""

    name: str
    set_ms: int
    readable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key that was just made. `secret` is shown only once, and in no log."""

    key: KeyView
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTokenView:
    """A token with which workers may join a pool and do nothing else. If it has no price or trust, those of its pool apply. At most
    `nodes_max` nodes may exist at once and `nodes_per_hour` join within an hour (None: no limit); `nodes` exist now."""

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
    """A join token that was just made. `secret` is shown only once, and in no log."""

    join_token: JoinTokenView
    secret: str = field(repr=False)
