"""What the API says of nodes and of their machines."""

from dataclasses import dataclass

from gangline.core.fleet.gauges import GaugesPoint, GaugesView


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJob:
    """A job that a node has. `phase` is what it does, or `silent` once two heartbeats of the node are missing."""

    job: str
    phase: str
    step: int
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node. `jobs` has those of the key's project; `job` and `phase` are of the first, for programs that know of one job a node. If
    `price_known` is false, `price_usd_per_hour` has no meaning. `gauges` are what it measured last, null if it has sent none."""

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
    job: str | None = None
    phase: str | None = None
    jobs: tuple[NodeJob, ...] = ()
    seen_ms: int
    gauges: GaugesView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoss:
    """An attempt that a machine lost, or that was moved away from it: when, in which pool, as which node, and why. `job` is null, and
    `because` empty, for who may not see the job."""

    at_ms: int
    pool: str
    node: str
    state: str
    because: str
    job: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRecord:
    """What a machine did since `since_ms`, in all `pools` and under all names: how many attempts ended there well, how many failed or were
    interrupted there, and how many were moved away from it for its speed or its memory. What failed by the job's own fault is in no record.
    `losses` are the newest that were lost or moved. `says` has it in words."""

    since_ms: int
    known_ms: int
    pools: tuple[str, ...]
    succeeded: int
    lost: int
    moved: int
    quarantines: int
    quarantined_ms: int | None
    losses: tuple[MachineLoss, ...]
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSummary:
    """A machine among others: of the `attempts` in its record since `since_ms`, in this number of `pools`, it `lost` some, and others were
    `moved` away from it, as `MachineRecord` has them. `last_ms` is when the last one ended, null if there is none."""

    id: str
    since_ms: int
    attempts: int
    lost: int
    moved: int
    pools: int
    last_ms: int | None
    quarantines: int
    quarantined_until_ms: int | None
    on_trial: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """The computer behind a node. `strikes` counts those since its last quarantine, `quarantines` those that are not forgotten; `because`
    says why it was judged last; `record` has what it did before, in all pools."""

    id: str
    strikes: float
    quarantines: int
    quarantined_until_ms: int | None
    rests_until_ms: int | None
    on_trial: bool
    because: str
    record: MachineRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDetail:
    """A node. `jobs` has those of the key's project. `machine` is null until it has joined.

    A rented node has a `rental`, the `offer` and the provider's `instance`, and the `place` that its provider shows, if it moves nodes.
    If `refused`, it never existed, as the provider had no such offer; `because` says so in its words. `gauges` are what it measured last,
    null if it has sent none or is gone; `gauges_history` has a point for each minute of the last hour, and before that for each ten
    minutes of the last day, by time. `slowed` says what holds its cards back: heat, too little power, or a job whose memory spilled into
    the machine's; empty if nothing is known to.
    """

    id: str
    name: str
    pool: str
    state: str
    because: str
    gpu: str
    gpu_memory_gb: float
    slots: int
    slots_taken: int
    trust: int
    price_usd_per_hour: float
    price_known: bool
    rental: str | None
    offer: str
    instance: str | None
    place: str
    since_ms: int
    joined_ms: int | None
    seen_ms: int
    problems: dict[str, str]
    capabilities: dict[str, str]
    jobs: tuple[NodeJob, ...]
    machine: MachineView | None
    refused: bool = False
    gauges: GaugesView | None = None
    gauges_history: tuple[GaugesPoint, ...] = ()
    slowed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLogs:
    """What a rented node printed last, as its provider has it."""

    node: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTime:
    """The time of a node that had one cause, in the words of the ledger."""

    cause: str
    seconds: float
    cost_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledTime:
    """An instance, and from when until when its provider bills it; `to_ms` is null while it runs."""

    instance: str
    from_ms: int
    to_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBill:
    """What all nodes of one rental have cost so far: `times` as the ledger has them, `billed` as the provider bills them. Once it is
    `settled`, nothing more comes. If `price_known` is false, no cost has a meaning."""

    rental: str
    price_usd_per_hour: float
    price_known: bool
    cost_usd: float
    times: tuple[NodeTime, ...]
    billed: tuple[BilledTime, ...]
    settled: bool
