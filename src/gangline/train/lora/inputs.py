"""Gather all that a run trains on, made here or found among prepared tensors: photos, class images, texts, held-out photos."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

import torch

from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.models.bases import TEXT_ENCODERS
from gangline.core.runs import prepared as keys
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of, texts_to_show
from gangline.core.specs.sections.subjects import Subject
from gangline.data.images.ahead import decoded, processes_for
from gangline.data.images.buckets import Size
from gangline.posix import cores
from gangline.train.checkpoints import prepared
from gangline.train.lora.batches import TextBatches
from gangline.train.lora.prepare import (
    AspectBucket,
    Example,
    Latents,
    concatenated,
    encode_examples,
    make_buckets,
    plan_class_photos,
    plan_held_out,
    plan_pictures,
)
from gangline.train.model.base import LoadedBase
from gangline.train.model.denoise import class_drawing_of, sample_latents
from gangline.train.model.text import Embedded, Texts, embed_all, tokenize
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.tensors import Tensors

Piece = TypeVar("Piece")
LATENTS = "latents"
TEXTS = "texts"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A photo that is never trained on, with its caption."""

    photo: str
    caption: str
    latents: Latents


@dataclass(frozen=True, slots=True)
class TrainingInputs:
    photos: list[AspectBucket]
    class_images: list[AspectBucket]
    held_out: list[HeldOut]
    words: TextBatches
    spoken: Embedded
    """The embeddings of `words.texts` by the frozen encoders, for pictures of the base."""
    shown: TextBatches
    """The texts of previews. They are apart from `words`: a long negative prompt must not pad the texts that are trained on."""
    digest: str


def gather(
    run: RunDirectory, base: LoadedBase, spec: LoraSpec, fingerprint: dict[str, str], orders: Orders
) -> TrainingInputs | None:
    """Return the inputs, or None if there was an order to stop before all were ready; what was made until then is kept."""
    unit = base.side_unit
    planned = plan_pictures(spec, run.inputs, unit)
    held_out = list(plan_held_out(spec, run.inputs, unit))
    of_class = plan_class_photos(spec, run.inputs, unit)
    pictures = [(_name(size), picture) for size, of_size in planned.items() for picture in of_size]
    pictures += [(_held_out(number), picture) for number, (_, picture) in enumerate(held_out)]
    pictures += [(_of_class(size), picture) for size, of_size in of_class.items() for picture in of_size]
    latents = _latents(run, base, spec, fingerprint, pictures, orders)
    if latents is None:
        return None
    buckets = make_buckets(spec, planned, {size: latents[_name(size)] for size in planned})
    own = make_buckets(spec, of_class, {size: latents[_of_class(size)] for size in of_class}, len(spec.photos))
    texts = tokenize(base, _texts(spec, [*buckets, *own], held_out))
    spoken = _spoken(run, base, keys.embeddings_key(spec, fingerprint), texts)
    drawn = _class_images(run, base, spec, texts, spoken, orders)
    if drawn is None:
        return None
    class_images = [*drawn, *own]
    return TrainingInputs(
        photos=buckets,
        class_images=class_images,
        held_out=[
            HeldOut(file.path, picture.caption.text, latents[_held_out(number)])
            for number, (file, picture) in enumerate(held_out)
        ],
        words=TextBatches(texts, None if spec.train_text_encoder else spoken),
        spoken=spoken,
        shown=_shown(run, base, spec, fingerprint, texts, spoken),
        digest=_digest([bucket.latents for bucket in (*buckets, *class_images)], spoken),
    )


def _texts(spec: LoraSpec, buckets: list[AspectBucket], held_out: list[tuple[File, Example]]) -> list[str]:
    """Return all texts to train on, to draw or to measure with, and the empty text."""
    of_photos = [text for bucket in buckets for variants in bucket.texts for text in variants]
    of_photos += [picture.caption.text for _, picture in held_out]
    shown = (preview.prompt for preview in previews_of(spec))
    prompts = [text for subject in spec.all_subjects for text in (subject.prompt, subject.class_prompt) if text]
    return [*of_photos, *prompts, *shown, ""]


def _latents(
    run: RunDirectory,
    base: LoadedBase,
    spec: LoraSpec,
    fingerprint: dict[str, str],
    pictures: list[tuple[str, Example]],
    orders: Orders,
) -> dict[str, Latents] | None:
    """Return the latents of all pictures that share a name, or None after an order to stop. A shard that is prepared is not encoded
    again."""
    found: dict[str, list[Latents]] = {}
    most = max(1, keys.VIEWS_IN_SHARD // max(len(picture.views) for _, picture in pictures))
    shards = _shards(pictures, most)
    there = [prepared.find_prepared(run, keys.latents_key(spec, fingerprint, shard)) for shard in range(len(shards))]
    missing = [picture.asked for some, folder in zip(shards, there, strict=True) if not folder for _, picture in some]
    with closing(decoded(missing, processes_for(len(missing), cores()))) as ahead:
        for shard, (some, folder) in enumerate(zip(shards, there, strict=True)):
            names = dict.fromkeys(name for name, _ in some)
            if folder is None:
                if orders.stop:
                    return None
                made = {
                    name: encode_examples(base, [picture for of, picture in some if of == name], ahead)
                    for name in names
                }
                key = keys.latents_key(spec, fingerprint, shard)
                prepared.write_prepared(run, key, {name: _as_tensors(latents) for name, latents in made.items()})
            else:
                made = {name: Latents(**prepared.read_prepared(folder, name)) for name in names}
            for name, latents in made.items():
                found.setdefault(name, []).append(latents)
    return {
        name: concatenated(found.pop(name)) for name in [*found]
    }  # one size at a time, so that only its parts are in memory twice


def _name(size: Size) -> str:
    return f"{size.width}x{size.height}"


def _of_class(size: Size) -> str:
    return f"class-{_name(size)}"


def _held_out(number: int) -> str:
    return f"held-out-{number}"


def _shown(
    run: RunDirectory, base: LoadedBase, spec: LoraSpec, fingerprint: dict[str, str], texts: Texts, spoken: Embedded
) -> TextBatches:
    """Return the texts of previews, in as many pieces as a worker has that renders them alone."""
    shown = tokenize(base, texts_to_show(spec))
    if spec.train_text_encoder:
        return TextBatches(shown, None)
    if shown.pieces == texts.pieces and {*shown.texts} <= {*texts.texts}:
        return TextBatches(shown, spoken[[texts.index(text) for text in shown.texts]])
    return TextBatches(shown, _spoken(run, base, keys.embeddings_key(spec, fingerprint, keys.SHOWN), shown))


def _spoken(run: RunDirectory, base: LoadedBase, key: str, texts: Texts) -> Embedded:
    folder = prepared.find_prepared(run, key)
    if folder is None:
        prepared.need(run, TEXT_ENCODERS)
        embedded = embed_all(base, texts)
        tensors = {"tokens": embedded.tokens} | ({} if embedded.pooled is None else {"pooled": embedded.pooled})
        prepared.write_prepared(run, key, {TEXTS: tensors})
        return embedded
    tensors = prepared.read_prepared(folder, TEXTS)
    return Embedded(tensors["tokens"], tensors.get("pooled"))


def _class_images(
    run: RunDirectory, base: LoadedBase, spec: LoraSpec, texts: Texts, spoken: Embedded, orders: Orders
) -> list[AspectBucket] | None:
    """Return images of each subject's class as the base draws them, or None after an order to stop."""
    found = list[AspectBucket]()
    for subject in spec.all_subjects:
        if subject.class_images_drawn:
            mean = _drawn(run, base, spec, subject, texts, spoken, orders)
            if mean is None:
                return None
            side, count = float(spec.resolution), len(mean)
            sizes = torch.tensor([[side, side, 0, 0, side, side]]).repeat(count, 1)
            latents = Latents(mean=mean, deviation=torch.zeros_like(mean), sizes=sizes)
            said, of = ((subject.class_prompt or "",),) * count, (subject.number,) * count
            found.append(AspectBucket(latents, 1, tuple(range(count)), said, of))
    return found


def _drawn(
    run: RunDirectory,
    base: LoadedBase,
    spec: LoraSpec,
    subject: Subject,
    texts: Texts,
    spoken: Embedded,
    orders: Orders,
) -> torch.Tensor | None:
    """Return a class as the base draws it, kept as latents in shards: they need not be decoded and encoded again."""
    assert subject.class_prompt is not None
    words, silence = spoken[[texts.index(subject.class_prompt)]], spoken[[texts.index("")]]
    found = []
    for shard, numbers in enumerate(_shards(range(subject.class_images_drawn), keys.CLASS_IMAGES_IN_SHARD)):
        key = keys.class_images_key(spec, shard, number=subject.number)
        folder = prepared.find_prepared(run, key)
        if folder is None:
            drawn = []
            for number in numbers:
                if orders.stop:
                    return None
                drawn.append(_draw(base, spec, words, silence, number))
                _tell(subject, number)
            folder = prepared.write_prepared(run, key, {LATENTS: {"mean": torch.cat(drawn)}})
        found.append(prepared.read_prepared(folder, LATENTS)["mean"])
    return torch.cat(found)


def _tell(subject: Subject, number: int) -> None:
    of = f" of {subject.folder}" if subject.folder else ""
    print(f"class image {number + 1} of {subject.class_images_drawn}{of}", file=sys.stderr)  # noqa: T201 - the job's log


def _draw(base: LoadedBase, spec: LoraSpec, words: Embedded, silence: Embedded, number: int) -> torch.Tensor:
    drawing = class_drawing_of(base, spec)
    drawn = sample_latents(base, drawing, words, silence, number, "class image").float().cpu()
    if not drawn.isfinite().all():
        raise BadInput(
            "the base draws class images with values that are not finite", hint="try --precision bf16 or fp32"
        )
    return drawn


def _shards(pieces: Sequence[Piece], most: int) -> list[Sequence[Piece]]:
    return [pieces[start : start + most] for start in range(0, len(pieces), most)]


def _as_tensors(latents: Latents) -> Tensors:
    tensors = {"mean": latents.mean, "deviation": latents.deviation, "sizes": latents.sizes}
    return tensors if latents.mask is None else tensors | {"mask": latents.mask}


def _digest(latents: list[Latents], spoken: Embedded) -> str:
    """Return a digest of the inputs: tensors that were prepared elsewhere may differ in their last bits, which makes it another run."""
    total = blake2b(digest_size=16)
    tensors = [tensor for one in latents for tensor in _as_tensors(one).values()]
    for tensor in (*tensors, spoken.tokens, *([] if spoken.pooled is None else [spoken.pooled])):
        total.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()
