"""How a spec names the checkpoint of another job that it continues. The server writes this when a job is extended."""

from typing import Annotated, Any, ClassVar

from gangline.core.display import Name
from gangline.core.files import Sha256
from gangline.core.specs.fields import StepCount
from gangline.core.specs.settings import RESULT, WATCH, Setting, SettingGroup, section


@section(SettingGroup.CONTINUES)
class Continued:
    """A checkpoint of another job. Its steps are part of the result, and `spec_hash` says how they were trained; whose it is decides
    nothing."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    job: Annotated[Name, Setting("Continue this job.", WATCH)]
    step: Annotated[StepCount, Setting("Continue from the checkpoint of this step.", RESULT)]
    spec_hash: Annotated[Sha256, Setting("This is the hash of the spec that the checkpoint was trained with.", RESULT)]


@section(SettingGroup.FILES)
class ContinueSettings:
    continues: Annotated[
        Continued | None,
        Setting(
            "Continue from a checkpoint of another job. `gangline jobs extend` sets this; it cannot be submitted.",
            RESULT,
        ),
    ] = None
