"""What a user asks for, of any kind. A spec is complete: with its inputs it gives the result, whoever runs it and however often it is
interrupted."""

import json
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal

from gangline.core.files import File
from gangline.core.lora_spec import LoraSpec, lora_hash, lora_workload, parse_lora
from gangline.core.parsing import parse_as
from gangline.core.scratch import ScratchSpec, parse_scratch, scratch_hash, scratch_workload

Spec = LoraSpec | ScratchSpec
KINDS: dict[str, type] = {"lora": LoraSpec, "scratch": ScratchSpec}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """Pictures of what a training job has learned: `of` its spec, after `step` steps. Nobody submits it: the server makes it when
    `checkpoint` of `job` is committed, whose weights its run has in `inputs/checkpoint`. Without one it shows the job's result, in
    `inputs/result`, beside what the base alone makes of the same prompts and seeds."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["sample"] = "sample"
    of: Spec
    job: str
    checkpoint: str | None
    step: int

    @property
    def pictures(self) -> int:
        beside_the_base = self.checkpoint is None and isinstance(self.of, LoraSpec)
        return len(self.of.prompts_to_sample) * len(self.of.sample_seeds) * (2 if beside_the_base else 1)

    def input_files(self) -> dict[str, File]:
        """As those of a `LoraSpec`."""
        return self.of.model_files()


def parse_spec(value: object) -> Spec:
    """A spec from JSON values. Raises `InvalidSpec` with every problem that it has."""
    kind = value.get("kind", "lora") if isinstance(value, dict) else "lora"
    return parse_scratch(value) if kind == "scratch" else parse_lora(value)


def parse_task(value: dict[str, Any]) -> Spec | SampleSpec:
    """What a node is given to do: a spec that was submitted, or one that the server made. Raises `InvalidSpec`."""
    return parse_as(SampleSpec, value) if value["kind"] == "sample" else parse_spec(value)


def spec_hash(spec: Spec) -> str:
    """Equal for jobs that ask for the same result: settings of saving, retrying and placing are left out."""
    return lora_hash(spec) if isinstance(spec, LoraSpec) else scratch_hash(spec)


def workload(spec: Spec) -> str:
    """Equal for jobs that ask the same of a machine: memory, time per step. Not what the pictures show, nor how long."""
    return lora_workload(spec) if isinstance(spec, LoraSpec) else scratch_workload(spec)


def told_briefly(task: dict[str, Any]) -> dict[str, Any]:
    """A spec's JSON without the settings that are as they are by default: so a node that is older than a setting understands every
    job that does not use it. A default, once released, stays."""
    if task["kind"] == "sample":
        return task | {"of": told_briefly(task["of"])}
    defaults = _defaults(task["kind"])
    return {name: value for name, value in task.items() if name == "kind" or value != defaults.get(name, MISSING)}


def told_whole(task: dict[str, Any]) -> dict[str, Any]:
    """What `told_briefly` left out, as this version has it; what this version does not know stays."""
    return task | {"of": told_whole(task["of"])} if task["kind"] == "sample" else _defaults(task["kind"]) | task


@cache
def _defaults(kind: str) -> dict[str, Any]:
    """As JSON has them."""
    found = {field.name: field.default for field in fields(KINDS[kind]) if field.default is not MISSING}
    return json.loads(json.dumps(found, default=asdict))
