"""What this process does just now or did a moment ago, so that requests at the same time do not all try the same.

Losing it costs work, never a promise: the guards of the writes hold without it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from gangline.core.jobs.claim import ClaimCandidate
from gangline.ports.pool import Offer

REAP_EVERY_MS = 1_000
TAKEN_MS = 2_000
RIVALS_MS = 10_000


@dataclass(frozen=True, slots=True)
class Offers:
    """What a pool's provider offered when it was last asked, and the ids of what it had none left of; None: it did not answer."""

    offers: tuple[Offer, ...] | None
    exhausted: frozenset[str] = frozenset()


class Recent:
    """Safe in threads."""

    def __init__(self) -> None:
        self.claims = 0
        """Under way."""
        self._lock = Lock()
        self._offers: dict[str, Offers] = {}
        self._taken: dict[tuple[str, int], int] = {}
        self._reaped_ms = -REAP_EVERY_MS
        self._lost_ms = -RIVALS_MS

    def is_time_to_reap(self, now_ms: int) -> bool:
        """Whether a claim is to end what is overdue first: one does it for those at the same time."""
        with self._lock:
            if 0 <= now_ms - self._reaped_ms < REAP_EVERY_MS:
                return False
            self._reaped_ms = now_ms
            return True

    @contextmanager
    def claiming(self) -> Iterator[None]:
        with self._lock:
            self.claims += 1
        try:
            yield
        finally:
            with self._lock:
                self.claims -= 1

    def is_taken(self, job: ClaimCandidate, now_ms: int) -> bool:
        """By a claim of this process, as it was seen: its row may not say so yet."""
        taken_ms = self._taken.get((job.id, job.version))
        return taken_ms is not None and now_ms - taken_ms < TAKEN_MS

    def take(self, job: ClaimCandidate, now_ms: int) -> bool:
        """False where another claim was faster."""
        with self._lock:
            if self.is_taken(job, now_ms):
                return False
            self._taken = self._taken if len(self._taken) < 10_000 else self._younger(now_ms)
            self._taken[job.id, job.version] = now_ms
            return True

    def leave(self, job: ClaimCandidate) -> None:
        """It was not to be had by who took it; somebody else may."""
        with self._lock:
            self._taken.pop((job.id, job.version), None)

    def lose(self, job: ClaimCandidate, now_ms: int) -> None:
        """Another server was faster, it seems."""
        self.leave(job)
        self._lost_ms = now_ms

    def has_rivals(self, now_ms: int) -> bool:
        """Whether other servers are giving out the same jobs."""
        return 0 <= now_ms - self._lost_ms < RIVALS_MS

    def note_offers(self, pool: str, offers: Iterable[Offer] | None, exhausted: Iterable[str] | None = ()) -> None:
        """Without `offers`: the provider is away. Without `exhausted`: nothing was asked for, so what was known of that stays."""
        before = self._offers.get(pool)
        known = before.exhausted if before and exhausted is None else frozenset(exhausted or ())
        self._offers[pool] = Offers(None if offers is None else tuple(offers), known)

    def offers_of(self, pool: str) -> Offers | None:
        """None where its provider has not been asked yet."""
        return self._offers.get(pool)

    def _younger(self, now_ms: int) -> dict[tuple[str, int], int]:
        return {key: taken_ms for key, taken_ms in self._taken.items() if now_ms - taken_ms < TAKEN_MS}
