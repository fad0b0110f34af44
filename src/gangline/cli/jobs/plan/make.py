"""What a LoRA's training will do: found out and checked before a byte is sent."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gangline.cli.jobs.plan.base import LookUp, of_files, of_hub
from gangline.cli.jobs.plan.files import LocalFiles, ModelChoice, find_base, find_vae
from gangline.cli.jobs.plan.photos import SubjectInputs, find_subject, held_out_of
from gangline.compose.hub import look_up_for_user
from gangline.core.advice import Advice, PhotoFacts, advise
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.models import recognition
from gangline.core.models.bases import ModelRole
from gangline.core.models.recognition import check_lora
from gangline.core.parsing import to_json
from gangline.core.plans.base import KnownBase, of_content, with_model
from gangline.core.plans.work import (
    captions_row,
    class_row,
    lora_row,
    photos_row,
    seen_words,
    subject_rows,
    times_seen,
)
from gangline.core.specs.fields import Base, FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec, parse_lora, refuse_idle_gpus
from gangline.core.words import counted
from gangline.data.images.buckets import STEP, STEPS_LEAST, Size, nearest, targets
from gangline.data.safetensors_header import read_header

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.wire.transfers import ProgressCallback

Send = Callable[[LocalFiles], tuple[File, ...]]
FOLDERS = ("photos", "masks", "class_photos")
"""Fields of a spec that may be folders of this machine."""
ALONE: Mapping[str, tuple[File, ...]] = MappingProxyType({"photos": (STAND_IN,)})
HELD_OUT = replace(STAND_IN, path="held-out photo", sha256="1" * 64)
"""A placeholder for a photo that is not trained on: it has another content than those that are."""
LocalInputs = dict[str, tuple[LocalFiles, ...]]
"""Files of this machine by the fields of the spec, for each subject that has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraPlan:
    """`spec` is whole but for the contents of files, which `files` and `models` are by the fields of the spec.

    `known` and `known_vae` say what the base is, and a VAE of its own.
    """

    spec: LoraSpec
    files: LocalInputs
    models: Mapping[ModelRole, ModelChoice]
    known: KnownBase
    known_vae: KnownBase | None
    pictures: tuple[PhotoFacts, ...]
    notes: tuple[str, ...]

    @property
    def base(self) -> recognition.RecognisedModel | None:
        """Return what the base was recognised as; None if it could not be read."""
        return self.known.model

    @property
    def advice(self) -> tuple[Advice, ...]:
        return advise(self.spec, self.pictures, self.base)

    @property
    def files_count(self) -> int:
        return count_files(self.files, self.models)

    def rows(self) -> list[tuple[str, str]]:
        """Return what a user should know before the job begins."""
        spec, own = self.spec, sum(picture.own for picture in self.pictures)
        rows = [
            *subject_rows(spec, self.pictures),
            ("photos", photos_row(self.pictures, len(spec.held_out))),
            ("captions", captions_row(own, len(self.pictures) - own)),
            ("cut to", _sizes(spec, self.pictures) + _views(spec)),
            ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size} ({seen_words(*self.seen)})"),
            ("LoRA", lora_row(spec)),
        ]
        if spec.class_prompt:
            rows.append(("class", class_row(spec.all_subjects[0])))
        if spec.mask != "none":
            rows.append(("masks", _masks(spec, self.pictures)))
        return rows

    @property
    def seen(self) -> tuple[int, int]:
        """Return how often the least and the most frequent photo are seen."""
        return times_seen(self.spec, self.pictures)

    def upload(self, client: "Client", progress: "ProgressCallback | None" = None) -> LoraSpec:
        """Send what is not there yet; the spec that names it by content."""

        def send(files: LocalFiles) -> tuple[File, ...]:
            return client.files.upload(files.paths, files.below, progress=progress)

        return spec_with_files(self.spec, self.files, self.models, send)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """What of a job lies in files, as a user names it: paths, or the hub's names of models. Models may be known by content."""

    photos: Path
    base: str | Base
    vae: str | Base | None = None
    init_lora: str | None = None
    class_photos: str | None = None
    masks: str | None = None
    hold_out: tuple[str, ...] = ()
    subjects: tuple[SubjectInputs, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def all_subjects(self) -> tuple[SubjectInputs, ...]:
        """The subjects, or the only one, whose files `photos`, `class_photos`, `masks` and `hold_out` name."""
        of_class, masks = (Path(path) if path else None for path in (self.class_photos, self.masks))
        alone = SubjectInputs(photos=self.photos, class_photos=of_class, masks=masks, hold_out=self.hold_out)
        return self.subjects or (alone,)


def make_plan(given: JobInputs, settings: dict[str, Any], look_up: LookUp = look_up_for_user) -> LoraPlan:
    """Make the plan of a LoRA. Settings are checked first, then the base, then the photos, so a wrong number is
    reported before photos are read. Raises `BadInput`."""
    subjects = given.all_subjects
    masked = any(subject.masks for subject in subjects)
    stand_in_files = stand_ins(subjects) | _held_out_stand_in(subjects, given.hold_out)
    spec = spec_of_settings(({"mask": "files"} if masked else {}) | settings, stand_in_files)
    models, known = find_models(given.base, given.vae, look_up)
    spec, base = with_model(spec, known["base"], own_vae="vae" in known), known["base"].model
    subjects = held_out_of(given.hold_out, subjects) if given.subjects else subjects
    found = [find_subject(each, spec, own) for each, own in zip(subjects, spec.all_subjects, strict=True)]
    files = joined_files(each.files for each in found)
    if given.init_lora:
        files["init_lora"] = (find_lora(Path(given.init_lora), base),)
    return LoraPlan(
        spec=spec_with_files(spec, files, models, LocalFiles.unsent),
        files=files,
        models=models,
        known=known["base"],
        known_vae=known.get("vae"),
        pictures=tuple(picture for each in found for picture in each.pictures),
        notes=(*given.notes, *(note for each in found for note in each.notes)),
    )


def stand_ins(subjects: Sequence[SubjectInputs]) -> dict[str, tuple[File, ...]]:
    """Return a stand-in for each folder of files that subjects have, by the fields of the spec."""

    def of(folder: str) -> File:
        return replace(STAND_IN, path=f"{folder}/{STAND_IN.path}") if folder else STAND_IN

    return {name: tuple(of(each.into) for each in subjects if getattr(each, name)) for name in FOLDERS}


def _held_out_stand_in(subjects: Sequence[SubjectInputs], hold_out: tuple[str, ...]) -> dict[str, tuple[File, ...]]:
    """Return a stand-in for the photos that are held out, if some are: settings that need such photos are checked before they are found."""
    of = next((subject for subject in subjects if subject.hold_out), subjects[0] if hold_out else None)
    if of is None:
        return {}
    path = f"{of.into}/{HELD_OUT.path}" if of.into else HELD_OUT.path
    return {"held_out": (replace(HELD_OUT, path=path),)}


def spec_of_settings(settings: dict[str, Any], files: Mapping[str, tuple[File, ...]] = ALONE) -> LoraSpec:
    """Parse the settings, with stand-ins for the base and for files. Raises `BadInput`."""
    spec = parse_lora(settings | {"base": FilesBase(files=(STAND_IN,))} | dict(files), options=True)
    refuse_idle_gpus(spec)
    return spec


def find_models(
    base: str | Base, vae: str | Base | None, look_up: LookUp = look_up_for_user
) -> tuple[dict[ModelRole, ModelChoice], dict[ModelRole, KnownBase]]:
    """Return the models that a job starts from, and what is known of them. Raises `BadInput` if one is not a complete
    model."""
    given: dict[ModelRole, str | Base] = {"base": base}
    models: dict[ModelRole, ModelChoice] = {"base": find_base(base)}
    if vae:
        given["vae"], models["vae"] = vae, find_vae(vae)
    return models, {role: _known(role, given[role], model, look_up) for role, model in models.items()}


def _known(role: ModelRole, given: str | Base, model: ModelChoice, look_up: LookUp) -> KnownBase:
    if isinstance(model, HubBase):
        return of_hub(model, role, look_up)
    return of_files(Path(str(given)), model.paths, role=role) if isinstance(model, LocalFiles) else of_content(model)


def joined_files(of_subjects: Iterable[dict[str, LocalFiles]]) -> LocalInputs:
    found: dict[str, list[LocalFiles]] = {}
    for files in of_subjects:
        for name, own in files.items():
            found.setdefault(name, []).append(own)
    return {name: tuple(files) for name, files in found.items()}


def count_files(files: LocalInputs, models: Mapping[ModelRole, ModelChoice]) -> int:
    sent = [each for of_subjects in files.values() for each in of_subjects]
    sent += [model for model in models.values() if isinstance(model, LocalFiles)]
    return sum(len(each.paths) for each in sent)


def spec_with_files(
    spec: LoraSpec, files: LocalInputs, models: Mapping[ModelRole, ModelChoice], send: Send
) -> LoraSpec:
    sent = {name: tuple(file for each in found for file in each.placed(send(each))) for name, found in files.items()}
    parts: dict[str, Any] = sent | ({"init_lora": sent["init_lora"][0]} if "init_lora" in sent else {})
    for name, model in models.items():
        parts[name] = FilesBase(files=send(model)) if isinstance(model, LocalFiles) else model
    return parse_lora(to_json(replace(spec, **parts)))


def find_lora(path: Path, base: recognition.RecognisedModel | None) -> LocalFiles:
    """Return a LoRA in one safetensors file, which must be of the base's family if that is known."""
    if not path.is_file():
        raise BadInput(f"the LoRA {path} does not exist", hint="give a .safetensors file")
    header = read_header(path)
    check_lora(header, base.family if base else None)
    return LocalFiles(path.parent, [path])


def sizes_of(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> list[Size] | None:
    """Return the size that each photo is cut to, in order. From 512 pixels on the buckets are the same for every base;
    below that return None."""
    if spec.aspect_buckets and spec.resolution < STEPS_LEAST * STEP:
        return None
    among = targets(spec.resolution, spec.aspect_buckets, STEP)
    return [nearest(Size(width=picture.width, height=picture.height), among) for picture in pictures]


def _sizes(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> str:
    sizes = sizes_of(spec, pictures)
    if sizes is None:
        return f"about as many pixels as {spec.resolution} × {spec.resolution}"
    return ", ".join(f"{size} ({count})" for size, count in sorted(Counter(sizes).items()))


def _masks(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> str:
    return "the photos' transparency" if spec.mask == "alpha" else f"{len(spec.masks)} for {len(pictures)} photos"


def _views(spec: LoraSpec) -> str:
    random = f"; {spec.crops} random places of each" if spec.crop == "random" else ""
    return random + (", mirrored too" if spec.flip else "")
