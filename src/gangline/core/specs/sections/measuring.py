"""What is measured during training of samples that are never trained on."""

from typing import Annotated

from annotated_types import Ge, Le

from gangline.core.specs.fields import StepCount
from gangline.core.specs.settings import RESULT, WATCH, Setting, SettingGroup, section


@section(SettingGroup.SAMPLES)
class MeasureSettings:
    """What is measured on the way of samples that are never trained on."""

    held_out_every_steps: Annotated[
        StepCount | None,
        Setting(
            "Measure the held-out loss also during training, at this interval in steps, and keep the best step's checkpoint "
            "(default: never).",
            WATCH,
        ),
    ] = None
    stop_when_worse: Annotated[
        Annotated[int, Ge(1), Le(1000)] | None,
        Setting(
            "End the job when the held-out loss was not better than its best value this many measurements in a row. The result has "
            "the weights of the best step, also if no such row comes.",
            RESULT,
        ),
    ] = None
