"""Decide by what the jobs of an experiment are compared, given what each of them measures."""

from collections.abc import Sequence

from gangline.core.errors import BadInput
from gangline.core.experiments.terms import Measure
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.spec import Spec


def held_out_interval(spec: Spec) -> int | None:
    """Return how many steps are between two held-out losses of a job; None if it measures none on its way."""
    return getattr(spec, "held_out_every_steps", None) if _measures_held_out_loss(spec) else None


def chosen_measure(asked: Measure | None, specs: Sequence[Spec]) -> Measure:
    """Return the measure that is asked for, or by default the held-out loss if every job measures it, at its end at least.

    Raise `BadInput` for a held-out loss that no job measures: after all its steps there would be nothing to compare.
    """
    if asked is None:
        return "held_out_loss" if all(_measures_held_out_loss(spec) for spec in specs) else "loss"
    if asked == "held_out_loss" and not any(
        isinstance(spec, CommandSpec) or _measures_held_out_loss(spec) for spec in specs
    ):
        raise BadInput("measure: no job would measure a held-out loss", hint="hold photos out, or measure by loss")
    return asked


def _measures_held_out_loss(spec: Spec) -> bool:
    """Return whether a job measures the held-out loss. A LoRA reports it as a metric every `held_out_every_steps`, and without that has it
    in the report of its result. From scratch it is a metric at the first and the last step at least; of a VAE it is another one, of which
    more is better."""
    if isinstance(spec, LoraSpec):
        return bool(spec.held_out)
    return isinstance(spec, ScratchSpec) and bool(spec.held_out) and spec.part != "vae"
