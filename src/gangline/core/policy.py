"""The operator's settings of every decision: `[policy]` of gangline.toml, of a scenario, and `--set policy.NAME`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

STRICT: dict[str, Any] = {"extra": "forbid", "allow_inf_nan": False}
"""How a section of settings is read: every field is known, and every number finite."""


class Exact:
    """Let pydantic take a value of the field's own type alone: a truth value is no number, nor is a text."""

    def __get_pydantic_core_schema__(self, of: Any, schema_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return schema_of(of) | {"strict": True}


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """Annotates a field with the variable of the environment and the option that set it besides the file. A secret comes from nowhere
    else and is never shown: files of settings are copied and committed. `read` makes a value of the variable's text; a text that is
    none stays one, so that it is reported with all other problems."""

    variable: str = ""
    option: str = ""
    secret: bool = False
    in_file: bool = True
    read: Callable[[str], Any] = str


SlowRule = Literal["mad", "two_sigma", "off"]
Above0 = Annotated[float, Gt(0), Le(1e9), Exact()]
From0 = Annotated[float, Ge(0), Le(1e9), Exact()]
PolicyShare = Annotated[float, Ge(0), Le(1), Exact()]
PolicyCount = Annotated[int, Ge(0), Le(1_000_000), Exact()]
Switch = Annotated[bool, Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Each name ends with its unit; money is US dollars. The sentence beside a field is its help and its line in
    docs/reference/settings.md."""

    __pydantic_config__: ClassVar[Any] = STRICT

    # Leases
    heartbeat_interval_s: Annotated[
        Above0, SettingOrigin(option="--heartbeat-interval-s"), "A node reports on its job this often."
    ] = 10.0
    lease_s: Annotated[
        Above0, SettingOrigin(option="--lease-s"), "A node loses its job after this long without a heartbeat."
    ] = 45.0
    tick_interval_s: Annotated[Above0, "The server checks for overdue leases and attempts this often."] = 5.0
    claim_interval_s: Annotated[Above0, "An idle node asks for work this often."] = 5.0
    node_silent_s: Annotated[Above0, "A node without a job is considered gone after this long without a request."] = (
        135.0
    )
    stop_grace_s: Annotated[
        From0, "A node that is asked to give a job back has this long to save a checkpoint before it loses the job."
    ] = 120.0

    # Checkpoints
    checkpoints_kept: Annotated[
        PolicyCount, "The server keeps this many checkpoints of each job and deletes older ones."
    ] = 2
    orphans_s: Annotated[
        Above0, "Files that an ended attempt left and that nothing refers to are deleted after this long."
    ] = 3_600.0
    uploads_s: Annotated[From0, "An unfinished multipart upload of a user is aborted after this long."] = 86_400.0
    prepared_s: Annotated[
        From0, "Latents, embeddings and class images are deleted when no job has used them for this long."
    ] = 30 * 86_400.0
    save_interval_s: Annotated[
        From0, "A node asks its trainer for the next checkpoint once one is uploaded, but no sooner than this."
    ] = 8.0
    save_interval_max_s: Annotated[
        Above0,
        (
            "A node uploads a checkpoint at least this often, however seldom interruptions are (half of `commit_s` if that is "
            "less); `save_interval_s` overrides it."
        ),
    ] = 1_800.0
    save_share_max: Annotated[
        Annotated[float, Gt(0), Le(1), Exact()],
        "Saving that a node asks for holds up training for at most this share of the time.",
    ] = 0.05
    save_gb_per_hour: Annotated[
        Above0, "Checkpoints that are saved by time upload at most this many GB an hour from a node (10^9 bytes)."
    ] = 50.0

    # What ended jobs keep
    checkpoints_succeeded_s: Annotated[
        From0, "Checkpoints of a job that succeeded are deleted this long after its end, except pinned ones."
    ] = 86_400.0
    checkpoints_ended_s: Annotated[
        From0,
        "Checkpoints of a job that failed or was canceled are deleted this long after its end, except pinned ones.",
    ] = 7 * 86_400.0
    logs_s: Annotated[From0, "The log of a job is deleted this long after its end."] = 90 * 86_400.0
    previews_s: Annotated[
        From0,
        (
            "Sample pictures of a job's steps are deleted this long after its end, or after the last of them was rendered. "
            "Pictures of its result are kept."
        ),
    ] = 90 * 86_400.0
    inputs_s: Annotated[
        From0,
        "Uploaded files (photos, data sets, bases without a name) are deleted when no job has used them for this long.",
    ] = 30 * 86_400.0

    # Retry
    retry_first_s: Annotated[
        From0, "A job waits this long after its first failed attempt; the wait doubles with each failure."
    ] = 10.0
    retry_max_s: Annotated[From0, "A job waits at most this long between two attempts."] = 900.0
    interruptions_blamed: Annotated[
        PolicyCount, "This many interruptions in a row, on as many machines, without a checkpoint count as one failure."
    ] = 3
    ban_yields_s: Annotated[
        From0, "A job whose failures ban it from every node may run on one of them again after this long."
    ] = 600.0
    samples_wait_s: Annotated[
        From0, "Sample pictures of a step are skipped if no node renders them within this time."
    ] = 3_600.0
    results_wait_s: Annotated[
        From0, "Sample pictures of a result are skipped if no node renders them within this time."
    ] = 7 * 86_400.0
    unmatched_s: Annotated[
        From0, "A job that no node can run, neither one that is here nor one that can be rented, fails after this long."
    ] = 86_400.0

    # Trust in machines
    bans: Annotated[Switch, "A machine that failed a job does not get that job again."] = True
    strikes_max: Annotated[From0, "A machine with this many strikes within `strike_window_s` is quarantined."] = 2.0
    strike_window_s: Annotated[From0, "Strikes older than this are forgotten."] = 21_600.0
    rest_first_s: Annotated[
        From0, "A machine pauses this long after a failure; the pause doubles with each failure in a row."
    ] = 15.0
    rest_max_s: Annotated[From0, "A machine pauses at most this long after failures."] = 600.0
    quarantine_s: Annotated[
        From0, "The first quarantine of a machine lasts this long; each further one lasts twice as long."
    ] = 3_600.0
    reputation_s: Annotated[
        From0,
        "What a machine lost longer ago is not held against it, and a quarantine from before does not lengthen the next.",
    ] = 30 * 86_400.0
    quarantined_share_max: Annotated[
        PolicyShare, "At most this share of a pool is quarantined within an hour; beyond it an operator must decide."
    ] = 0.1
    watch_interval_s: Annotated[Above0, "The server checks for stalled and slow attempts this often."] = 60.0
    stall_s: Annotated[From0, "An attempt that trains without a new step for this long is ended."] = 900.0
    start_s: Annotated[From0, "An attempt that has taken no step this long after its claim is ended."] = 7_200.0
    commit_s: Annotated[From0, "An attempt that trains this long without a stored checkpoint is ended."] = 3_600.0

    # Speed
    slow_rule: Annotated[
        SlowRule,
        (
            "Slow machines are found by median absolute deviation (`mad`), by two standard deviations (`two_sigma`), or "
            "not at all (`off`)."
        ),
    ] = "mad"
    slow_mads: Annotated[
        From0, "A machine is slow when its log pace is this many robust standard deviations above the median."
    ] = 3.0
    slow_ratio_min: Annotated[From0, "A slow machine is also at least this many times slower than the median."] = 1.3
    slow_peers_min: Annotated[
        PolicyCount, "At least this many machines must be measured before one of them is called slow."
    ] = 4
    move_s: Annotated[
        From0,
        "Moving a job to another node is assumed to cost this much time: start, download, and the steps that it repeats.",
    ] = 180.0
    seek_faster: Annotated[
        Switch, "A rented node is returned if a replacement is expected to save more than the move costs."
    ] = True
    seek_share_max: Annotated[PolicyShare, "At most this share of a pool is replaced for speed at the same time."] = 0.1
    moves_max: Annotated[
        PolicyCount, "A job is moved for speed at most this often; after that only if a move ends that job earlier."
    ] = 3

    # Queue
    base_wait_s: Annotated[
        From0, "A job may be overtaken for at most this long by one whose base the node already has."
    ] = 60.0
    usage_half_life_s: Annotated[Above0, "A project's past usage counts half as much after this long (fair share)."] = (
        86_400.0
    )
    entry_charge_usd: Annotated[
        From0, "Each claim adds this to a project's usage (not to its bill), so that a flood of tiny jobs counts."
    ] = 0.002
    reserve_s: Annotated[Above0, "A running attempt reserves budget for this much time at once."] = 900.0

    # Autoscaling
    scale_interval_s: Annotated[Above0, "The server compares the rented nodes with the demand this often."] = 15.0
    idle_s: Annotated[From0, "A rented node that has had no work for this long is returned."] = 60.0
    provider_answers_s: Annotated[
        Above0, "A call to a provider of nodes that takes longer than this is given up; the pool is shown as away."
    ] = 60.0
    starting_s: Annotated[From0, "A rented node that has not joined after this long is returned."] = 3_600.0
    start_pause_s: Annotated[
        From0,
        (
            "The server waits this long after a node failed to start; the wait doubles with each node in a row that fails "
            "its probe."
        ),
    ] = 30.0
    lacking_s: Annotated[
        From0, "A pool whose nodes all lack the libraries for a kind of job rents no nodes for that kind for this long."
    ] = 3_600.0

    # Prices besides those of the nodes
    storage_usd_per_gb_month: Annotated[
        From0 | None,
        (
            "Keeping checkpoints and results in the object store costs this much per GB and 30 days, 0 if it is free. "
            "Without a price, costs leave storage out."
        ),
    ] = None
    egress_usd_per_gb: Annotated[
        From0 | None,
        (
            "Downloads of nodes from the object store cost this much per GB, 0 if they are free. Without a price, costs "
            "and budgets leave downloads out."
        ),
    ] = None

    def __post_init__(self) -> None:
        broken = list(self._broken_rules())
        assert not broken, "; ".join(broken)

    def _broken_rules(self) -> Iterator[str]:
        if self.lease_s < 2 * self.heartbeat_interval_s:
            yield "lease_s is at least twice heartbeat_interval_s, so that one lost heartbeat loses no job"
        if self.node_silent_s < self.lease_s:
            yield "node_silent_s is at least lease_s: a node is considered gone after its leases end, not before"
        if self.checkpoints_kept < 2:
            yield "checkpoints_kept is at least 2: one of them may be damaged"
        if self.orphans_s <= self.url_s:
            yield "orphans_s is more than twice lease_s: an attempt may still upload until then"
        if self.inputs_s < self.uploads_s:
            yield "inputs_s is at least uploads_s: the first file of a job waits until the last one is uploaded"
        if self.reserve_s <= self.notice_s:
            yield (
                "reserve_s is more than heartbeat_interval_s + stop_grace_s + lease_s + 2 tick_interval_s: "
                "a reservation outlives the notice to stop"
            )

    @property
    def egress_micro_usd_per_byte(self) -> float:
        return (self.egress_usd_per_gb or 0) * 1e6 / 1e9

    @property
    def url_s(self) -> float:
        return 2 * self.lease_s

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    @property
    def outage_ms(self) -> int:
        """Ticks further apart than this were an outage. Who could not be heard for less has time to renew its lease."""
        return round(1000 * max(self.lease_s / 2, 2 * self.tick_interval_s))

    @property
    def turn_ms(self) -> int:
        """A server that has not ticked for so long leaves it to another."""
        return round(1000 * max(self.lease_s, 6 * self.tick_interval_s))

    @property
    def stop_margin_s(self) -> float:
        """From the notice that an attempt must stop until the server takes its lease away, at the latest."""
        return self.stop_grace_s + self.lease_s + 2 * self.tick_interval_s

    @property
    def notice_s(self) -> float:
        """From the moment that an attempt should stop until it has, at the latest."""
        return self.heartbeat_interval_s + self.stop_margin_s


def with_consequences(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings given, with those not given that a long lease would contradict at their defaults."""
    default = Policy()
    known = {name: given.get(name, getattr(default, name)) for name in Policy.__slots__}
    if not all(isinstance(known[name], int | float) for name in _CAUSES):
        return dict(given)  # the reader will refuse it
    notice_s = sum(known[name] for name in _CAUSES) + known["tick_interval_s"]
    least = {
        "node_silent_s": 3 * known["lease_s"],
        "orphans_s": 3 * known["lease_s"],
        "reserve_s": notice_s + known["heartbeat_interval_s"],
    }
    follow = {name: max(getattr(default, name), value) for name, value in least.items() if name not in given}
    return {name: value for name, value in follow.items() if value != getattr(default, name)} | dict(given)


_CAUSES = ("heartbeat_interval_s", "stop_grace_s", "lease_s", "tick_interval_s")
