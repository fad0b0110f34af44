"""The operator's knobs, passed to every decision."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`node_silent_s` without a word make a node gone; a signed URL lives `url_s`."""

    heartbeat_interval_s: float = 10.0
    lease_s: float = 45.0
    claim_interval_s: float = 5.0
    node_silent_s: float = 135.0
    checkpoints_kept: int = 2

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_interval_s < self.lease_s, "a lease outlives a heartbeat"
        assert self.node_silent_s >= self.lease_s, "a node is given up after its leases, not before"
        assert self.checkpoints_kept >= 2, "one may turn out damaged"

    @property
    def url_s(self) -> float:
        return 2 * self.lease_s

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)
