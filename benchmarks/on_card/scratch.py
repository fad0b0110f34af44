"""Stable Diffusion 2's U-Net from nothing, on latents and embeddings that are on the card; beside what is published of an A100."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.runs import counted_from_nothing, memory, scratch_run, seconds_each
from benchmarks.on_card.scale import Scale

PUBLISHED = {256: 137.5, 512: 36.3}
"""Images a second of one A100, at the sides of the two phases (MosaicML, "Training Stable Diffusion from Scratch Costs <$160k", 2023)."""


def cases(scale: Scale) -> Iterator[Case]:
    yield from cases_of(scale, {"": {}, "exact off": {"exact": "off"}})


def compiled_cases(scale: Scale) -> Iterator[Case]:
    """On a card alone: on a processor it takes minutes and shows nothing."""
    if not scale.tiny:
        yield from cases_of(scale, {"exact off, compiled": {"exact": "off", "compile": True}})


def cases_of(scale: Scale, kinds: dict[str, dict[str, Any]]) -> Iterator[Case]:
    for kind, settings in kinds.items():
        for side, batch in scale.batches.items():
            name = ", ".join(filter(None, (f"{side}², batch {batch}", kind)))
            yield Case(name, partial(trained, scale, name, side, batch, settings))


def trained(scale: Scale, what: str, side: int, batch: int, settings: dict[str, Any]) -> Rows:
    """As its trainer takes a step, but for the data set that is read meanwhile (benchmarks/loader.py measures that)."""
    from gangline.core.specs.phases import TrainingPhase, moment_of_step
    from gangline.train.learning.learner import Learner
    from gangline.train.model.base import base_at
    from gangline.train.run import numerics
    from gangline.train.run.contract import RunDirectory
    from gangline.train.run.ranks import Ranks
    from gangline.train.scratch.denoiser import Denoiser

    count = 2 if scale.tiny else 8
    phase = TrainingPhase(steps=count, resolution=side, batch_size=batch, latents="required")
    with scratch_run(scale, phases=(phase,), **settings) as directory:
        spec = RunDirectory(directory).read_training()
        numerics.choose_kernels(repeatable=spec.exact != "off", precision=spec.precision)
        device = numerics.device()
        dtype = numerics.dtype_of(spec.precision, device)
        base = base_at(scale.sd2.folder, spec, device, dtype)
        learner = Learner(Denoiser(base, spec), spec, Ranks(), device, dtype)
        samples, at = [samples_of(learner, side, batch)], moment_of_step(spec.phases, 1)
        learner.fit(at, samples)
        counted_from_nothing()  # but for what was tried
        seconds_each(lambda: learner.step(at, samples), 2)
        step_s = seconds_each(lambda: learner.step(at, samples), count)
    row = {"what": what, "s/step": step_s, "images/s": batch / step_s, "microbatch": learner.microbatch} | memory()
    if published := PUBLISHED.get(side):
        row |= {"images/s of an A100, published": published, "times that": row["images/s"] / published}
    yield row


def samples_of(learner: Any, side: int, batch: int) -> Any:
    """Random numbers of the shapes and kinds that a data set's columns have."""
    import torch

    from gangline.train.scratch.denoiser import ScratchBatch

    config, device = learner.network.base.unet.config, learner.device
    torch.manual_seed(0)
    latent_side = side // learner.network.base.latent_factor
    shape = (batch, config.in_channels, latent_side, latent_side)
    return ScratchBatch(
        share=torch.full((batch,), 1 / batch, device=device),
        numbers=torch.arange(batch, device=device),
        pixels=None,
        posterior=torch.rand(batch, 2, *shape[1:], device=device),
        drawn=torch.randn(shape, device=device),
        noise=torch.randn(shape, device=device),
        timesteps=torch.randint(0, 1000, (batch,), device=device),
        sizes=torch.tensor([[side, side, 0, 0, side, side]] * batch, dtype=torch.float32, device=device),
        said=torch.ones(batch, dtype=torch.bool, device=device),
        ids=(),
        words=(torch.randn(batch, 77, config.cross_attention_dim, device=device),),
    )
