"""Define what is asked of an experiment: which settings its jobs differ in, how many run at once, and by what they are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen

from gangline.core.display import Label
from gangline.core.jobs.lists.labels import BEST, LABELS_MAX, JobLabels
from gangline.core.parsing import Checked

RUNS_MAX = 1000
"""The most jobs of one experiment."""
FILES_MAX = 1_000_000
"""The most input files that the jobs of one experiment name together: a file of each job counts."""
SETTINGS_MAX = 20
"""The most settings that the jobs of one experiment differ in."""
SEED_MAX = 2**31 - 1
STRICT: Any = {"extra": "forbid"}

Measure = Literal["held_out_loss", "loss"]
"""By what jobs are compared: the least value is the best."""
MEASURES: Mapping[Measure, str] = {"held_out_loss": "held-out loss", "loss": "training loss"}
"""What people read: of each job the best held-out loss that was measured, and the mean of its last training losses."""


def why_no_setting_name(name: str) -> str:
    """Return why this cannot name a setting of a job, such as `rank` or `needs.slots`; empty if it can."""
    parts = name.split(".")
    if len(name) <= 100 and all(part.isascii() and part.isidentifier() for part in parts):
        return ""
    return "must be the name of a setting, such as learning_rate or needs.slots"


def why_no_labels(labels: Mapping[str, str]) -> str:
    """Return why these labels leave no room for `best`, which the best job gets; empty if they do."""
    if BEST in labels:
        return f"has the key {BEST}, which the best job of an experiment gets"
    return (
        ""
        if len(labels) < LABELS_MAX
        else f"has {len(labels)} labels, and a job of an experiment may have {LABELS_MAX - 1}"
    )


SettingName = Annotated[str, Checked(why_no_setting_name)]
Choices = Annotated[tuple[Any, ...], MaxLen(RUNS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSetting:
    """How a value is drawn: one of `choices`, or a number from `min` to `max`, with `log` evenly on a logarithmic scale. A setting that
    takes whole numbers gets whole ones."""

    __pydantic_config__: ClassVar[Any] = STRICT
    min: float | None = None
    max: float | None = None
    log: bool = False
    choices: Choices = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSettings:
    """Settings that are drawn `draws` times: with the same `seed`, the same values are drawn."""

    __pydantic_config__: ClassVar[Any] = STRICT
    draws: Annotated[int, Ge(1), Le(RUNS_MAX)]
    vary: Annotated[dict[SettingName, DrawnSetting], MaxLen(SETTINGS_MAX)]
    seed: Annotated[int, Ge(0), Le(SEED_MAX)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HalvingTerms:
    """Successive halving: of the jobs that reach `min_steps`, the best 1/`eta` continue to `eta` times as many steps, and so on."""

    __pydantic_config__: ClassVar[Any] = STRICT
    min_steps: Annotated[int, Ge(1), Le(10_000_000)]
    eta: Annotated[int, Ge(2), Le(100)] = 3


JobsAtOnce = Annotated[int, Ge(1), Le(RUNS_MAX)]
BudgetUsd = Annotated[float, Gt(0), Le(1e9)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentTerms:
    """How the jobs of an experiment are released and compared.

    At most `at_once` are in progress (None: no limit), and none is released that `budget_usd` would not pay for. `measure` is by default
    `held_out_loss` if every job measures it, while it trains or at its end, else `loss`.
    """

    at_once: JobsAtOnce | None = None
    budget_usd: BudgetUsd | None = None
    measure: Measure | None = None
    halving: HalvingTerms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentAsked(ExperimentTerms):
    """An experiment as it is submitted: the `spec` that its jobs have in common, as `POST /v1/jobs` takes it, and how they differ.

    At most one of three says how: `vary` has values for each setting, of which every combination is a job; `list` has the settings of each
    job; `random` draws them. With `seeds`, each combination is trained that many times, with the spec's seed and those after it.
    """

    spec: dict[str, Any]
    name: Label = ""
    vary: Annotated[dict[SettingName, Choices], MaxLen(SETTINGS_MAX)] = field(default_factory=dict)
    list: Annotated[tuple[Annotated[dict[SettingName, Any], MaxLen(SETTINGS_MAX)], ...], MaxLen(RUNS_MAX)] = ()
    random: RandomSettings | None = None
    seeds: Annotated[int, Ge(1), Le(RUNS_MAX)] = 1
    labels: Annotated[JobLabels, Checked(why_no_labels)] = field(default_factory=dict)
