"""Decide how often a run saves a checkpoint that is uploaded: Daly's rule, within the bounds of the job's owner and of the operator.

What a restart takes is no part of the decision: it costs the same, however old the checkpoint is (see gangline.core.runs.daly).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from gangline.core.policy import Policy
from gangline.core.runs.daly import HOUR_S, best_interval_s
from gangline.core.words import size_words

GB = 1e9
SaveBound = Literal[
    "", "save_interval_s", "save_share_max", "checkpoint_every_s", "save_gb_per_hour", "save_interval_max_s", "upload"
]
"""What decided the interval where it is not the one of Daly's rule: a setting of the policy, the job's `checkpoint_every_s`, or how long an
upload takes."""
TYPICAL_HELD_UP_S = 0.05
"""How long a save of a LoRA stops its training, where it was not measured: 0.03 s on a GPU."""
MUCH = 1.5
"""An interval has changed much if it is this many times longer or shorter."""
NEVER_S = 1e9
"""The interval of what does not come by time."""
SaveSeconds = Annotated[float, Ge(0), Le(NEVER_S)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingTerms:
    """What a node decides by: the mean time between interruptions of its offer, `between_s`; the job's `every_s` and `every_steps`, at
    which its trainer saves by itself; and settings of the policy.

    `interval_max_s` overrides the other settings: a node that commits nothing for longer is taken for one that makes no progress.
    """

    between_s: float
    every_s: float = NEVER_S
    every_steps: tuple[int, ...] = ()
    interval_s: float
    interval_max_s: float
    share_max: float
    gb_per_hour: float

    def share(self, part: float) -> "SavingTerms":
        """Return the terms of a run that has this part of its node."""
        return replace(self, gb_per_hour=self.gb_per_hour * part)

    def upload_pause_s(self, size: int) -> float:
        """Return the least time between the uploads of two checkpoints of `size` bytes."""
        return min(self.granted_s(size), self.interval_max_s)

    def granted_s(self, size: int) -> float:
        """Return the time for which `gb_per_hour` grants an upload of `size` bytes."""
        return size / GB / self.gb_per_hour * HOUR_S

    def is_by_steps(self, step: int) -> bool:
        """Return whether the job's owner asks for a checkpoint of this very step, perhaps for its pictures."""
        return any(step % every == 0 for every in self.every_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveCost:
    """What the last checkpoint took: training was held up for `held_up_s`, and its `bytes` were safe `upload_s` after it was asked for."""

    held_up_s: float = 0.0
    upload_s: float = 0.0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """How often a run saves, what decided that, and what it was decided from."""

    every_s: SaveSeconds
    bound: SaveBound
    between_s: Annotated[float, Gt(0), Le(1e12)]
    held_up_s: SaveSeconds
    upload_s: SaveSeconds
    bytes: Annotated[int, Ge(0), Le(10**15)]

    @property
    def sentence(self) -> str:
        """Return how often the run saves, and why."""
        uploads = f" and uploads {size_words(self.bytes)} in {_span(self.upload_s)}" if self.bytes else ""
        because = f"an interruption is expected every {_span(self.between_s)}, and a save holds up training for {_span(self.held_up_s)}"
        return f"saves every {_span(self.every_s)}: {because}{uploads}{BOUND_BY[self.bound]}"


BOUND_BY: Mapping[SaveBound, str] = MappingProxyType(
    {
        "": "",
        "save_interval_s": "; no sooner, by the policy's save_interval_s",
        "save_share_max": "; no sooner, by the policy's save_share_max",
        "checkpoint_every_s": "; no later, by the job's checkpoint_every_s",
        "save_gb_per_hour": "; no sooner, by the policy's save_gb_per_hour",
        "save_interval_max_s": "; no later, by the policy's save_interval_max_s",
        "upload": "; no sooner, as the checkpoint before is still being uploaded",
    }
)


def saving_terms(
    policy: Policy, between_s: float, *, every_s: float = NEVER_S, every_steps: Iterable[int | None] = ()
) -> SavingTerms:
    """Return the terms of a run on a node of an offer that is interrupted every `between_s`, on average.

    The longest interval is half of the time after which an attempt without a checkpoint is ended (`commit_s`), or less.
    """
    most_s = min(policy.save_interval_max_s, policy.commit_s / 2)
    return SavingTerms(
        between_s=between_s,
        every_s=every_s,
        every_steps=tuple(every for every in every_steps if every),
        interval_s=policy.save_interval_s,
        interval_max_s=max(policy.save_interval_s, most_s),
        share_max=policy.save_share_max,
        gb_per_hour=policy.save_gb_per_hour,
    )


def choose_saving(terms: SavingTerms, cost: SaveCost) -> Saving:
    """Return how often to save.

    The owner's wish overrides the share of time that the policy grants, as it is the owner's time; what is uploaded is bound by the
    policy in any case.
    """
    chosen = _Bounded(best_interval_s(terms.between_s, cost.held_up_s))
    chosen.no_sooner(terms.interval_s, "save_interval_s")
    chosen.no_sooner(cost.held_up_s / terms.share_max, "save_share_max")
    chosen.no_later(terms.every_s, "checkpoint_every_s")
    chosen.no_sooner(terms.granted_s(cost.bytes), "save_gb_per_hour")
    chosen.no_later(terms.interval_max_s, "save_interval_max_s")
    chosen.no_sooner(cost.upload_s, "upload")
    return Saving(
        every_s=chosen.seconds,
        bound=chosen.bound,
        between_s=terms.between_s,
        held_up_s=cost.held_up_s,
        upload_s=cost.upload_s,
        bytes=cost.bytes,
    )


def has_changed_much(before: Saving | None, now: Saving) -> bool:
    """Return whether people should hear of the interval again."""
    return before is None or not before.every_s / MUCH < now.every_s < before.every_s * MUCH


@dataclass(slots=True)
class _Bounded:
    """An interval, and the last bound that changed it."""

    seconds: float
    bound: SaveBound = ""

    def no_sooner(self, seconds: float, bound: SaveBound) -> None:
        if seconds > self.seconds:
            self.seconds, self.bound = seconds, bound

    def no_later(self, seconds: float, bound: SaveBound) -> None:
        if seconds < self.seconds:
            self.seconds, self.bound = seconds, bound


def _span(seconds: float) -> str:
    """Return a time in the unit that suits it: 0.03 s, 42 s, 14 min, 3.1 h."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:.1f} h"
