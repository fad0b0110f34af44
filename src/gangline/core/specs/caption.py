"""The spec of a job that writes captions for photos, with a tagger or a captioner whose files were uploaded."""

from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Interval, Le, MaxLen, MinLen

from gangline.core.canonical import digest
from gangline.core.files import File, Files
from gangline.core.parsing import InvalidSpec, Problem, parse_as
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.sections.shared import PlacementSettings
from gangline.core.specs.settings import PLACE, RESULT, WATCH, WORKLOAD, Setting, SettingGroup, hashed, section

Writer = Literal["tagger", "captioner"]
"""A tagger gives a probability to each of its tags; a captioner writes sentences, a token after the other."""
PHOTOS_MAX = 100_000
RESULT_FILE = "captions.jsonl"
"""The file of a result: a JSON object with `photo` and `caption` on each line."""
ONNX, TAGS, CONFIG, WEIGHTS = ".onnx", ".csv", "config.json", ".safetensors"
UNPICKLED_ONLY = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
"""Weights in these files are loaded by unpickling, which runs code of theirs."""


@section(SettingGroup.CAPTIONS)
class CaptionSpec(PlacementSettings):
    """Captions for `photos`, written by `model` into one result file, captions.jsonl, with a line for each photo."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Annotated[
        Literal["caption"],
        Setting("This names the kind of job.", RESULT | WORKLOAD, group=SettingGroup.FILES, always=("caption",)),
    ] = "caption"
    photos: Annotated[
        Files,
        MinLen(1),
        MaxLen(PHOTOS_MAX),
        Setting("Write captions for these photos.", RESULT, group=SettingGroup.FILES),
    ]
    model: Annotated[
        FilesBase,
        Setting(
            "Write captions with this model: an ONNX tagger (one .onnx file and the .csv of its tags) or a folder in the layout "
            "of transformers with an image-text-to-text model.",
            RESULT | WORKLOAD,
            group=SettingGroup.FILES,
        ),
    ]
    prefix: Annotated[
        str,
        MaxLen(500),
        Setting("Begin each caption with this text, such as the subject's name, as it is.", RESULT),
    ] = ""
    threshold: Annotated[
        float,
        Interval(gt=0, lt=1),
        Setting("Write the tags with at least this probability (tagger).", RESULT),
    ] = 0.35
    character_threshold: Annotated[
        float,
        Interval(gt=0, lt=1),
        Setting("Write tags that name characters with at least this probability (tagger).", RESULT),
    ] = 0.85
    exclude: Annotated[
        tuple[Annotated[str, MinLen(1), MaxLen(200)], ...],
        MaxLen(1000),
        Setting("Leave out these tags (tagger).", RESULT),
    ] = ()
    instruction: Annotated[
        str,
        MaxLen(2000),
        Setting(
            "Ask this of a captioner about each photo (default: `Describe this image in one sentence.` if the model takes "
            "instructions, else nothing).",
            RESULT,
        ),
    ] = ""
    tokens_max: Annotated[
        int,
        Ge(1),
        Le(2048),
        Setting("Stop a caption after this many tokens, at the end of its last whole sentence (captioner).", RESULT),
    ] = 128
    photo_s: Annotated[
        float,
        Gt(0),
        Le(3600),
        Setting(
            "Fail if one photo takes longer than this: the model hangs or is too large for the node.",
            WATCH,
            unit="s",
        ),
    ] = 300.0
    exact: Annotated[
        Literal["off"],
        Setting("Captions are texts: their last bits are not compared.", PLACE),
    ] = "off"

    vae: ClassVar[None] = None
    sample_result: ClassVar[bool] = False
    sample_every_steps: ClassVar[None] = None
    sample_every_s: ClassVar[None] = None
    prompts_to_sample: ClassVar[tuple[()]] = ()
    checkpoint_every_s: ClassVar[float] = 60.0

    @property
    def base(self) -> FilesBase:
        """What a node keeps for the next job with the same one."""
        return self.model

    @property
    def steps(self) -> int:
        """A photo is a step."""
        return len(self.photos)

    @property
    def writer(self) -> Writer:
        return "tagger" if any(file.path.endswith(ONNX) for file in self.model.files) else "captioner"

    @property
    def title(self) -> str:
        """For people, where they gave the job no name."""
        return "captions"

    def input_files(self) -> dict[str, File]:
        """Every file of a run's `inputs/`, by its path below it."""
        return {f"photos/{file.path}": file for file in self.photos} | self.model_files()

    def model_files(self) -> dict[str, File]:
        """Those of them that are the model's."""
        return {f"base/{file.path}": file for file in self.model.files}


def parse_caption(value: object, *, options: bool = False) -> CaptionSpec:
    """A spec from JSON values. Raises `InvalidSpec` with every problem that it has."""
    spec: CaptionSpec = parse_as(CaptionSpec, value, options=options)
    if because := why_no_writer(spec.model):
        raise InvalidSpec((Problem("model", because),))
    return spec


def why_no_writer(model: FilesBase) -> str:
    """Return why these files are neither a tagger nor a captioner; empty if they are either."""
    names = [file.path for file in model.files]
    of = {suffix: [name for name in names if name.endswith(suffix)] for suffix in (ONNX, TAGS, WEIGHTS)}
    if of[ONNX]:
        if len(of[ONNX]) > 1:
            return f"has {len(of[ONNX])} .onnx files: give the folder of one tagger"
        return (
            ""
            if len(of[TAGS]) == 1
            else "needs exactly one .csv file beside the .onnx file: the tags, such as selected_tags.csv"
        )
    if CONFIG not in names:
        return "does not write captions: give a folder with an .onnx file and the .csv of its tags, or a model of transformers"
    if not of[WEIGHTS]:
        pickled = next((name for name in names if name.endswith(UNPICKLED_ONLY)), "")
        return f"has no .safetensors file{f', and {pickled} would run code of its own' * bool(pickled)}: convert its weights"
    return ""


def caption_hash(spec: CaptionSpec) -> str:
    """Equal for jobs that ask for the same result, as `gangline.core.specs.spec.spec_hash`."""
    return digest(hashed(spec, RESULT))


def caption_workload(spec: CaptionSpec) -> str:
    """Equal for jobs that ask the same of a machine."""
    return digest(["caption", spec.model.id, spec.tokens_max])[:16]
