"""What the server asks for on its own: pictures of what a training job has learned."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gangline.core.canonical import digest
from gangline.core.files import File
from gangline.core.parsing import parse_as
from gangline.core.specs.caption import CaptionSpec
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.sections.previews import Preview, SamplePrompt, as_prompt

TrainingSpec = LoraSpec | ScratchSpec
"""What Gangline's own trainers do."""
Spec = TrainingSpec | CommandSpec | CaptionSpec
"""What a user asks for. A spec is complete: with its inputs it gives the result, whoever runs it and however often it is interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSpec:
    """Pictures of what a training job has learned: `of` its spec, after `step` steps. Nobody submits it: the server makes it when
    `checkpoint` of `job` is committed, whose weights its run has in `inputs/checkpoint`. Without one it shows the job's result, in
    `inputs/result`, beside what the base alone makes of the same prompts and seeds."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["sample"] = "sample"
    of: TrainingSpec
    job: str
    checkpoint: str | None
    step: int

    @property
    def pictures(self) -> int:
        beside_the_base = self.checkpoint is None and isinstance(self.of, LoraSpec)
        return sum(len(preview.seeds) for preview in previews_of(self.of)) * (2 if beside_the_base else 1)

    def input_files(self) -> dict[str, File]:
        """As those of a `LoraSpec`."""
        return self.of.model_files()


def previews_of(spec: TrainingSpec) -> tuple[Preview, ...]:
    """Return what pictures of the job show, with all settings; what a prompt leaves out is the job's."""
    return tuple(_preview(spec, number, as_prompt(given)) for number, given in enumerate(spec.prompts_to_sample))


def _preview(spec: TrainingSpec, number: int, own: SamplePrompt) -> Preview:
    return Preview(
        number=number,
        prompt=own.prompt,
        negative_prompt=own.negative_prompt,
        width=own.width or spec.resolution,
        height=own.height or spec.resolution,
        seeds=own.seeds or spec.sample_seeds,
        steps=own.steps or spec.sample_steps,
        guidance_scale=spec.guidance_scale if own.guidance_scale is None else own.guidance_scale,
        sampler=own.sampler or spec.sample_sampler,
    )


def texts_to_show(spec: TrainingSpec) -> tuple[str, ...]:
    """Return each text of pictures of the job: prompts, negative prompts and the empty text."""
    previews = previews_of(spec)
    texts = (*(each.prompt for each in previews), *(each.negative_prompt for each in previews), "")
    return tuple(dict.fromkeys(texts))


def parse_sample(value: object) -> SampleSpec:
    """A spec from JSON values. Raises `InvalidSpec`."""
    return parse_as(SampleSpec, value)


def sample_hash(spec: SampleSpec) -> str:
    """Equal for pictures of the same weights."""
    return digest([spec.checkpoint or spec.job, "pictures"])
