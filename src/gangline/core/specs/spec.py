"""Read specs of any kind from JSON, compare them, and write them for nodes."""

import json
from dataclasses import MISSING, asdict, fields
from functools import cache
from typing import Any

from gangline.core.parsing import InvalidSpec, Problem
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS, SUBMITTED, kind_of
from gangline.core.specs.lora import LoraSpec, refuse_idle_gpus
from gangline.core.specs.sample import SampleSpec, Spec, TrainingSpec
from gangline.core.specs.sections.continuing import Continued


def parse_spec(value: object) -> Spec:
    """A spec from JSON values that a user has submitted, now or before. Raises `InvalidSpec` with every problem that it has."""
    kind = value.get("kind", DEFAULT_KIND) if isinstance(value, dict) else DEFAULT_KIND
    known = next((each for each in SUBMITTED if each.name == kind), KINDS[DEFAULT_KIND])
    return known.parse(value)


def parse_submitted(value: object) -> Spec:
    """A spec of a new job. Raises `InvalidSpec`, also for what older versions took, and for what the server alone may set."""
    spec = parse_spec(value)
    if continued(spec):
        raise InvalidSpec(
            (Problem("continues", "names a checkpoint of another job, which only the server does: leave it out"),),
            hint="`gangline jobs extend` continues a job that has ended",
        )
    if isinstance(spec, LoraSpec):
        refuse_idle_gpus(spec)
    return spec


def continued(spec: Spec) -> Continued | None:
    """Return the checkpoint of another job that this one continues, if it does."""
    return spec.continues if isinstance(spec, TrainingSpec) else None


def parse_task(value: dict[str, Any]) -> Spec | SampleSpec:
    """What a node is given to do: a spec that was submitted, or one that the server made. Raises `InvalidSpec`."""
    known = KINDS.get(value["kind"])
    return known.parse(value) if known else parse_spec(value)


def spec_hash(spec: Spec | SampleSpec) -> str:
    """Equal for jobs that ask for the same result: settings of saving, retrying and placing are left out."""
    return kind_of(spec).hash(spec)


def workload(spec: Spec | SampleSpec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step. Not what the pictures show, nor how long."""
    return kind_of(spec).workload(spec)


def trained(task: dict[str, Any]) -> dict[str, Any]:
    """The JSON of the training that a task is, or shows."""
    return task["of"] if KINDS[task["kind"]].renders else task


def without_defaults(task: dict[str, Any]) -> dict[str, Any]:
    """A spec's JSON without the settings that are as they are by default: so a node that is older than a setting understands every
    job that does not use it. A default, once released, stays."""
    if KINDS[task["kind"]].renders:
        return task | {"of": without_defaults(task["of"])}
    defaults = _defaults(task["kind"]) | {"kind": MISSING}
    return {
        name: _differing(value, defaults.get(name))
        for name, value in task.items()
        if value != defaults.get(name, MISSING)
    }


def _differing(value: Any, default: Any) -> Any:
    """Return a value, of settings below one name only those that are not as by default."""
    if not isinstance(value, dict) or not isinstance(default, dict):
        return value
    return {name: each for name, each in value.items() if each != default.get(name, MISSING)}


def with_defaults(task: dict[str, Any]) -> dict[str, Any]:
    """What `without_defaults` left out, as this version has it; what this version does not know stays."""
    if KINDS[task["kind"]].renders:
        return task | {"of": with_defaults(task["of"])}
    defaults = _defaults(task["kind"])
    inner = {name: defaults[name] | value for name, value in task.items() if isinstance(defaults.get(name), dict)}
    return defaults | task | inner


@cache
def _defaults(kind: str) -> dict[str, Any]:
    """As JSON has them."""
    found = {field.name: field.default for field in fields(KINDS[kind].spec) if field.default is not MISSING}
    return json.loads(json.dumps(found, default=asdict))
