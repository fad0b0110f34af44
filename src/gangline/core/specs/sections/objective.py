"""What is minimised, by LoRAs and by U-Nets that are trained on data sets, and which of its settings contradict each other."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from gangline.core.parsing import Problem
from gangline.core.specs.fields import Prediction
from gangline.core.specs.settings import CLASS_IMAGES, RESULT, Setting, SettingGroup, section

TIMESTEPS_MAX = 1000
"""Of the models that are trained. A base with fewer is refused by its trainer where a setting asks for more."""


@section(SettingGroup.OBJECTIVE)
class ObjectiveSettings:
    prediction_type: Annotated[
        Literal["auto", Prediction],
        Setting(
            "Train the model to predict noise (epsilon) or velocity (v_prediction); auto takes what the base predicts.",
            CLASS_IMAGES | RESULT,
        ),
    ] = "auto"
    min_snr_gamma: Annotated[
        Annotated[float, Gt(0), Le(1000)] | None,
        Setting(
            "Weigh timesteps by their signal-to-noise ratio, capped at this (Hang et al. 2023; 5 is usual), to learn "
            "faster (default: equal weights).",
            RESULT,
            kohya=("min_snr_gamma",),
        ),
    ] = None
    noise_offset: Annotated[
        float,
        Ge(0),
        Le(1),
        Setting(
            "Shift the brightness of the noise at random by this much, e.g. 0.05, so that the model learns darker and "
            "lighter images.",
            RESULT,
        ),
    ] = 0.0
    zero_terminal_snr: Annotated[
        bool,
        Setting(
            "Make the last timestep pure noise (Lin et al. 2023). The base must predict velocity.",
            CLASS_IMAGES | RESULT,
            kohya=("zero_terminal_snr",),
        ),
    ] = False
    loss_type: Annotated[
        Literal["l2", "huber"],
        Setting(
            "Minimise the squared error (l2), or the pseudo-Huber loss (huber), which grows linearly where errors are large: "
            "images that do not fit the others then count less (Khrapov et al. 2024).",
            RESULT,
        ),
    ] = "l2"
    huber_c: Annotated[
        float,
        Gt(0),
        Le(1),
        Setting(
            "Let the Huber loss grow linearly from errors of about this size on. Smaller values are more robust.",
            RESULT,
        ),
    ] = 0.1
    huber_schedule: Annotated[
        Literal["constant", "exponential", "snr"],
        Setting(
            "Use huber_c at all timesteps (constant), or begin with 1 at the first one and approach huber_c as noise grows: "
            "exponentially in the timestep, or by the signal-to-noise ratio (snr).",
            RESULT,
        ),
    ] = "snr"
    min_timestep: Annotated[
        int,
        Ge(0),
        Le(TIMESTEPS_MAX - 1),
        Setting("Train at this timestep and later ones; 0 is the one with the least noise.", RESULT),
    ] = 0
    max_timestep: Annotated[
        Annotated[int, Ge(1), Le(TIMESTEPS_MAX)] | None,
        Setting("Train at timesteps below this one (default: all of the base, 1000).", RESULT),
    ] = None
    timestep_bias_strategy: Annotated[
        Literal["none", "earlier", "later", "range"],
        Setting(
            "Draw some timesteps more often, or less: the earlier ones, which have the least noise, the later ones, or a range.",
            RESULT,
        ),
    ] = "none"
    timestep_bias_multiplier: Annotated[
        float,
        Gt(0),
        Le(1e6),
        Setting("Draw each of those timesteps this many times as often as each of the others.", RESULT),
    ] = 1.0
    timestep_bias_portion: Annotated[
        float, Gt(0), Lt(1), Setting("Let the earlier or later timesteps be this share of all.", RESULT)
    ] = 0.25
    timestep_bias_begin: Annotated[
        int, Ge(0), Le(TIMESTEPS_MAX - 1), Setting("Let the range begin with this timestep.", RESULT)
    ] = 0
    timestep_bias_end: Annotated[
        Annotated[int, Ge(1), Le(TIMESTEPS_MAX)] | None,
        Setting("Let the range end before this timestep (default: after the last one).", RESULT),
    ] = None


NEEDED_BY_BIAS = {
    "timestep_bias_multiplier": ("a timestep_bias_strategy", ("earlier", "later", "range")),
    "timestep_bias_portion": ("timestep_bias_strategy earlier or later", ("earlier", "later")),
    "timestep_bias_begin": ("timestep_bias_strategy range", ("range",)),
    "timestep_bias_end": ("timestep_bias_strategy range", ("range",)),
}


def contradictions_of_objective(spec: ObjectiveSettings) -> dict[Problem, bool]:
    """Return what a parser refuses, with whether it is so."""
    return _of_loss(spec) | _of_range(spec) | _of_bias(spec)


def _of_loss(spec: ObjectiveSettings) -> dict[Problem, bool]:
    squared = spec.loss_type == "l2"
    return {
        Problem(name, "needs loss_type huber"): squared for name in ("huber_c", "huber_schedule") if _given(spec, name)
    }


def _of_range(spec: ObjectiveSettings) -> dict[Problem, bool]:
    last = spec.max_timestep or TIMESTEPS_MAX
    begin, end = spec.timestep_bias_begin, spec.timestep_bias_end or TIMESTEPS_MAX
    outside = f"is a range without a timestep of those that are trained, {spec.min_timestep} to {last - 1}"
    return {
        Problem("min_timestep", f"must be below max_timestep, {last}"): spec.min_timestep >= last,
        Problem("timestep_bias_begin", f"must be below timestep_bias_end, {end}"): begin >= end,
        Problem("timestep_bias_begin", outside): max(begin, spec.min_timestep) >= min(end, last)
        and spec.min_timestep < last
        and begin < end,
    }


def _of_bias(spec: ObjectiveSettings) -> dict[Problem, bool]:
    strategy, whole = spec.timestep_bias_strategy, not (spec.timestep_bias_begin or spec.timestep_bias_end)
    return {
        Problem("timestep_bias_strategy", "needs a timestep_bias_multiplier other than 1"): strategy != "none"
        and spec.timestep_bias_multiplier == 1,
        Problem("timestep_bias_strategy", "needs timestep_bias_begin or timestep_bias_end"): strategy == "range"
        and whole,
    } | {
        Problem(name, f"needs {needed}"): strategy not in strategies
        for name, (needed, strategies) in NEEDED_BY_BIAS.items()
        if _given(spec, name)
    }


def _given(spec: ObjectiveSettings, name: str) -> bool:
    return getattr(spec, name) != getattr(ObjectiveSettings, name)
