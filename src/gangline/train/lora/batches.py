"""The batches of a LoRA: those of each step are a function of its number alone.

Shape letters: B samples, C latent channels, H W latent sides, K pieces, L tokens, D width, P pooled width.
"""

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


class ExampleSource:
    """Photos in buckets. All randomness of their samples follows from `seed`; the samples of a step count `share` in its loss together."""

    def __init__(
        self,
        spec: LoraSpec,
        buckets: list[AspectBucket],
        words: TextBatches,
        *,
        seed: int,
        timesteps: TimestepSampler,
        share: float = 1,
    ) -> None:
        self._spec = spec
        self._buckets = buckets
        self._words = words
        self._seed = seed
        self._timesteps = timesteps
        self._share = share
        self._order = Order(seed, tuple(len(bucket.examples) for bucket in buckets), spec.batch_size)

    def batch(self, step: int) -> LoraBatch:
        """Return the batch of `step`, counted from 1."""
        size = self._spec.batch_size
        which, places = self._order.step(step)
        bucket = self._buckets[which]
        samples = range((step - 1) * size, step * size)
        photos = [bucket.examples[place] for place in places]
        seen = chance.integers(self._seed, "view", step, samples, bucket.views).tolist()
        rows = [photo * bucket.views + view for photo, view in zip(photos, seen, strict=True)]
        latents = bucket.latents
        drawn = chance.normal(self._seed, "posterior", step, samples, latents.shape)
        return LoraBatch(
            clean=latents.mean[rows] + latents.deviation[rows] * drawn,
            noise=self._noise(step, samples, latents.shape),
            timesteps=self._timesteps.draw(self._seed, step, samples),
            share=torch.full((size,), self._share / size),
            sizes=latents.sizes[rows],
            mask=None if latents.mask is None else latents.mask[rows],
            **self._words.batch(self._captions(bucket, photos, step, samples)),
        )

    def _noise(self, step: int, samples: range, shape: tuple[int, ...]) -> torch.Tensor:
        """Return noise (B, C, H, W), with an offset for each channel if the spec has one (Guttenberg 2023): without it brightness stays
        near the middle."""
        noise = chance.normal(self._seed, "noise", step, samples, shape)
        if not self._spec.noise_offset:
            return noise
        offset = chance.normal(self._seed, "noise offset", step, samples, (shape[0], 1, 1))
        return noise + self._spec.noise_offset * offset

    def _captions(self, bucket: AspectBucket, photos: list[int], step: int, samples: range) -> list[str]:
        chosen = []
        for photo, sample in zip(photos, samples, strict=True):
            rng = stream(self._seed, "caption", step, sample)
            variants = bucket.texts[photo]
            dropped, variant = rng.random() < self._spec.caption_drop, int(rng.integers(len(variants)))
            chosen.append("" if dropped else variants[variant])
        return chosen


def step_batches(sources: list[ExampleSource], step: int) -> list[LoraBatch]:
    """Return the batches of a step, counted from 1: one for each size."""
    return side_by_side([source.batch(step) for source in sources])


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
    rest = iter([tensor for batch in others for tensor in batch.tensors()])
    assert len(others) == 1, "photos of the subject and of its class"
    return first.each(lambda tensor: torch.cat([tensor, next(rest)]))


def _whole(batch: LoraBatch) -> torch.Tensor:
    return torch.ones(len(batch), 1, *batch.clean.shape[2:])
