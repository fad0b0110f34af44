"""The operator's knobs, passed to every decision."""

from dataclasses import dataclass
from typing import Literal

SlowRule = Literal["mad", "two_sigma", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Bounds and intervals in the unit that each name ends with; money in US dollars."""

    # Leases
    heartbeat_interval_s: float = 10.0
    lease_s: float = 45.0
    tick_interval_s: float = 5.0
    claim_interval_s: float = 5.0
    node_silent_s: float = 135.0  # without a word for so long, a node is gone
    stop_grace_s: float = 120.0  # a node that was asked to hand a job back does so within this, or loses it

    # Checkpoints
    checkpoints_kept: int = 2
    orphans_s: float = 3_600.0  # so long after an attempt's end, what it left and nobody refers to goes
    uploads_s: float = 86_400.0  # an upload in parts that a user began is given up after this
    prepared_s: float = 30 * 86_400.0  # latents, embeddings and class images that no job used for so long go
    save_interval_s: float = 8.0  # a node asks its trainer for a checkpoint when it has uploaded one, but no sooner

    # Retry
    retry_first_s: float = 10.0  # doubles with each failed attempt
    retry_max_s: float = 900.0
    interruptions_blamed: int = 3  # so many in a row on as many machines without a checkpoint are one failure
    ban_yields_s: float = 600.0  # a job that was banned from every node here may go back to one after this
    samples_wait_s: float = 3_600.0  # pictures of a step that no node came for are given up after this
    results_wait_s: float = 7 * 86_400.0  # those of a result after this
    unmatched_s: float = 86_400.0  # a job that nothing here and nothing for rent can run fails after this

    # Whom to trust
    bans: bool = True  # a machine that failed a job does not get it again
    strikes_max: float = 2.0
    strike_window_s: float = 21_600.0
    rest_first_s: float = 15.0  # a machine that failed pauses; doubles with each failure in a row
    rest_max_s: float = 600.0
    quarantine_s: float = 3_600.0  # doubles with each time
    quarantined_share_max: float = 0.1  # of a pool, in an hour; above it an operator must look
    watch_interval_s: float = 60.0
    stall_s: float = 900.0  # training without a step
    start_s: float = 7_200.0  # from the claim to the first step
    commit_s: float = 3_600.0  # training without a checkpoint in the object store

    # Speed
    slow_rule: SlowRule = "mad"
    slow_mads: float = 3.0  # robust standard deviations above the median, on the log, make a machine slow
    slow_ratio_min: float = 1.3  # and so many times the median
    slow_peers_min: int = 4
    move_s: float = 180.0  # what moving a job costs: start, download, the steps done again
    seek_faster: bool = True  # give a sound machine back where another is expected to save more than moving costs
    seek_share_max: float = 0.1  # of a pool, at a time
    moves_max: int = 3  # of a job for speed; after so many only if it will be done earlier itself

    # Queue
    base_wait_s: float = 60.0  # so long the next job may be passed over for one whose base the node holds
    usage_half_life_s: float = 86_400.0
    entry_charge_usd: float = 0.002  # what each claim adds to a project's usage, so that a flood of tiny jobs counts
    reserve_s: float = 900.0  # a budget is reserved for so much of an attempt at a time

    # Autoscaling
    scale_interval_s: float = 15.0
    idle_s: float = 60.0  # a node idle for so long is given back
    starting_s: float = 3_600.0  # a node that has not joined after this is given up
    start_pause_s: float = (
        30.0  # after a start that came to nothing; doubles with each node in a row that fails its probe
    )
    lacking_s: float = (
        3_600.0  # a pool whose nodes all lack the libraries for a kind of job rents none for that kind for so long
    )

    # Prices besides those of the nodes
    storage_usd_per_gb_month: float = 0.0
    egress_usd_per_gb: float = 0.0

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_interval_s < self.lease_s, "a lease outlives a heartbeat"
        assert self.node_silent_s >= self.lease_s, "a node is given up after its leases, not before"
        assert self.checkpoints_kept >= 2, "one may turn out damaged"
        assert self.orphans_s > self.url_s, "what an attempt may still write is not swept"
        notice_s = self.heartbeat_interval_s + self.stop_margin_s
        assert self.reserve_s > notice_s, "a reservation outlives the notice to stop"

    @property
    def egress_micro_usd_per_byte(self) -> float:
        return self.egress_usd_per_gb * 1e6 / 1e9

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
