"""What `data encode` makes with Stable Diffusion 2: latents of JPEGs and embeddings of captions; beside the models alone."""

import hashlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import seconds_each
from benchmarks.on_card.scale import Scale

BATCH = 32
"""Pictures that are encoded at a time."""


def cases(scale: Scale) -> Iterator[Case]:
    """In float32, as it is by default, and in bfloat16."""
    for precision in ("float32",) if scale.tiny else ("float32", "bfloat16"):
        for side in scale.batches:
            yield Case(f"latents of {side}², {precision}", partial(latents, scale, side, precision))
    yield Case("text embeddings, float32", partial(texts, scale))


def latents(scale: Scale, side: int, precision: str) -> Rows:
    """From JPEGs of that side, decoded meanwhile; beside the VAE alone, on pixels that are on the card already."""
    import torch

    encoder = encoder_of(scale, (side,), precision)
    pixels = torch.rand(BATCH, 3, side, side, device=encoder.base.device, dtype=encoder.dtype)

    def alone() -> object:
        with torch.no_grad():
            return encoder.vae.encode(pixels).latent_dist.mean

    yield encoded(scale, f"latents of {side}², {precision}", "images/s", encoder, side, alone)


def texts(scale: Scale) -> Rows:
    """No caption comes twice; beside the text encoder alone, on tokens that are on the card already."""
    import torch

    encoder = encoder_of(scale, (), "float32")
    (network,) = encoder.base.text_encoders
    tokens = torch.randint(0, network.config.vocab_size, (BATCH, 77), device=encoder.base.device)

    def alone() -> object:
        with torch.no_grad():
            return network(tokens).last_hidden_state

    yield encoded(scale, "text embeddings, float32", "captions/s", encoder, 8, alone)


def encoder_of(scale: Scale, sides: tuple[int, ...], precision: str) -> Any:
    """Texts where there are no sides."""
    from gangline.data.place import DataPlace
    from gangline.train.encoding.encoder import Encoder, Encoding
    from gangline.train.run import numerics

    numerics.choose_kernels(repeatable=True)
    return Encoder(
        Encoding(
            target=DataPlace(str(scale.folder)),
            version=1,
            base=scale.sd2.folder,
            vae=None,
            resolutions=sides,
            texts=not sides,
            dtype=precision,
            batch_size=BATCH,
        )
    )


def encoded(scale: Scale, what: str, unit: str, encoder: Any, side: int, alone: Callable[[], object]) -> Figures:
    """The first batch is not counted, for either."""
    rows = rows_of(BATCH if scale.tiny else 16 * BATCH, side)
    encoder.encode(rows.slice(0, BATCH))
    started_s = time.perf_counter()
    encoder.encode(rows)
    rate = rows.num_rows / (time.perf_counter() - started_s)
    alone()
    theirs = BATCH / seconds_each(alone, 2 if scale.tiny else 16)
    return {"what": what, unit: rate, f"{unit}, the model alone": theirs, "% of that": 100 * rate / theirs}


def rows_of(count: int, side: int) -> Any:
    """As a data set has them. Blurred noise takes a decoder about as long as a photo does."""
    import numpy as np
    import pyarrow as pa
    from PIL import Image

    chance = np.random.default_rng(0)
    images = []
    for _ in range(count):
        small = Image.fromarray(chance.integers(0, 256, (side // 8, side // 8, 3), dtype=np.uint8))
        small.resize((side, side), Image.Resampling.BICUBIC).save(file := BytesIO(), "JPEG", quality=90)
        images.append(file.getvalue())
    hashes = [hashlib.sha256(image).hexdigest() for image in images]
    captions = [[f"blurred noise, number {number}"] for number in range(count)]
    return pa.record_batch({"image": images, "sha256": hashes, "captions": captions})
