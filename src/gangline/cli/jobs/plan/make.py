"""What a LoRA's training will do: found out and checked before a byte is sent."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.cli.jobs.plan.base import KnownBase, LookUp, of_content, of_files, of_hub
from gangline.cli.jobs.plan.files import LocalFiles, ModelChoice, find_base, find_vae
from gangline.compose.hub import look_up_for_user
from gangline.core.advice import Advice, PhotoFacts, advise
from gangline.core.display import NAME_MAX, printable
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.models import recognition
from gangline.core.models.bases import ModelRole
from gangline.core.models.families import check_clip_skip
from gangline.core.models.recognition import check_lora
from gangline.core.parsing import to_json
from gangline.core.specs.fields import Base, FilesBase, HubBase
from gangline.core.specs.lora import LoraSpec, parse_lora, refuse_idle_gpus
from gangline.core.words import counted
from gangline.data.images.buckets import STEP, STEPS_LEAST, Size, nearest, targets
from gangline.data.images.captions import Caption, TellUser, find_captions, read_captions
from gangline.data.images.masks import check_fits
from gangline.data.images.photos import READERS, find_photos, read_each
from gangline.data.images.pixels import read_alpha, read_photo
from gangline.data.images.sidecars import sidecar_files, sidecar_folders
from gangline.data.links import refuse_link_out
from gangline.data.safetensors_header import read_header

if TYPE_CHECKING:
    from gangline.wire.client import Client

Send = Callable[[LocalFiles], tuple[File, ...]]
FOLDERS = ("masks", "class_photos")
"""Fields of a spec that may be folders of this machine, besides the photos."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraPlan:
    """`spec` is whole but for the contents of files, which `files` and `models` are by the fields of the spec.

    `known` and `known_vae` say what the base is, and a VAE of its own.
    """

    spec: LoraSpec
    files: dict[str, LocalFiles]
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
        spec = self.spec
        rows = [
            ("photos", _photos(self.pictures, len(spec.held_out))),
            ("captions", _captions(self.pictures)),
            ("cut to", _sizes(spec, self.pictures) + _views(spec)),
            ("steps", f"{counted(spec.steps, 'step')}, batch size {spec.batch_size} ({_seen(*self.seen)})"),
            ("LoRA", lora_row(spec)),
        ]
        if spec.class_prompt:
            rows.append(("class", class_row(spec)))
        if spec.mask != "none":
            rows.append(("masks", _masks(spec, self.pictures)))
        return rows

    @property
    def seen(self) -> tuple[int, int]:
        """Return how often the least and the most frequent photo are seen."""
        repeats = sorted(picture.repeats for picture in self.pictures)
        images = self.spec.steps * self.spec.batch_size
        return round(images * repeats[0] / sum(repeats)), round(images * repeats[-1] / sum(repeats))

    def upload(self, client: "Client", tell: Callable[[File], None]) -> LoraSpec:
        """Send what is not there yet; the spec that names it by content."""

        def send(files: LocalFiles) -> tuple[File, ...]:
            return client.upload(files.paths, files.below, tell)

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


def make_plan(given: JobInputs, settings: dict[str, Any], look_up: LookUp = look_up_for_user) -> LoraPlan:
    """Make the plan of a LoRA. Settings are checked first, then the base, then the photos, so a wrong number is
    reported before photos are read. Raises `BadInput`."""
    here = {name for name in FOLDERS if getattr(given, name)}
    spec = spec_of_settings(({"mask": "files"} if given.masks else {}) | settings, here)
    models, known = find_models(given.base, given.vae, look_up)
    spec, base = with_model(spec, known["base"]), known["base"].model
    found = find_photos(given.photos, threads=READERS)
    notes = found.warnings
    photos = LocalFiles(given.photos, found.photos)
    sizes = dict(zip(photos.names, found.sizes, strict=True))
    files = _split(photos, given.hold_out)
    files["captions"] = photos.beside(find_captions(photos.below, photos.names))
    if given.init_lora:
        files["init_lora"] = find_lora(Path(given.init_lora), base)
    if given.class_photos:
        files |= find_class_photos(Path(given.class_photos), spec.class_prompt or "", notes.append)
    if given.masks:
        files["masks"] = find_masks(Path(given.masks), sizes, notes.append)
    if spec.mask == "alpha":
        opaque = read_each(lambda path: read_alpha(path) is None, found.photos, READERS)
        notes += [
            f"{path.name} is opaque, so the loss counts all of it"
            for path, all_is in zip(found.photos, opaque, strict=True)
            if all_is
        ]
    captions = read_captions(photos.below, photos.names, spec.prompt, notes.append)
    pictures = tuple(_picture(name, sizes[name], captions[name], spec.prompt) for name in files["photos"].names)
    return LoraPlan(
        spec=spec_with_files(spec, files, models, LocalFiles.unsent),
        files=files,
        models=models,
        known=known["base"],
        known_vae=known.get("vae"),
        pictures=pictures,
        notes=tuple(notes),
    )


def spec_of_settings(settings: dict[str, Any], here: Collection[str] = ()) -> LoraSpec:
    """Parse the settings, with stand-ins for base and photos, and for those of `FOLDERS` that are `here`. Raises
    `BadInput`."""
    folders = {name: (STAND_IN,) if name in here else () for name in FOLDERS}
    stand_ins = {"base": FilesBase(files=(STAND_IN,)), "photos": (STAND_IN,)} | folders
    spec = parse_lora(settings | stand_ins, options=True)
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


def with_model(spec: LoraSpec, known: KnownBase) -> LoraSpec:
    """Return the settings with the base's licence. Raises `BadInput` if they do not suit the base."""
    check_objective(spec, known.model)
    if known.model:
        check_clip_skip(known.model.family, spec.clip_skip)
    return replace(spec, base_licence=spec.base_licence or printable(known.licence)[:NAME_MAX])


def count_files(files: Mapping[str, LocalFiles], models: Mapping[ModelRole, ModelChoice]) -> int:
    sent = [*files.values(), *(model for model in models.values() if isinstance(model, LocalFiles))]
    return sum(len(each.paths) for each in sent)


def spec_with_files(
    spec: LoraSpec, files: dict[str, LocalFiles], models: Mapping[ModelRole, ModelChoice], send: Send
) -> LoraSpec:
    sent = {name: send(found) for name, found in files.items()}
    parts: dict[str, Any] = sent | ({"init_lora": sent["init_lora"][0]} if "init_lora" in sent else {})
    for name, model in models.items():
        parts[name] = FilesBase(files=send(model)) if isinstance(model, LocalFiles) else model
    return parse_lora(to_json(replace(spec, **parts)))


def _split(photos: LocalFiles, hold_out: tuple[str, ...]) -> dict[str, LocalFiles]:
    held_out = [_held_out(photos, name) for name in hold_out]
    trained_on = [path for path in photos.paths if path not in held_out]
    if not trained_on:
        raise BadInput("all photos are held out", hint="leave at least one photo to train on")
    return {"photos": LocalFiles(photos.below, trained_on), "held_out": LocalFiles(photos.below, held_out)}


def _held_out(photos: LocalFiles, wanted: str) -> Path:
    for path, name in zip(photos.paths, photos.names, strict=True):
        if wanted in (path.name, name, str(path)):
            return path
    raise BadInput(f"the photo to hold out, {wanted}, is not in {photos.below}")


def _picture(name: str, size: Size, caption: Caption, prompt: str) -> PhotoFacts:
    return PhotoFacts(
        name=name,
        width=size.width,
        height=size.height,
        caption=caption.text,
        own=caption.text != prompt,
        repeats=caption.repeats,
    )


def find_class_photos(folder: Path, prompt: str, tell: TellUser) -> dict[str, LocalFiles]:
    """Return photos of the class and their captions, by the fields of the spec."""
    found = find_photos(folder, threads=READERS)
    for sentence in found.warnings:
        tell(sentence)
    photos = LocalFiles(folder, found.photos)
    read_captions(folder, photos.names, prompt, tell)
    return {"class_photos": photos, "class_captions": photos.beside(find_captions(folder, photos.names))}


def find_masks(folder: Path, photos: dict[str, Size], tell: TellUser) -> LocalFiles:
    """Return the pictures that are named like the photos, `dog.png` for `dog.jpg`; each must have its photo's aspect
    ratio."""
    if not folder.is_dir():
        raise BadInput(
            f"the folder of masks {folder} does not exist",
            hint="give a folder that has a picture with the name of each photo",
        )
    names = [
        path.relative_to(folder).as_posix()
        for parent in sidecar_folders(photos)
        for path in (folder / parent).glob("[!.]*.*")
    ]
    found = sidecar_files(photos, names)
    if not found:
        raise BadInput(f"no mask in {folder} has the name of a photo", hint="name the mask of dog.jpg dog.png")

    def check(photo: str) -> None:
        mask = found[photo]
        refuse_link_out(folder, mask)
        width, height = read_photo(folder / mask).size
        check_fits(mask, Size(width=width, height=height), photos[photo])

    read_each(check, found, READERS)
    for photo in sorted(photos.keys() - found.keys()):
        tell(f"{photo} has no mask, so the loss counts all of it")
    for mask in sorted({*names} - {*found.values()}):
        tell(f"{mask} does not belong to any photo")
    return LocalFiles(folder, sorted(folder / mask for mask in {*found.values()}))


def find_lora(path: Path, base: recognition.RecognisedModel | None) -> LocalFiles:
    """Return a LoRA in one safetensors file, which must be of the base's family if that is known."""
    if not path.is_file():
        raise BadInput(f"the LoRA {path} does not exist", hint="give a .safetensors file")
    header = read_header(path)
    check_lora(header, base.family if base else None)
    return LocalFiles(path.parent, [path])


def check_objective(spec: LoraSpec, base: recognition.RecognisedModel | None) -> None:
    """Raise `BadInput` if the trainer would, as far as that is known already."""
    predicts = base.prediction_type if base and spec.prediction_type == "auto" else spec.prediction_type
    zero = spec.zero_terminal_snr or (base is not None and base.zero_terminal_snr)
    if zero and predicts == "epsilon":
        raise BadInput(
            "zero_terminal_snr needs a base that predicts velocity, but this base predicts noise",
            hint="leave zero_terminal_snr out, or use a base that predicts velocity",
        )


def _photos(pictures: tuple[PhotoFacts, ...], held_out: int) -> str:
    return f"{len(pictures)} to train on" + (f", {held_out} held out" if held_out else "")


def _captions(pictures: tuple[PhotoFacts, ...]) -> str:
    own = sum(picture.own for picture in pictures)
    prompted = len(pictures) - own
    return " and ".join(
        [f"their own for {counted(own, 'photo')}"] * bool(own)
        + [f"the prompt for {counted(prompted, 'photo')}"] * bool(prompted)
    )


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


def lora_row(spec: LoraSpec) -> str:
    convolutions = f", {spec.conv_rank} in convolutions" if spec.conv_rank else ""
    others = ", other ranks where block_ranks match" * bool(spec.block_ranks)
    kind = "LoKr, " if spec.algorithm == "lokr" else ""
    return (
        f"{kind}rank {spec.rank} in the U-Net{' and the text encoders' * spec.train_text_encoder}{convolutions}{others}"
    )


def class_row(spec: LoraSpec) -> str:
    """Describe the user's photos of the class, and the pictures that the base draws of it."""
    own = [counted(len(spec.class_photos), "photo") + " of your own"] if spec.class_photos else []
    drawn = [f"{counted(spec.class_images_drawn, 'picture')} that the base makes of '{spec.class_prompt}'"]
    return " and ".join(own + (drawn if spec.class_images_drawn else []))


def _masks(spec: LoraSpec, pictures: tuple[PhotoFacts, ...]) -> str:
    return "the photos' transparency" if spec.mask == "alpha" else f"{len(spec.masks)} for {len(pictures)} photos"


def _views(spec: LoraSpec) -> str:
    random = f"; {spec.crops} random places of each" if spec.crop == "random" else ""
    return random + (", mirrored too" if spec.flip else "")


def _seen(least: int, most: int) -> str:
    return (
        f"each photo is seen {counted(least, 'time')}" if least == most else f"photos are seen {least} to {most} times"
    )
