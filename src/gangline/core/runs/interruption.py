"""Check that an interrupted run gives the same result as an uninterrupted one: where to interrupt it, and how to report differences."""

from dataclasses import dataclass
from typing import Literal

InterruptionSignal = Literal["SIGTERM", "SIGKILL"]
WAYS: tuple[InterruptionSignal, ...] = ("SIGTERM", "SIGKILL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A signal to a run, not before step `after`. SIGTERM asks to save and stop; SIGKILL comes some steps after a complete checkpoint."""

    way: InterruptionSignal
    after: int


def interruptions(steps: int, times: int) -> tuple[Interruption, ...]:
    """Return `times` interruptions with each signal, at different steps, spread evenly over a run of `steps`.

    >>> [(one.way, one.after) for one in interruptions(100, 2)]
    [('SIGTERM', 20), ('SIGKILL', 40), ('SIGTERM', 60), ('SIGKILL', 80)]
    """
    count = times * len(WAYS)
    return tuple(
        Interruption(way=WAYS[place % len(WAYS)], after=max(1, steps * (place + 1) // (count + 1)))
        for place in range(count)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference between two results. `tensor` is empty if the whole file differs. `relative_l2` is ‖found − expected‖ ÷ ‖expected‖, None
    unless both are numbers of one shape."""

    file: str
    tensor: str = ""
    because: str
    relative_l2: float | None = None

    def __str__(self) -> str:
        distance = "" if self.relative_l2 is None else f", relative L2 {self.relative_l2:.3g}"
        return f"{self.tensor or self.file} ({self.because}{distance})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of two results by names, types, shapes and bytes of their tensors; or of their files, if there are no tensors.

    `besides` lists files without tensors that differ, in a result that has tensors. `relative_l2` is over all tensors together.
    """

    compared: int
    differences: tuple[Difference, ...] = ()
    besides: tuple[str, ...] = ()
    relative_l2: float = 0.0

    @property
    def equal(self) -> bool:
        return not self.differences


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheck:
    """The outcome of one interruption. `comparison` is None if the run could not be finished; then `because` says why."""

    interruption: Interruption
    interrupted_at: int = 0
    resumed_from: int = 0
    comparison: Comparison | None = None
    because: str = ""

    @property
    def equal(self) -> bool:
        return self.comparison is not None and self.comparison.equal


DIFFERENCES_TOLD = 3


def resume_sentence(outcome: ResumeCheck) -> str:
    found = outcome.comparison
    if found is None:
        return outcome.because
    if not found.equal:
        first = "; ".join(str(difference) for difference in found.differences[:DIFFERENCES_TOLD])
        count = f"{len(found.differences)} of {found.compared} differ, relative L2 {found.relative_l2:.3g}"
        return f"{count}; first: {first}"
    return (
        f"all tensors are equal; these files without tensors differ: {', '.join(found.besides)}"
        if found.besides
        else "equal"
    )
