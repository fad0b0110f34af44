"""Remember what this process did in the last seconds, so that concurrent requests do not all try the same job.

Losing this state costs work, but breaks no promise: the writes have guards that hold without it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock

from gangline.core.fleet.choice import History
from gangline.core.jobs.claim import ClaimCandidate
from gangline.core.jobs.story.held_out import HeldOutChange
from gangline.ports.pool import Offer

REAP_EVERY_MS = 1_000
"""Claims of this process end overdue attempts at most this often."""
TAKEN_MS = 2_000
"""A job that a claim of this process took is left out by its other claims for this long."""
RIVALS_MS = 10_000
"""Claims spread over equal jobs for this long after another server was faster."""

REPORTS_MAX = 1000
"""Reports of results whose figures are remembered."""
INTERRUPTIONS_MS = 60_000
"""How often offers are interrupted is loaded again after this long."""
OfferHistories = Mapping[tuple[str, str], History]


@dataclass(frozen=True, slots=True)
class Offers:
    """A provider's last answer: its offers, None if it did not answer, and `away` says why. `refused` has the ids of offers of which it had
    nothing left at the last request, each with the time until which it is not asked for again."""

    offers: tuple[Offer, ...] | None
    away: str = ""
    refused: Mapping[str, int] = field(default_factory=dict)


NOT_ASKED = Offers(None)


class Recent:
    """The memory of one process, shared by its threads."""

    def __init__(self) -> None:
        self.claims = 0
        """The number of claims that are running now."""
        self.driver_errors = Counter[str]()
        """How often the driver of each pool did not answer this process, or refused it."""
        self._lock = Lock()
        self._offers: dict[str, Offers] = {}
        self._looks: dict[str, int] = {}
        self._missing: dict[str, tuple[int, int]] = {}
        self._taken: dict[tuple[str, int], int] = {}
        self._reaped_ms = -REAP_EVERY_MS
        self._lost_ms = -RIVALS_MS
        self._interruptions: tuple[int, OfferHistories] | None = None
        self._reports: dict[str, HeldOutChange | None] = {}

    def report(self, job: str, load: Callable[[], HeldOutChange | None]) -> HeldOutChange | None:
        """Return what the report of a job's result says, which is loaded once."""
        with self._lock:
            if job in self._reports:
                return self._reports[job]
        found = load()
        with self._lock:
            self._reports[job] = found
            if len(self._reports) > REPORTS_MAX:
                del self._reports[next(iter(self._reports))]
        return found

    def interruptions(self, now_ms: int, load: Callable[[], OfferHistories]) -> OfferHistories:
        """Return how often runs on each pool's offers were interrupted, loaded within the last minute."""
        known = self._interruptions
        if known is None or not 0 <= now_ms - known[0] < INTERRUPTIONS_MS:
            known = self._interruptions = now_ms, load()
        return known[1]

    def is_time_to_reap(self, now_ms: int) -> bool:
        """Return whether this claim should end overdue attempts first. One of several concurrent claims does it for all."""
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
        """Return whether a claim of this process took the job in the version that was loaded: its row may not show that yet."""
        taken_ms = self._taken.get((job.id, job.version))
        return taken_ms is not None and now_ms - taken_ms < TAKEN_MS

    def take(self, job: ClaimCandidate, now_ms: int) -> bool:
        """Mark the job as taken. Return False if another claim was faster."""
        with self._lock:
            if self.is_taken(job, now_ms):
                return False
            self._taken = self._taken if len(self._taken) < 10_000 else self._younger(now_ms)
            self._taken[job.id, job.version] = now_ms
            return True

    def leave(self, job: ClaimCandidate) -> None:
        """Release the mark: the claim did not get the job, so another one may try."""
        with self._lock:
            self._taken.pop((job.id, job.version), None)

    def lose(self, job: ClaimCandidate, now_ms: int) -> None:
        """Release the mark and remember that another server seems to have taken the job."""
        self.leave(job)
        self._lost_ms = now_ms

    def has_rivals(self, now_ms: int) -> bool:
        """Return whether other servers assigned the same jobs within the last `RIVALS_MS`."""
        return 0 <= now_ms - self._lost_ms < RIVALS_MS

    def note_offers(self, pool: str, offers: Iterable[Offer] | None, away: str = "") -> None:
        """Record a provider's answer. `offers` is None if it did not answer, and `away` then says why."""
        self.driver_errors[pool] += offers is None
        before = self._offers.get(pool, NOT_ASKED)
        self._offers[pool] = replace(before, offers=None if offers is None else tuple(offers), away=away)

    def note_refusal(self, pool: str, offer: str, until_ms: int) -> None:
        """Record that the provider has nothing of an offer; it is not asked for that before `until_ms`."""
        before = self._offers.get(pool, NOT_ASKED)
        self._offers[pool] = replace(before, refused={**before.refused, offer: until_ms})

    def forget_refusal(self, pool: str, offer: str) -> None:
        """Forget that an offer was refused, as the provider is asked for it again."""
        before = self._offers.get(pool, NOT_ASKED)
        if offer in before.refused:
            rest = {name: until_ms for name, until_ms in before.refused.items() if name != offer}
            self._offers[pool] = replace(before, refused=rest)

    def offers_of(self, pool: str) -> Offers | None:
        """Return the last answer of the pool's provider; None if it was not asked yet."""
        return self._offers.get(pool)

    def is_refused(self, pool: str, offer: str, now_ms: int) -> bool:
        """Return whether the provider had nothing of this offer at the last request, a short time ago."""
        return self._offers.get(pool, NOT_ASKED).refused.get(offer, now_ms) > now_ms

    def is_new_look(self, pool: str, number: int) -> bool:
        """Return whether this look at the pool has not been acted on yet. Asking again answers False."""
        with self._lock:
            if self._looks.get(pool) == number:
                return False
            self._looks[pool] = number
            return True

    def count_lists_without(self, what: str, began_ms: int, now_ms: int, *, missing: bool) -> tuple[int, int]:
        """Return how many lists of a provider in a row were without something, and since when.

        Those count that were asked for after the first was seen. This one was asked for at `began_ms`.
        """
        if not missing:
            self._missing.pop(what, None)
            return 0, now_ms
        since_ms, lists = self._missing.get(what, (now_ms, 0))
        lists += began_ms >= since_ms
        self._missing[what] = since_ms, lists
        return lists, since_ms

    def _younger(self, now_ms: int) -> dict[tuple[str, int], int]:
        return {key: taken_ms for key, taken_ms in self._taken.items() if now_ms - taken_ms < TAKEN_MS}
