"""The requests that an agent makes of the service, and their answers.

Every request except `join` uses the node's token. Those about an attempt carry its fencing number and are answered `Stale` once the lease
is lost: then nothing that the agent still does about the attempt counts. Every call may raise `Unreachable`; all of them may be repeated.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, get_args

from annotated_types import Ge, Gt, Le, MaxLen, MinLen, Predicate

from gangline.core.display import WORDS_MAX, Label, Name, is_printable
from gangline.core.events import Described, markdown_list
from gangline.core.files import IN_ONE_FOLDER, Beginnings, File, Files, Grant, SafePath, Sha256, Signed, check_parts
from gangline.core.fleet.gauges import Gauges, SentGauges
from gangline.core.jobs.failure import MEANING, ReportedKind
from gangline.core.runs.contract import Phase
from gangline.core.runs.metrics import POINTS_MAX, Point, is_ascending
from gangline.core.runs.saving import Saving, SavingTerms
from gangline.core.specs.fields import STEPS_MAX
from gangline.core.specs.kinds import KINDS

Id = Annotated[Name, MaxLen(100)]
Words = Annotated[str, MaxLen(WORDS_MAX)]
"""A node's reasons. None is refused, as they must be recorded: the service escapes them."""
Capability = Annotated[str, MaxLen(2000), Predicate(is_printable)]
Count = Annotated[int, Ge(0), Le(10**12)]
LOG_CHUNK_BYTES_MAX = 256 * 1024
IDENTITY_MAX, RESULTS_MAX = 4_000, 1000
Folder = Literal["checkpoints", "output", "prepared", "samples"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A node that joins. Its join token decides which pool it joins.

    `machine` is the same whenever a worker starts on this machine; `node` is the rental that a rented one was given, and `place` what its
    provider calls the machine, where it moves rentals between machines; `identity` is a token of the provider's that proves which machine
    it is. `gpu` is the class of its GPUs, `gpu_memory_gb` the memory of each in GB, `cards` the SHA-256 of each UUID; `bases` are those in
    its cache. `kinds`, `problems` and `measured` are the findings of its probe (`gangline.core.runs.proof`)."""

    machine: Id
    name: Name
    node: Annotated[Label, MaxLen(100)] = ""
    place: Annotated[Label, MaxLen(200)] = ""
    identity: Annotated[str, MaxLen(IDENTITY_MAX), Predicate(is_printable)] = field(default="", repr=False)
    slots: Annotated[int, Ge(1), Le(1024)] = 1
    gpu: Label = ""
    gpu_memory_gb: Annotated[float, Ge(0), Le(10_000)] = 0
    capabilities: Annotated[dict[Name, Capability], MaxLen(100)] = field(default_factory=dict)
    bases: Annotated[tuple[Annotated[str, MaxLen(500), Predicate(is_printable)], ...], MaxLen(200)] = ()
    kinds: Annotated[tuple[Id, ...], MaxLen(50)] = tuple(KINDS)
    problems: Annotated[dict[Id, Words], MaxLen(50)] = field(default_factory=dict)
    measured: Annotated[dict[Id, Words], MaxLen(50)] = field(default_factory=dict)
    cards: Annotated[tuple[Sha256, ...], MaxLen(128)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    node: str
    token: str = field(repr=False)
    heartbeat_interval_s: float
    claim_interval_s: float
    save_interval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """The provider's words that this machine is about to be taken away."""

    because: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A file and the key of its bytes in the object store."""

    path: SafePath
    bytes: Count
    sha256: Sha256
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumable:
    """A committed checkpoint to resume from."""

    id: str
    step: int
    manifest: dict[str, Any]
    files: tuple[Stored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """Files that another job prepared under a key; see `gangline.core.runs.prepared`."""

    key: str
    manifest: dict[str, Any]
    files: tuple[Stored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The lease that a request relies on."""

    attempt: Id
    rank: Count = 0
    fencing: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A job to work on.

    `inputs` are stored by content and have paths below `inputs/`; `resume` has checkpoints, newest first; `prepared` are files that the run
    need not compute, if its numerics are those under which they were made; `secrets` are the values of a command's secrets.
    `saving` says by what to decide when to save; an older server does not say it.
    """

    job: str
    name: str
    hold: Hold
    kind: str
    spec: dict[str, Any]
    inputs: tuple[Stored, ...]
    resume: tuple[Resumable, ...]
    prepared: tuple[Offered, ...] = ()
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    saving: SavingTerms | None = None

    @property
    def slots(self) -> int:
        """Return how many slots of the node the job takes. Jobs that render take one, whatever the job that they render took."""
        return self.spec.get("needs", {}).get("slots", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWork:
    """The reason why there is no job. `locked_out` says that this node gets none for some time, whatever the queue has; `because` stays the
    same until that changes."""

    because: str
    locked_out: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """The lease is lost: another node may have the job, or it has ended."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The lease is valid, but the request cannot be fulfilled: files are missing, or differ from their declaration."""

    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """The lease is renewed. `stop` says why to save and release the job; `save` and `finish` are its owner's wishes, until done."""

    stop: str = ""
    save: bool = False
    finish: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat: what the attempt is doing, from its claim to the last upload. `training_s` is how long ago its first step was, in
    seconds; null before that. `steps` is how many a command says that it has, once that is known; 0 says nothing. `memory_bytes` is the
    GPU memory that its trainer holds at most, null if unknown. `gauges` are those of the node, null in most heartbeats."""

    phase: Phase
    step: Count
    steps: Annotated[int, Ge(0), Le(STEPS_MAX)] = 0
    training_s: Annotated[float, Ge(0), Le(10**9)] | None = None
    loss: float | None = None
    seconds_per_step: Annotated[float, Gt(0), Le(86_400)] | None = None
    memory_bytes: Annotated[int, Ge(0), Le(2**53)] | None = None
    gauges: SentGauges = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload(File):
    """A file to upload. `parts` has the SHA-256 of each part of `PART_BYTES`, in order; it is empty for a file with a single part."""

    parts: Annotated[tuple[Sha256, ...], MaxLen(10_000)] = ()

    def __post_init__(self) -> None:
        check_parts(self.bytes, self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploads:
    """Files that a node wants to upload below a folder of its attempt; `step` is for those of a checkpoint."""

    folder: Folder
    step: Count = 0
    files: Annotated[tuple[Upload, ...], IN_ONE_FOLDER, MinLen(1), MaxLen(1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """Grants in the order of the request. They expire; a repeated request leaves out parts that have arrived by then."""

    files: tuple[Grant, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloads:
    """Keys of the assignment that a node wants to download."""

    keys: Annotated[tuple[Annotated[str, MaxLen(2000)], ...], MinLen(1), MaxLen(1000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """Signed URLs in the order of the request. They expire."""

    urls: tuple[Signed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A checkpoint whose files are all in the object store. `saving` is how often the run saves from now on, and why."""

    manifest: dict[str, Any]
    saving: Saving | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The checkpoint is committed. `render` its pictures, as no other node has time; with `now`, of the step that it is at then.
    `between_s` is the mean time between interruptions that is expected now."""

    render: bool = False
    now: bool = False
    between_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """Pictures of a step that the training node rendered, all in the object store below `samples` of its attempt."""

    step: Count
    files: Annotated[Files, MinLen(1), MaxLen(2000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Prepared files, all in the object store below `prepared/KEY/` of the attempt."""

    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A checkpoint of the assignment that turned out to be damaged."""

    checkpoint: Id
    because: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A piece of the trainer's output, from its byte `first_byte` on."""

    first_byte: Count
    text: Annotated[str, MaxLen(LOG_CHUNK_BYTES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Metrics since the previous batch, by step. A batch that is sent twice counts once."""

    points: Annotated[tuple[Point, ...], MinLen(1), MaxLen(POINTS_MAX)]

    def __post_init__(self) -> None:
        if not is_ascending(self.points):
            raise ValueError("the steps of points must ascend")


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    outcome: Literal["succeeded"] = "succeeded"
    output: Annotated[Files, MinLen(1), MaxLen(RESULTS_MAX)]
    samples: Annotated[Files, MaxLen(10_000)] = ()
    steps: Annotated[int, Ge(0), Le(STEPS_MAX)] = 0  # that were taken, where it was asked to finish early


_SAYS = "What went wrong:\n\n" + markdown_list({kind: MEANING[kind].sentence for kind in get_args(ReportedKind)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    outcome: Literal["failed"] = "failed"
    kind: Annotated[ReportedKind, Described(_SAYS)]
    because: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The node was asked to stop; what it saved is committed."""

    outcome: Literal["released"] = "released"


Outcome = Succeeded | Failed | Released


class Server(Protocol):
    def join(self, request: Join) -> Joined: ...

    def leave(self) -> None:
        """Leave the pool: this node makes no more requests."""

    def notice(self, request: Notice) -> None:
        """Report that this machine is about to be taken away: the node gets no more jobs."""

    def claim(self, gauges: Gauges | None = None) -> Assignment | NoWork: ...

    def beat(self, hold: Hold, beat: Beat) -> Beaten | Stale: ...

    def uploads(self, hold: Hold, request: Uploads) -> Grants | Stale: ...

    def begin(self, hold: Hold, request: Beginnings) -> Grants | Stale: ...

    def downloads(self, hold: Hold, request: Downloads) -> Urls | Stale | Refused: ...

    def commit(self, hold: Hold, request: Commit) -> Committed | Stale | Refused: ...

    def show(self, hold: Hold, request: Show) -> Done | Stale | Refused: ...

    def reject(self, hold: Hold, request: Reject) -> Done | Stale: ...

    def keep_prepared(self, hold: Hold, request: Keep) -> Done | Stale | Refused: ...

    def log(self, hold: Hold, request: Log) -> Done | Stale: ...

    def metrics(self, hold: Hold, request: Points) -> Done | Stale: ...

    def finish(self, hold: Hold, outcome: Outcome) -> Done | Stale | Refused: ...
