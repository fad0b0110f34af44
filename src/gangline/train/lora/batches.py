"""The batches of a LoRA: those of each step are a function of its number alone.

Shape letters: B samples, C latent channels, H W latent sides, K pieces, L tokens, D width, P pooled width.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gangline.core.specs.lora import LoraSpec
from gangline.data.chance import stream
from gangline.data.reading.order import Order
from gangline.train.lora.prepare import AspectBucket
from gangline.train.model.text import Embedded, Texts
from gangline.train.model.timesteps import TimestepSampler
from gangline.train.run import chance
from gangline.train.run.sample_tensors import StepSamples


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraBatch(StepSamples):
    """B samples of one size: `clean` and `noise` (B, C, H, W), `timesteps` and `said` (B,), `sizes` (B, 6), `mask` (B, 1, H, W).

    `said` is False for empty texts. Texts are either embeddings, `tokens` (B, K·L, D) and `pooled` (B, P), or, if the encoders are trained,
    token ids for each encoder, `ids` (B, K, L).
    """

    clean: torch.Tensor
    noise: torch.Tensor
    timesteps: torch.Tensor
    sizes: torch.Tensor
    said: torch.Tensor
    mask: torch.Tensor | None
    tokens: torch.Tensor | None
    pooled: torch.Tensor | None
    ids: tuple[torch.Tensor, ...]

    @property
    def embedded(self) -> Embedded | None:
        return None if self.tokens is None else Embedded(self.tokens, self.pooled)


@dataclass(frozen=True, slots=True)
class TextBatches:
    """All texts of a run, tokenized, and embedded too if the encoders are frozen."""

    texts: Texts
    embedded: Embedded | None

    def batch(self, chosen: list[str]) -> dict[str, Any]:
        """Return the text fields of a `LoraBatch` for these texts."""
        places = [self.texts.index(text) for text in chosen]
        said = torch.tensor([text != "" for text in chosen])
        if self.embedded is None:
            return {"tokens": None, "pooled": None, "said": said, "ids": tuple(ids[places] for ids in self.texts.ids)}
        these = self.embedded[places]
        return {"tokens": these.tokens, "pooled": these.pooled, "said": said, "ids": ()}


@dataclass(frozen=True, slots=True)
class StepExamples:
    """Examples of a step: the photos of the bucket number `which`, by their places in it, and the number of the sample that each of them
    is."""

    which: int
    bucket: AspectBucket
    photos: list[int]
    samples: list[int]

    @property
    def subjects(self) -> list[int]:
        """The subject of each, by its number."""
        return [self.bucket.subjects[photo] for photo in self.photos]


class ExampleSource:
    """Photos in buckets. All randomness of their samples follows from `seed`. A sample counts in the loss of its step what `weights` has
    for its subject, divided by the size of a batch. The order of photos gives `at_a_time` of one bucket."""

    def __init__(
        self,
        spec: LoraSpec,
        buckets: list[AspectBucket],
        words: TextBatches,
        *,
        seed: int,
        timesteps: TimestepSampler,
        weights: Sequence[float],
        at_a_time: int,
    ) -> None:
        self._spec = spec
        self._buckets = buckets
        self._words = words
        self._seed = seed
        self._timesteps = timesteps
        self._weights = weights
        self._order = Order(seed, tuple(len(bucket.examples) for bucket in buckets), at_a_time)

    def batches(self, step: int) -> list[LoraBatch]:
        """Return the batch of `step`, counted from 1."""
        return [self.batch(step, self.examples(step))]

    def examples(self, step: int) -> StepExamples:
        which, places = self._order.step(step)
        bucket, size = self._buckets[which], len(places)
        return StepExamples(
            which, bucket, [bucket.examples[place] for place in places], [*range((step - 1) * size, step * size)]
        )

    def seen(self, step: int) -> Counter[int]:
        """Return how many examples of each subject the steps before `step` have."""
        found = Counter[int]()
        for bucket, (times, places) in zip(self._buckets, self._order.taken(step), strict=True):
            found.update({subject: times * count for subject, count in bucket.of_subjects.items()} if times else {})
            found.update(bucket.subjects[bucket.examples[place]] for place in places)
        return found

    def batch(self, step: int, of: StepExamples) -> LoraBatch:
        """Return the samples of these examples."""
        bucket, samples = of.bucket, of.samples
        seen = chance.integers(self._seed, "view", step, samples, bucket.views).tolist()
        rows = [photo * bucket.views + view for photo, view in zip(of.photos, seen, strict=True)]
        latents = bucket.latents
        drawn = chance.normal(self._seed, "posterior", step, samples, latents.shape)
        shares = [self._weights[subject] / self._spec.batch_size for subject in of.subjects]
        return LoraBatch(
            clean=latents.mean[rows] + latents.deviation[rows] * drawn,
            noise=self._noise(step, samples, latents.shape),
            timesteps=self._timesteps.draw(self._seed, step, samples),
            share=torch.tensor(shares),
            sizes=latents.sizes[rows],
            mask=None if latents.mask is None else latents.mask[rows],
            **self._words.batch(self._captions(bucket, of.photos, step, samples)),
        )

    def _noise(self, step: int, samples: list[int], shape: tuple[int, ...]) -> torch.Tensor:
        """Return noise (B, C, H, W), with an offset for each channel if the spec has one (Guttenberg 2023): without it brightness stays
        near the middle."""
        noise = chance.normal(self._seed, "noise", step, samples, shape)
        if not self._spec.noise_offset:
            return noise
        offset = chance.normal(self._seed, "noise offset", step, samples, (shape[0], 1, 1))
        return noise + self._spec.noise_offset * offset

    def _captions(self, bucket: AspectBucket, photos: list[int], step: int, samples: list[int]) -> list[str]:
        chosen = []
        for photo, sample in zip(photos, samples, strict=True):
            rng = stream(self._seed, "caption", step, sample)
            variants = bucket.texts[photo]
            dropped, variant = rng.random() < self._spec.caption_drop, int(rng.integers(len(variants)))
            chosen.append("" if dropped else variants[variant])
        return chosen


class ClassSource:
    """Images of the classes of several subjects. Each photo of a step is accompanied by one of its subject's class, if that has a class: by
    the sample of the same number. A subject's class images come in an order of their own, each as often as the others."""

    def __init__(self, photos: ExampleSource, classes: Mapping[int, ExampleSource]) -> None:
        """`classes` has the sources of classes, which give one image at a time, by the numbers of their subjects."""
        self._photos = photos
        self.classes = classes

    def batches(self, step: int) -> list[LoraBatch]:
        """Return the batches of `step`, counted from 1: one for each subject and size. Empty if no subject of the step has a class."""
        beside, seen = self._photos.examples(step), self._photos.seen(step)
        chosen: dict[tuple[int, int], StepExamples] = {}
        for subject, sample in zip(beside.subjects, beside.samples, strict=True):
            if subject not in self.classes:
                continue
            seen[subject] += 1
            image = self.classes[subject].examples(seen[subject])
            alike = chosen.setdefault((subject, image.which), replace(image, photos=[], samples=[]))
            alike.photos.extend(image.photos)
            alike.samples.append(sample)
        return [self.classes[subject].batch(step, images) for (subject, _), images in chosen.items()]


LoraSource = ExampleSource | ClassSource


def step_batches(sources: Sequence[LoraSource], step: int) -> list[LoraBatch]:
    """Return the batches of a step, counted from 1: one for each size."""
    return side_by_side([batch for source in sources for batch in source.batches(step)])


def side_by_side(batches: list[LoraBatch]) -> list[LoraBatch]:
    """Join batches whose latents have the same size, so that they share passes."""
    by_shape: dict[torch.Size, list[LoraBatch]] = {}
    for batch in batches:
        by_shape.setdefault(batch.clean.shape[1:], []).append(batch)
    return [_joined(alike) for alike in by_shape.values()]


def _joined(batches: list[LoraBatch]) -> LoraBatch:
    if len(batches) == 1:
        return batches[0]
    if any(batch.mask is not None for batch in batches):
        batches = [batch if batch.mask is not None else replace(batch, mask=_whole(batch)) for batch in batches]
    first, *others = batches
    rest = zip(*(batch.tensors() for batch in others), strict=True)
    return first.each(lambda tensor: torch.cat([tensor, *next(rest)]))


def _whole(batch: LoraBatch) -> torch.Tensor:
    return torch.ones(len(batch), 1, *batch.clean.shape[2:])
