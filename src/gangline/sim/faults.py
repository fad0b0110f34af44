"""Keep the state of the faults, and count them. Rates are probabilities per message or transfer; other faults strike at set times."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from gangline.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """The probabilities of faults, from 0 to 1."""

    request_lost: float = 0.0
    answer_lost: float = 0.0
    delayed: float = 0.0
    doubled: float = 0.0
    upload_cut: float = 0.0
    start_times_out: float = 0.0
    no_capacity: float = 0.0
    api_killed: float = 0.0
    meanwhile: float = 0.0
    cancel_races: float = 0.0


@dataclass(slots=True)
class Faults:
    """The state of everything that can fail. `struck` counts each kind of fault; `over()` ends all faults."""

    world: World
    rates: FaultRates = field(default_factory=FaultRates)
    struck: Counter[str] = field(default_factory=Counter)
    store_down_until_ms: int = 0
    store_slow_until_ms: int = 0
    stale_until_ms: int = 0
    no_capacity_until_ms: int = 0
    provider_down_until_ms: int = 0

    def over(self) -> None:
        self.rates = FaultRates()
        self.store_down_until_ms = self.store_slow_until_ms = self.stale_until_ms = self.no_capacity_until_ms = 0
        self.provider_down_until_ms = 0

    def happens(self, rng: Random, kind: str, chance: float) -> bool:
        if chance <= 0 or rng.random() >= chance:
            return False
        self.struck[kind] += 1
        return True

    def is_store_down(self) -> bool:
        down = self.store_down_until_ms > self.world.now_ms
        if down:
            self.struck["store failing"] += 1
        return down

    def is_provider_down(self) -> bool:
        down = self.provider_down_until_ms > self.world.now_ms
        if down:
            self.struck["provider away"] += 1
        return down

    def store_slowness(self) -> float:
        if self.store_slow_until_ms <= self.world.now_ms:
            return 1.0
        self.struck["store slow"] += 1
        return 10.0

    def is_listing_stale(self, made_ms: int) -> bool:
        """Return whether an object that was made at `made_ms` is not visible yet: for 4 s, while the store is eventually consistent."""
        stale = self.stale_until_ms > self.world.now_ms and self.world.now_ms - made_ms < 4000
        if stale:
            self.struck["listing stale"] += 1
        return stale

    def cuts_upload(self, rng: Random) -> bool:
        return self.happens(rng, "upload cut", self.rates.upload_cut)
