"""Extend a job that has ended to more steps: make the new job's spec, and say what becomes of the learning rate. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gangline.core.runs.schedule import RateAt, rate_at, rates_on_the_way
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.sections.continuing import Continued
from gangline.core.words import counted

ExtensionSchedule = Literal["keep", "stretch"]
"""What becomes of the schedule: it keeps the length that it had, and then the rate stays; or it is computed for all steps."""
LITTLE = 0.01
"""Below this share of the job's learning rate, little more is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionWay:
    """The learning rate of an extended job: of the last step that the old one took, and of the new job's first, middle and last step.
    `schedule` is `constant` if there is nothing to choose; `because` says what it means."""

    schedule: Literal["constant", "keep", "stretch"]
    before: RateAt
    start: RateAt
    middle: RateAt
    end: RateAt
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionView:
    """What extending a job to `steps` steps in all would do. The new job continues from the checkpoint of `from_step`; the old one had
    reached `reached_step`, so the steps between are trained again. `schedule` is the way that was chosen, and `spec` the new job's.
    `notes` are sentences for people."""

    job: str
    name: str
    from_step: int
    reached_step: int
    steps: int
    steps_before: int
    schedule: Literal["constant", "keep", "stretch"]
    ways: tuple[ExtensionWay, ...]
    notes: tuple[str, ...]
    spec: dict[str, Any]


def extended(spec: TrainingSpec, steps: int, schedule: ExtensionSchedule, continues: Continued) -> TrainingSpec:
    """Return the spec of a job that continues this one to `steps` steps in all. It may contradict itself: a phase that becomes shorter than
    its warm-up, for example."""
    length = spec.schedule_steps or spec.steps
    kept = length if schedule == "keep" and may_choose(spec) and length != steps else None
    if isinstance(spec, LoraSpec):
        return replace(spec, steps=steps, schedule_steps=kept, continues=continues)
    return replace(spec, phases=_of_length(spec.phases, steps), schedule_steps=kept, continues=continues)


def remaining(spec: TrainingSpec) -> TrainingSpec:
    """Return what is left to train of a job that continues another one: its steps after that checkpoint. It is for estimates of time and
    cost alone."""
    if spec.continues is None:
        return spec
    before = spec.continues.step
    if isinstance(spec, LoraSpec):
        return replace(spec, steps=spec.steps - before, continues=None)
    left = list[TrainingPhase]()
    for phase in spec.phases:
        done = min(before, phase.steps)
        before -= done
        left += [replace(phase, steps=phase.steps - done)] if done < phase.steps else []
    return replace(spec, phases=tuple(left), continues=None)


def may_choose(spec: TrainingSpec) -> bool:
    """Return whether the learning rate depends on how many steps there are."""
    return spec.schedule != "constant"


def ways(spec: TrainingSpec, reached: int, made: dict[ExtensionSchedule, TrainingSpec]) -> tuple[ExtensionWay, ...]:
    """Return what becomes of the learning rate of `spec`, of which `reached` steps were taken, in each spec that was made of it."""
    if not may_choose(spec):
        (any_of_them, *_) = made.values()
        return (_way("constant", spec, reached, any_of_them, "the schedule is constant, whatever the number of steps"),)
    length = spec.schedule_steps or spec.steps
    because: dict[ExtensionSchedule, str] = {
        "keep": f"the schedule stays that of {counted(length, 'step')}; after them the rate stays what it was at the last",
        "stretch": "the schedule is computed for all steps: the rate jumps to where that has it",
    }
    return tuple(_way(schedule, spec, reached, new, because[schedule]) for schedule, new in made.items())


def _way(
    schedule: Literal["constant", "keep", "stretch"], old: TrainingSpec, reached: int, new: TrainingSpec, because: str
) -> ExtensionWay:
    start, middle, end = rates_on_the_way(new)
    return ExtensionWay(
        schedule=schedule, before=rate_at(old, reached), start=start, middle=middle, end=end, because=because
    )


def notes(spec: TrainingSpec, from_step: int, reached: int, chosen: ExtensionWay) -> tuple[str, ...]:
    """Return what to know before the job is submitted."""
    return (*_again(from_step, reached, chosen), *_little(spec, chosen), *_multiplied(spec))


def _again(from_step: int, reached: int, chosen: ExtensionWay) -> Sequence[str]:
    if from_step == reached:
        return ()
    first = from_step + 1
    steps = f"step {first} is" if first == reached else f"steps {first} to {reached} are"
    rate = "with the rates of the new schedule" if chosen.schedule == "stretch" else "with the same learning rates"
    return (f"the newest checkpoint is that of step {from_step}: {steps} trained again, {rate}",)


def _little(spec: TrainingSpec, chosen: ExtensionWay) -> Sequence[str]:
    most = max(each.learning_rate for each in (chosen.start, chosen.middle, chosen.end))
    if chosen.schedule != "keep" or most >= LITTLE * spec.learning_rate:
        return ()
    return (f"the learning rate stays at {most:.2g}, so little more is learned: stretch the schedule to learn more",)


def _multiplied(spec: TrainingSpec) -> Sequence[str]:
    if spec.optimizer != "prodigy":
        return ()
    return ("Prodigy multiplies these learning rates by the one that it has found, which continues, too",)


def _of_length(phases: tuple[TrainingPhase, ...], steps: int) -> tuple[TrainingPhase, ...]:
    """Return the phases of `steps` steps in all: the last one becomes longer, or those at the end are cut off."""
    found, left = list[TrainingPhase](), steps
    for phase in phases[:-1]:
        taken = min(phase.steps, left)
        left -= taken
        found += [replace(phase, steps=taken)] if taken else []
    return (*found, replace(phases[-1], steps=left)) if left else tuple(found)
