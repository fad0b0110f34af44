"""Several subjects of one job: what each has of its own. Its files are those of the job below its folder, so names may be equal in two.

A job without `subjects` has one, which its own settings describe; code that reads subjects sees no difference (`LoraSpec.all_subjects`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Interval, Le, MaxLen, MinLen

from gangline.core.display import has_words
from gangline.core.files import File, is_safe_path
from gangline.core.parsing import Checked, adapter
from gangline.core.specs.fields import Prompt
from gangline.core.specs.settings import CLASS_IMAGES, EMBEDDINGS, RESULT, Setting, SettingGroup, section

REPEATS_MAX = 1000
SUBJECTS_MAX = 64
FILE_FIELDS = ("photos", "held_out", "captions", "class_photos", "class_captions", "masks")
"""Settings of a job that are files of its subjects."""


def _why_no_folder(name: str) -> str:
    good = is_safe_path(name) and "/" not in name and has_words(name)
    return "" if good else 'must be the name of one folder, without any of / \\ : * ? " < > |'


@section(SettingGroup.SUBJECTS)
class SubjectEntry:
    """`folder` is where the job's `photos`, `captions`, `masks`, `held_out`, `class_photos` and `class_captions` have those of this
    subject. A photo is drawn `repeats` times in each pass over all photos; the loss of this subject's samples counts `weight`, and of
    its class images `weight` times `prior_weight`."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    folder: Annotated[
        Annotated[str, MinLen(1), MaxLen(200), Checked(_why_no_folder)],
        Setting(
            "The subject's photos, captions, masks and class photos are below this folder (in a recipe, `photos` names it).",
            EMBEDDINGS | RESULT,
        ),
    ]
    prompt: Annotated[
        Prompt,
        Setting("Describe this subject's photos with a rare word and its class; it must differ.", EMBEDDINGS | RESULT),
    ]
    class_prompt: Annotated[
        Prompt | None,
        Setting(
            "The subject's class. Images of it are trained on beside this subject's photos (default: none are).",
            EMBEDDINGS | CLASS_IMAGES | RESULT,
        ),
    ] = None
    class_images: Annotated[
        Annotated[int, Interval(ge=1, le=10_000)] | None,
        Setting("Train on at least this many pictures of the class (default: the job's).", CLASS_IMAGES | RESULT),
    ] = None
    prior_weight: Annotated[
        Annotated[float, Ge(0), Le(100)] | None,
        Setting("Weigh the loss of class images by this, against 1 for the photos (default: the job's).", RESULT),
    ] = None
    repeats: Annotated[
        int,
        Interval(ge=1, le=REPEATS_MAX),
        Setting("Draw each photo this many times in a pass over all photos (kohya's num_repeats).", RESULT),
    ] = 1
    weight: Annotated[
        float, Gt(0), Le(100), Setting("Multiply the loss of this subject's samples by this.", RESULT)
    ] = 1.0


def _to_json(entry: SubjectEntry) -> dict[str, Any]:
    known = adapter(SubjectEntry).dump_python(entry)
    return {each.name: known[each.name] for each in fields(entry) if known[each.name] != each.default}


class _WithoutDefaults:
    """Leaves a default out of the JSON: so a setting that comes later changes no hash, and an older node understands the others."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        written = core_schema.plain_serializer_function_ser_schema(_to_json)
        return core_schema.no_info_wrap_validator_function(
            lambda given, read: read(given), handler(source), serialization=written
        )


SubjectEntries = Annotated[tuple[Annotated[SubjectEntry, _WithoutDefaults()], ...], MaxLen(SUBJECTS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject of a job, complete: with what its entry leaves out, and with its files, by their paths in the job. `number` counts from
    0; `folder` is empty if the job has no entries."""

    number: int = 0
    folder: str
    prompt: str
    class_prompt: str | None
    class_images: int
    prior_weight: float
    repeats: int = 1
    weight: float = 1.0
    photos: tuple[File, ...]
    held_out: tuple[File, ...]
    captions: tuple[File, ...]
    class_photos: tuple[File, ...]
    class_captions: tuple[File, ...]
    masks: tuple[File, ...]

    @property
    def class_images_drawn(self) -> int:
        """How many pictures of its class the base draws, besides photos of it."""
        return max(0, self.class_images - len(self.class_photos)) if self.class_prompt else 0

    def name_of(self, file: File) -> str:
        """Return a file's path below the subject's folder."""
        return file.path[len(self.folder) + 1 :] if self.folder else file.path


def by_folder(files: Iterable[File]) -> dict[str, list[File]]:
    """Return files by the first folder of their paths."""
    found: dict[str, list[File]] = {}
    for file in files:
        found.setdefault(file.path.partition("/")[0], []).append(file)
    return found
