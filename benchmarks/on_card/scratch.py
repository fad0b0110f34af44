"""Latents and text embeddings of Stable Diffusion 2, and its U-Net trained on them, beside what is published of an A100."""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import SCRATCH, finish, pace_of, scratch_run, seconds_each
from benchmarks.on_card.scale import BATCH, Scale

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
            name = ", ".join(filter(None, (f"U-Net, {side}², batch {batch}", kind)))
            yield Case(name, partial(trained, scale, name, side, batch, settings))


def trained(scale: Scale, what: str, side: int, batch: int, settings: dict[str, Any]) -> Rows:
    from gangline.core.specs.phases import Phase

    data = with_columns(scale)
    phase = Phase(steps=4 if scale.tiny else 14, resolution=side, batch_size=batch, latents="required")
    with scratch_run(scale, data, phases=(phase,), **settings) as directory:
        finish(SCRATCH, directory)
        row = {"what": what} | pace_of(directory)
    if published := PUBLISHED.get(side):
        row |= {"images/s of an A100, published": published, "times that": row["images/s"] / published}
    yield row


def with_columns(scale: Scale) -> Any:
    from gangline.data.making.engine import Processes
    from gangline.train.scratch.encode import encode

    data = scale.captioned
    if data.computed():
        return data
    return encode(data, encoding_of(scale, tuple(scale.batches), scale.precision, texts=True), Processes(1))


def encoding_of(scale: Scale, sides: tuple[int, ...], precision: str, *, texts: bool) -> Any:
    from gangline.train.scratch.encoder import Encoding

    return Encoding(
        target=scale.captioned.place,
        version=scale.captioned.version,
        base=scale.sd2.folder,
        vae=None,
        resolutions=sides,
        texts=texts,
        dtype={"fp32": "float32", "bf16": "bfloat16"}[precision],
        batch_size=BATCH,
    )


def encode_cases(scale: Scale) -> Iterator[Case]:
    """In float32, as it is by default, and in bfloat16."""
    for precision in ("fp32",) if scale.tiny else ("fp32", "bf16"):
        for side in scale.batches:
            yield Case(f"latents of {side}², {precision}", partial(latents, scale, side, precision))
    yield Case("text embeddings", partial(texts, scale))


def latents(scale: Scale, side: int, precision: str) -> Rows:
    """From JPEGs of the larger side; beside the VAE alone, on pixels that are on the card already."""
    import torch

    from gangline.train.scratch.encoder import Encoder

    encoder = Encoder(encoding_of(scale, (side,), precision, texts=False))
    pixels = torch.rand(BATCH, 3, side, side, device=encoder.base.device, dtype=encoder.dtype)

    def alone() -> object:
        with torch.no_grad():
            return encoder.vae.encode(pixels).latent_dist.mean

    yield encoded(scale, f"latents of {side}², {precision}", encoder, "images/s", alone)


def texts(scale: Scale) -> Rows:
    """In the precision in which the encoder computes by default; beside the text encoder alone, on tokens that are on the card already."""
    import torch

    from gangline.train.scratch.encoder import Encoder

    encoder = Encoder(encoding_of(scale, (), "fp32", texts=True))
    (network,) = encoder.base.text_encoders
    tokens = torch.randint(0, network.config.vocab_size, (BATCH, 77), device=encoder.base.device)

    def alone() -> object:
        with torch.no_grad():
            return network(tokens).last_hidden_state

    yield encoded(scale, "text embeddings, fp32", encoder, "captions/s", alone)


def encoded(scale: Scale, what: str, encoder: Any, unit: str, alone: Callable[[], object]) -> Figures:
    """The first batch is not counted, for either."""
    table = scale.captioned.table
    rows = table.head(min(8 * BATCH, scale.pictures), columns=["image", "sha256", "captions"]).to_batches()[0]
    encoder.encode(rows.slice(0, BATCH))
    started_s = time.perf_counter()
    encoder.encode(rows)
    rate = rows.num_rows / (time.perf_counter() - started_s)
    alone()
    theirs = BATCH / seconds_each(alone, 2 if scale.tiny else 8)
    return {"what": what, unit: rate, f"{unit}, the model alone": theirs, "% of that": 100 * rate / theirs}
