"""Compute, once before the first step, the latents of every view of every photo, and the variants of every caption.

Shape letters: P photos, V views of each, C latent channels, H W latent sides.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from gangline.core.datasets.sidecars import sidecar_files
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sections.subjects import Subject
from gangline.data.chance import stream
from gangline.data.images.buckets import Size, View, nearest, targets, views
from gangline.data.images.captions import Caption, read_captions, shuffled, tags_of, thinned, with_choices
from gangline.data.images.decoding import Asked, DecodedView
from gangline.data.images.pixels import upright_size
from gangline.train.model.base import LoadedBase


@dataclass(frozen=True, slots=True)
class Latents:
    """The latents of pictures of one size, view by view: the VAE's posterior, `mean` and `deviation` (P·V, C, H, W), to draw from at every
    step; SDXL's six numbers of size and crop, `sizes` (P·V, 6); and, if there are masks, how much each latent counts, `mask` (P·V, 1, H,
    W)."""

    mean: torch.Tensor
    deviation: torch.Tensor
    sizes: torch.Tensor
    mask: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mean.shape[1:])


@dataclass(frozen=True)
class AspectBucket:
    """Photos of one size. `examples` are indices of photos, each as often as it repeats; `texts` are the caption variants of each photo,
    `subjects` the numbers of their subjects."""

    latents: Latents
    views: int
    examples: tuple[int, ...]
    texts: tuple[tuple[str, ...], ...]
    subjects: tuple[int, ...]

    @cached_property
    def of_subjects(self) -> Counter[int]:
        """How many of the examples show each subject."""
        return Counter(self.subjects[photo] for photo in self.examples)

    def of_subject(self, number: int) -> "AspectBucket":
        """Return the bucket with only the examples of this subject."""
        return replace(self, examples=tuple(photo for photo in self.examples if self.subjects[photo] == number))


@dataclass(frozen=True, slots=True)
class Example:
    """A photo and its views. `mask` is a separate file, or the photo itself, whose transparency is then the mask; `subject` is the number
    of its subject."""

    photo: Path
    mask: Path | None
    caption: Caption
    views: tuple[View, ...]
    subject: int

    @property
    def asked(self) -> Asked:
        return Asked(photo=self.photo, mask=self.mask, views=self.views)


@dataclass(frozen=True, slots=True)
class Captioned:
    """A photo's caption, with the repeats of its subject, and the number of that."""

    caption: Caption
    subject: int


def plan_pictures(spec: LoraSpec, inputs: Path, unit: int) -> dict[Size, list[Example]]:
    """Return every photo to train on, by the size that it is cut to."""
    photos: dict[str, Captioned] = {}
    own: dict[str, Path] = {}
    for subject in spec.all_subjects:
        photos |= _captioned(subject, subject.photos, inputs / "captions", subject.prompt, subject.repeats)
        masks = sidecar_files([file.path for file in subject.photos], [file.path for file in subject.masks])
        own |= {name: inputs / "masks" / mask for name, mask in masks.items()}
    if spec.mask == "alpha":
        own = {name: inputs / "photos" / name for name in photos}
    return _planned(spec, inputs / "photos", {file.path: photos[file.path] for file in spec.photos}, own, unit, "crops")


def plan_class_photos(spec: LoraSpec, inputs: Path, unit: int) -> dict[Size, list[Example]]:
    """Return the photos of all classes, cut and viewed like the others, but without masks."""
    photos: dict[str, Captioned] = {}
    for subject in spec.all_subjects:
        photos |= _captioned(subject, subject.class_photos, inputs / "class_captions", subject.class_prompt or "")
    of_class = {file.path: photos[file.path] for file in spec.class_photos}
    return _planned(spec, inputs / "class_photos", of_class, {}, unit, "class crops")


def _captioned(
    subject: Subject, files: tuple[File, ...], captions: Path, prompt: str, repeats: int = 1
) -> dict[str, Captioned]:
    """Return these photos of a subject. Captions are read below its folder, so its own name is no words of theirs."""
    names = {subject.name_of(file): file.path for file in files}
    found = read_captions(captions / subject.folder, [*names], prompt)
    return {
        names[name]: Captioned(replace(caption, repeats=caption.repeats * repeats), subject.number)
        for name, caption in found.items()
    }


def _planned(
    spec: LoraSpec, folder: Path, photos: dict[str, Captioned], masks: dict[str, Path], unit: int, purpose: str
) -> dict[Size, list[Example]]:
    """Plan the photos in their order. `purpose` names the random stream of their crops."""
    sizes = targets(spec.resolution, spec.aspect_buckets, unit)
    planned: dict[Size, list[Example]] = {}
    for number, (name, known) in enumerate(photos.items()):
        photo = folder / name
        size = _upright_size(photo)
        target = nearest(size, sizes)
        seen = views(
            size,
            target,
            crop=spec.crop,
            crops=spec.crops,
            flip=spec.flip,
            rng=stream(spec.seed, purpose, sample=number),
        )
        example = Example(photo, masks.get(name), known.caption, tuple(seen), known.subject)
        planned.setdefault(target, []).append(example)
    return planned


def plan_held_out(spec: LoraSpec, inputs: Path, unit: int) -> Iterator[tuple[File, Example]]:
    """Yield each held-out photo, seen once, from its centre, with its caption; of a wildcard it has the first choice."""
    sizes = targets(spec.resolution, spec.aspect_buckets, unit)
    known: dict[str, Captioned] = {}
    for subject in spec.all_subjects:
        known |= _captioned(subject, subject.held_out, inputs / "captions", subject.prompt)
    for file in spec.held_out:
        photo = inputs / "held_out" / file.path
        size = _upright_size(photo)
        caption = known[file.path].caption
        if spec.enable_wildcard:
            caption = replace(caption, text=with_choices(caption.text))
        yield file, Example(photo, None, caption, tuple(views(size, nearest(size, sizes))), known[file.path].subject)


def caption_variants(spec: LoraSpec, number: int, caption: Caption) -> tuple[str, ...]:
    """Return the texts of photo `number`: its caption, or texts drawn from it. They are drawn once, so that frozen encoders encode them
    once."""
    if not spec.captions_vary:
        return (caption.text,)
    return tuple(_variant(spec, number, variant, caption.text) for variant in range(spec.texts_per_caption))


def _variant(spec: LoraSpec, number: int, variant: int, text: str) -> str:
    """Return a text with a choice for each wildcard, and its tags in another order and without some of them."""

    def chance(purpose: str) -> np.random.Generator:
        return stream(spec.seed, purpose, variant, number)

    if spec.enable_wildcard:
        text = with_choices(text, chance("caption wildcard"))
    if not (spec.caption_shuffles or spec.caption_tag_dropout_rate):
        return text
    tags = tags_of(text, spec.caption_separator)
    kept, rest = tags[: spec.caption_keep], tags[spec.caption_keep :]
    if spec.caption_shuffles:
        rest = shuffled(rest, chance("caption shuffle"))
    rest = thinned(rest, spec.caption_tag_dropout_rate, chance("caption tags"))
    return ", ".join([*kept, *rest])


def make_buckets(
    spec: LoraSpec, planned: dict[Size, list[Example]], latents: dict[Size, Latents], number: int = 0
) -> list[AspectBucket]:
    """Return the buckets in order of size. `number` is the first photo's number among all that have captions."""
    made = []
    for size in sorted(planned):
        pictures = planned[size]
        texts = [caption_variants(spec, number + place, picture.caption) for place, picture in enumerate(pictures)]
        examples = [place for place, picture in enumerate(pictures) for _ in range(picture.caption.repeats)]
        of = tuple(picture.subject for picture in pictures)
        made.append(AspectBucket(latents[size], len(pictures[0].views), tuple(examples), tuple(texts), of))
        number += len(pictures)
    return made


@torch.no_grad()
def encode_examples(base: LoadedBase, pictures: list[Example], decoded: Iterator[list[DecodedView]]) -> Latents:
    """Return the latents of the pictures on the CPU, times the VAE's scaling factor. `decoded` yields the pixels of each picture in turn.

    Views are encoded one at a time, so that no view's bits depend on the others. Raise `BadInput` if the VAE gives numbers that are not
    finite.
    """
    means, deviations, sizes, masks = [], [], [], []
    scale = base.vae.config.scaling_factor
    for picture in pictures:
        for view, seen in zip(picture.views, next(decoded), strict=True):
            posterior = base.vae.encode(_pixels(seen).to(base.device, base.vae.dtype)).latent_dist
            mean = posterior.mean.float() * scale
            if not mean.isfinite().all():
                raise BadInput(
                    f"the base's VAE computes values that are not finite for {picture.photo.name} in {base.vae.dtype}",
                    hint="use another VAE (--vae), for SDXL madebyollin/sdxl-vae-fp16-fix",
                )
            means.append(mean.cpu())
            deviations.append((posterior.std.float() * scale).cpu())
            sizes.append(view.sizes)
            masks.append(_mask(seen, mean.shape[2:]))
    masked = any(mask is not None for mask in masks)
    whole = torch.ones(1, 1, *means[0].shape[2:])
    return Latents(
        mean=torch.cat(means),
        deviation=torch.cat(deviations),
        sizes=torch.tensor(sizes, dtype=torch.float32),
        mask=torch.cat([whole if mask is None else mask for mask in masks]) if masked else None,
    )


def concatenated(parts: list[Latents]) -> Latents:
    """Concatenate latents of one size."""
    masked = any(part.mask is not None for part in parts)
    return Latents(
        mean=torch.cat([part.mean for part in parts]),
        deviation=torch.cat([part.deviation for part in parts]),
        sizes=torch.cat([part.sizes for part in parts]),
        mask=torch.cat([_whole(part) if part.mask is None else part.mask for part in parts]) if masked else None,
    )


def _whole(latents: Latents) -> torch.Tensor:
    return torch.ones(len(latents), 1, *latents.shape[1:])


def _upright_size(photo: Path) -> Size:
    width, height = upright_size(photo)
    return Size(width=width, height=height)


def _pixels(seen: DecodedView) -> torch.Tensor:
    """Return the pixels as (1, 3, H, W) float32 in [-1, 1], with sides in pixels."""
    return torch.from_numpy(seen.pixels.astype(np.float32)).permute(2, 0, 1)[None] / 127.5 - 1


def _mask(seen: DecodedView, sides: torch.Size) -> torch.Tensor | None:
    """Return the mask as (1, 1, H, W), the mean over each latent's pixels."""
    if seen.mask is None:
        return None
    mask = torch.from_numpy(seen.mask.astype(np.float32) / 255)[None, None]
    return torch.nn.functional.adaptive_avg_pool2d(mask, (sides[0], sides[1]))
