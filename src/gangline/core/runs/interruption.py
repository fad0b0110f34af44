"""Whether a run that was interrupted ends as one that was not: where to interrupt it, and what is said of the two results."""

from dataclasses import dataclass
from typing import Literal

InterruptionSignal = Literal["SIGTERM", "SIGKILL"]
WAYS: tuple[InterruptionSignal, ...] = ("SIGTERM", "SIGKILL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """`after`: not before this step. SIGTERM asks to save and stop; SIGKILL comes some steps after a checkpoint is complete."""

    way: InterruptionSignal
    after: int


def interruptions(steps: int, times: int) -> tuple[Interruption, ...]:
    """`times` of each way, all at steps of their own, spread evenly over a run of `steps`.

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
    """`tensor` is empty where it is the whole file. `relative_l2`: ‖found − expected‖ ÷ ‖expected‖, where both are numbers of a shape."""

    file: str
    tensor: str = ""
    because: str
    relative_l2: float | None = None

    def __str__(self) -> str:
        distance = "" if self.relative_l2 is None else f", relative L2 {self.relative_l2:.3g}"
        return f"{self.tensor or self.file} ({self.because}{distance})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of two results, by names, types, shapes and bytes of their tensors; where there are none, by the bytes of their files.

    `besides`: files without tensors that are not the same byte for byte, in a result that has tensors. `relative_l2` is over
    all tensors as one.
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
    """`comparison` is None where the run could not be brought to its end; then `because` says why."""

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
    return f"equal; not compared by tensors, and other bytes: {', '.join(found.besides)}" if found.besides else "equal"
