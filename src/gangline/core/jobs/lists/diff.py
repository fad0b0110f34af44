"""Compare two jobs: the settings and inputs in which they differ, and what came of each, side by side. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gangline.core.job import JobState
from gangline.core.money.cost import CostPart
from gangline.core.specs.changes import SettingChange, model_name, setting_changes
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS
from gangline.core.specs.settings import SettingGroup, settings_of

InputHas = Literal["only the first", "only the second", "other content"]
MODELS = ("base", "vae", "init_lora")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """What came of a job so far. `held_out_loss` is the last that was measured, over all held-out photos, and `best_held_out_loss` the
    least; `loss` is the mean of the last training losses, as jobs of an experiment are compared by it. `seconds` are those of all attempts,
    and `gpus` and `numerics` (what decides the last bits of a result) those of their nodes, each once."""

    id: str
    name: str
    state: JobState
    because: str
    step: int
    steps: int
    held_out_loss: float | None
    best_held_out_loss: float | None
    loss: float | None
    seconds: float
    cost_usd: float
    cost_lacks: tuple[CostPart, ...] = ()
    gpus: tuple[str, ...] = ()
    numerics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChange:
    """A file of a job's inputs that only one of the two has, or that has other content. `role` is the field of the spec."""

    role: str
    path: str
    has: InputHas


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsDiff:
    """Two jobs. `models` are the base, the VAE and the LoRA that training starts from, by the names that people know them by.
    `same_numerics` is None until a node worked on both."""

    first: JobOutcome
    second: JobOutcome
    settings: tuple[SettingChange, ...]
    models: tuple[SettingChange, ...]
    inputs: tuple[InputChange, ...]
    same_numerics: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedJob:
    """A job with its spec as JSON."""

    outcome: JobOutcome
    spec: Mapping[str, Any] = field(default_factory=dict)


def compare(first: ComparedJob, second: ComparedJob) -> JobsDiff:
    """Return what differs between two jobs."""
    one, other = first.outcome, second.outcome
    known = bool(one.numerics and other.numerics)
    return JobsDiff(
        first=one,
        second=other,
        settings=setting_changes(first.spec, second.spec),
        models=tuple(_models(first.spec, second.spec)),
        inputs=tuple(_inputs(first.spec, second.spec)),
        same_numerics=len({*one.numerics, *other.numerics}) == 1 if known else None,
    )


def _models(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[SettingChange]:
    for role in MODELS:
        before, after = (_name(spec.get(role)) for spec in (first, second))
        if before != after:
            yield SettingChange(setting=role, before=before, after=after)


def _name(model: Any) -> str | None:
    """Return the name of a model, or of a single file."""
    return model_name({"files": [model]} if isinstance(model, dict) and "sha256" in model else model) or None


def _inputs(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[InputChange]:
    roles = dict.fromkeys(role for spec in (first, second) for role in _roles(spec))
    for role in roles:
        before, after = (_files(spec.get(role)) for spec in (first, second))
        for path in sorted({*before, *after}):
            if before.get(path) != after.get(path):
                yield InputChange(role=role, path=path, has=_has(path, before, after))


def _roles(spec: Mapping[str, Any]) -> Iterator[str]:
    known = settings_of(KINDS[spec.get("kind", DEFAULT_KIND)].spec)
    yield from (
        name
        for name, setting in known.items()
        if setting.group is SettingGroup.FILES and name not in (*MODELS, "continues", "kind")
    )


def _files(value: Any) -> dict[str, Any]:
    """Return the content of each file of an input by its path; of photos that are still to be fetched, their addresses."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return {str(value): value} if value else {}
    return {
        str(each.get("path", each)) if isinstance(each, dict) else str(each): each.get("sha256", each)
        if isinstance(each, dict)
        else each
        for each in value
    }


def _has(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> InputHas:
    if path not in after:
        return "only the first"
    return "other content" if path in before else "only the second"
