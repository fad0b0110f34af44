"""Pictures of SDXL at 1024², 50 steps with guidance; beside diffusers' pipeline with the same weights and sampler."""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import patch

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import counted_from_nothing, lora_run, memory
from benchmarks.on_card.scale import Scale


def cases(scale: Scale) -> Iterator[Case]:
    for sampler in ("dpm++", "ddim"):
        yield Case(sampler, partial(both, scale, sampler))


def both(scale: Scale, sampler: str) -> Rows:
    import torch

    from gangline.core.specs.sample import previews_of
    from gangline.train.model import denoise
    from gangline.train.model.base import load_base
    from gangline.train.model.denoise import sampler_of
    from gangline.train.model.sample import render
    from gangline.train.model.text import embed_all, tokenize
    from gangline.train.run import numerics
    from gangline.train.run.contract import RunDirectory

    steps = 2 if scale.tiny else 50
    what = f"{scale.side}², {steps} steps of {sampler}"
    with lora_run(scale, sample_sampler=sampler, sample_steps=steps) as directory:
        spec = RunDirectory(directory).read_training()
        numerics.choose_kernels(repeatable=True)
        device = numerics.device()
        dtype = numerics.dtype_of(spec.precision, device)
        base = load_base(scale.sdxl.folder, device, dtype)
        (preview,) = previews_of(spec)
        texts = tokenize(base, [preview.prompt, ""])
        spoken = embed_all(base, texts)

        def draw() -> bytes:
            return render(base, spec, texts, spoken, preview, 1).tobytes()

        mine, replayed = timed(f"ours, {what}", draw)
        yield mine
        with patch.object(denoise, "Replayed", lambda compute: compute):
            row, launched = timed(f"ours, kernel by kernel, {what}", draw)
        yield row | {
            "equal bits": row["equal bits"] and launched == replayed,
            "times ours": row["s/picture"] / mine["s/picture"],
        }
        scheduler = sampler_of(base, sampler)
        base.forget("vae", "unet", "text_encoders")

    from diffusers import StableDiffusionXLPipeline

    numerics.choose_kernels(repeatable=False)
    pipeline = StableDiffusionXLPipeline.from_pretrained(scale.sdxl.folder, torch_dtype=dtype).to(device)
    pipeline.scheduler = scheduler
    pipeline.set_progress_bar_config(disable=True)

    def draw_as_they_do() -> bytes:
        generator = torch.Generator("cpu").manual_seed(1)
        sizes = {"width": scale.side, "height": scale.side, "num_inference_steps": steps}
        made: Any = pipeline(spec.prompt, generator=generator, guidance_scale=spec.guidance_scale, **sizes)
        return made.images[0].tobytes()

    theirs, _ = timed(f"diffusers' pipeline, {what}", draw_as_they_do)
    yield theirs | {"times ours": theirs["s/picture"] / mine["s/picture"]}


def timed(what: str, draw: Callable[[], bytes]) -> tuple[Figures, bytes]:
    """The first one, which chooses kernels, is not counted."""
    counted_from_nothing()
    taken, pictures = [], []
    for _ in range(3):
        started_s = time.perf_counter()
        pictures.append(draw())
        taken.append(time.perf_counter() - started_s)
    same = len(set(pictures)) == 1
    return {"what": what, "s/picture": statistics.median(taken[1:]), "equal bits": same} | memory(), pictures[0]
