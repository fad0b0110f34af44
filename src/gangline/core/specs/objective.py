"""What is minimised, by LoRAs and by U-Nets that are trained on data sets, and which of its settings contradict each other."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from gangline.core.parsing import Problem
from gangline.core.specs.fields import Prediction
from gangline.core.specs.settings import CLASS_IMAGES, RESULT, Setting, SettingGroup, section


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


def contradictions_of_objective(spec: ObjectiveSettings) -> dict[Problem, bool]:
    """Return what a parser refuses, with whether it is so."""
    squared = spec.loss_type == "l2"
    return {
        Problem("huber_c", "needs loss_type huber"): squared and spec.huber_c != ObjectiveSettings.huber_c,
        Problem("huber_schedule", "needs loss_type huber"): squared
        and spec.huber_schedule != ObjectiveSettings.huber_schedule,
    }
