"""All that a run is trained on, made once or found among what was prepared before: photos, class images, words, held out photos."""

import sys
from dataclasses import dataclass
from hashlib import blake2b

import torch

from gangline.core import prepared as keys
from gangline.core.bases import TEXT_ENCODERS
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.spec import LoraSpec
from gangline.data.buckets import Size
from gangline.train import prepared
from gangline.train.base import Base
from gangline.train.contract import Orders, RunDirectory
from gangline.train.denoise import sample_latents
from gangline.train.feed import Words
from gangline.train.prepare import (
    Bucket,
    Latents,
    Picture,
    encode,
    make_buckets,
    plan_held_out,
    plan_pictures,
)
from gangline.train.text import Embedded, Texts, embed_all, tokenize

Tensors = dict[str, torch.Tensor]
LATENTS = "latents"
TEXTS = "texts"
CLASS_SEED = 0


@dataclass(frozen=True, slots=True)
class Material:
    photos: list[Bucket]
    class_images: list[Bucket]
    held_out: list[tuple[File, Latents]]
    words: Words
    spoken: Embedded
    """Of `words.texts` as the frozen encoders say them: for pictures of the base."""
    digest: str


def gather(
    run: RunDirectory, base: Base, spec: LoraSpec, fingerprint: dict[str, str], orders: Orders
) -> Material | None:
    """None where there was an order to stop before all was there; what was made is kept."""
    unit = base.side_unit
    planned = plan_pictures(spec, run.inputs, unit)
    held_out = list(plan_held_out(spec, run.inputs, unit))
    latents = _latents(run, base, spec, fingerprint, planned, held_out)
    buckets = make_buckets(spec, planned, {size: latents[f"{size.width}x{size.height}"] for size in planned})
    texts = tokenize(base, _texts(spec, buckets))
    spoken = _spoken(run, base, spec, fingerprint, texts)
    class_images = _class_images(run, base, spec, texts, spoken, orders) if spec.class_prompt else []
    if class_images is None:
        return None
    return Material(
        photos=buckets,
        class_images=class_images,
        held_out=[(file, latents[f"held-out-{number}"]) for number, (file, _) in enumerate(held_out)],
        words=Words(texts, None if spec.train_text_encoder else spoken),
        spoken=spoken,
        digest=_digest([bucket.latents for bucket in (*buckets, *class_images)], spoken),
    )


def _texts(spec: LoraSpec, buckets: list[Bucket]) -> list[str]:
    """All that is trained on, or that pictures show; and silence."""
    of_photos = [text for bucket in buckets for variants in bucket.texts for text in variants]
    return [*of_photos, spec.prompt, *([spec.class_prompt] if spec.class_prompt else []), *spec.prompts_to_sample, ""]


def _latents(
    run: RunDirectory,
    base: Base,
    spec: LoraSpec,
    fingerprint: dict[str, str],
    planned: dict[Size, list[Picture]],
    held_out: list[tuple[File, Picture]],
) -> dict[str, Latents]:
    key = keys.latents_key(spec, fingerprint)
    folder = prepared.look(run, key)
    if folder is None:
        made = {f"{size.width}x{size.height}": encode(base, pictures) for size, pictures in planned.items()}
        made |= {f"held-out-{number}": encode(base, [picture]) for number, (_, picture) in enumerate(held_out)}
        prepared.keep(run, key, {name: _as_tensors(latents) for name, latents in made.items()})
        return made
    names = [f"{size.width}x{size.height}" for size in planned] + [f"held-out-{n}" for n in range(len(held_out))]
    return {name: _as_latents(prepared.read(folder, name)) for name in names}


def _spoken(run: RunDirectory, base: Base, spec: LoraSpec, fingerprint: dict[str, str], texts: Texts) -> Embedded:
    key = keys.embeddings_key(spec, fingerprint)
    folder = prepared.look(run, key)
    if folder is None:
        prepared.need(run, TEXT_ENCODERS)
        embedded = embed_all(base, texts)
        tensors = {"tokens": embedded.tokens} | ({} if embedded.pooled is None else {"pooled": embedded.pooled})
        prepared.keep(run, key, {TEXTS: tensors})
        return embedded
    tensors = prepared.read(folder, TEXTS)
    return Embedded(tensors["tokens"], tensors.get("pooled"))


def _class_images(
    run: RunDirectory, base: Base, spec: LoraSpec, texts: Texts, spoken: Embedded, orders: Orders
) -> list[Bucket] | None:
    """Pictures of the class as the base draws them, as latents: they need not be decoded to be encoded again."""
    assert spec.class_prompt is not None
    key = keys.class_images_key(spec)
    folder = prepared.look(run, key)
    if folder is None:
        words, silence = spoken[[texts.index(spec.class_prompt)]], spoken[[texts.index("")]]
        drawn = []
        for number in range(spec.class_images):
            if orders.stop:
                return None
            drawn.append(sample_latents(base, spec, words, silence, number, "class image").float().cpu())
            if not drawn[-1].isfinite().all():
                raise BadInput("the base draws class images that are not finite", hint="try --precision bf16 or fp32")
            print(f"class image {number + 1} of {spec.class_images}", file=sys.stderr)  # noqa: T201 - the job's log
        prepared.keep(run, key, {LATENTS: {"mean": torch.cat(drawn)}})
        mean = torch.cat(drawn)
    else:
        mean = prepared.read(folder, LATENTS)["mean"]
    side = float(spec.resolution)
    sizes = torch.tensor([[side, side, 0, 0, side, side]]).repeat(len(mean), 1)
    latents = Latents(mean=mean, deviation=torch.zeros_like(mean), sizes=sizes)
    return [Bucket(latents, 1, tuple(range(len(mean))), ((spec.class_prompt,),) * len(mean))]


def _as_tensors(latents: Latents) -> Tensors:
    tensors = {"mean": latents.mean, "deviation": latents.deviation, "sizes": latents.sizes}
    return tensors if latents.mask is None else tensors | {"mask": latents.mask}


def _as_latents(tensors: Tensors) -> Latents:
    return Latents(**tensors)


def _digest(latents: list[Latents], spoken: Embedded) -> str:
    """What was prepared elsewhere may differ in its last bits: then the run is another one."""
    total = blake2b(digest_size=16)
    tensors = [tensor for one in latents for tensor in _as_tensors(one).values()]
    for tensor in (*tensors, spoken.tokens, *([] if spoken.pooled is None else [spoken.pooled])):
        total.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return total.hexdigest()
