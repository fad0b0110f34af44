"""Prompts of sample pictures, each with settings of its own. A setting that it leaves out is the job's, as for a prompt that is a text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import MaxLen, Predicate

from gangline.core.display import is_printable
from gangline.core.parsing import adapter
from gangline.core.specs.fields import GuidanceScale, Prompt, Sampler, SamplerSteps, SampleSeeds, Side
from gangline.core.specs.settings import EMBEDDINGS, RESULT, Setting, SettingGroup, section


@section(SettingGroup.PROMPTS)
class SamplePrompt:
    """`negative_prompt` has an effect only with guidance, at a scale above 1."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    prompt: Annotated[Prompt, Setting("Render this prompt.", EMBEDDINGS | RESULT)]
    negative_prompt: Annotated[
        str,
        MaxLen(2000),
        Predicate(is_printable),
        Setting("Guide away from this prompt (default: from the empty one).", EMBEDDINGS | RESULT),
    ] = ""
    width: Annotated[
        Side | None,
        Setting(
            "Render pictures that are this wide (default: the job's resolution). Use a multiple of 32 with SDXL, of 64 with "
            "SD 1.5 and SD 2.",
            RESULT,
            unit="px",
        ),
    ] = None
    height: Annotated[
        Side | None,
        Setting("Render pictures that are this high (default: the job's resolution).", RESULT, unit="px"),
    ] = None
    seeds: Annotated[
        SampleSeeds | None, Setting("Render one picture with each of these seeds (default: `sample_seeds`).", RESULT)
    ] = None
    steps: Annotated[
        SamplerSteps | None, Setting("Render with this many sampler steps (default: `sample_steps`).", RESULT)
    ] = None
    guidance_scale: Annotated[
        GuidanceScale | None, Setting("Render with this guidance scale (default: the job's).", RESULT)
    ] = None
    sampler: Annotated[Sampler | None, Setting("Render with this sampler (default: `sample_sampler`).", RESULT)] = None


class _TextOrTable:
    """Reads what is an object as a `SamplePrompt` and all else as a text, so that a problem is reported once. What a prompt leaves
    out is no part of its JSON: an older node understands a prompt without a setting that came later."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(
            self._read,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(self._to_json),
        )

    def _read(self, given: Any, read: Callable[[Any], Any]) -> Any:
        from pydantic_core import PydanticCustomError

        if isinstance(given, dict):
            return adapter(SamplePrompt).validate_python(given)
        if isinstance(given, str):
            return adapter(Prompt).validate_python(given)
        if isinstance(given, SamplePrompt):
            return read(given)
        raise PydanticCustomError("text_or_dict_type", "Input should be a text or an object")

    def _to_json(self, value: str | SamplePrompt) -> str | dict[str, Any]:
        if isinstance(value, str):
            return value
        known = adapter(SamplePrompt).dump_python(value)
        return {name: each for name, each in known.items() if each not in (None, "")}


PromptOrTable = Annotated[Prompt | SamplePrompt, _TextOrTable()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The pictures of one prompt, one for each seed, with every setting of theirs. `number` is that of the prompt in its spec; sizes
    are in pixels."""

    number: int
    prompt: str
    negative_prompt: str
    width: int
    height: int
    seeds: tuple[int, ...]
    steps: int
    guidance_scale: float
    sampler: Sampler


def as_prompt(given: str | SamplePrompt) -> SamplePrompt:
    return SamplePrompt(prompt=given) if isinstance(given, str) else given
