"""Columns of latents that another tool made: describe them, and check that the named VAE made them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from gangline.core.errors import BadInput
from gangline.core.words import counted
from gangline.data.making.fetch import Fetching, fetched
from gangline.data.place import Entry
from gangline.data.sources.drawn import Drawn, resolution_of
from gangline.data.sources.item import Item
from gangline.data.sources.tables import TableSource
from gangline.train.encoding.encoder import Encoder, Encoding

SHOWN = 8
PIECE = 8192
"""Rows of a shard. Smaller shards would make a long list for a large source, although only the first shards are read."""
DRAWS, SMALLER = 2.0, 0.5
"""How far given latents may be from the VAE's mean: this many standard deviations, plus this share of their size for differences in
resizing."""


def drawn_elsewhere(
    source: TableSource, entries: list[Entry], base: Path, resolutions: Sequence[int], scaled_by: float | None
) -> TableSource:
    """Return the source with its columns `latents_512` and the like, at these resolutions or all that it has, as made by the VAE of `base`.

    They were multiplied by `scaled_by`, by default the VAE's scale. Raise `BadInput` if the first images show another VAE or another scale:
    their latents are farther from this VAE's mean than its noise and another way of resizing explain.
    """
    there = {resolution_of(name): name for name in source.latent_columns()}
    lacking = [f"latents_{resolution}" for resolution in resolutions if resolution not in there]
    if lacking or not there:
        raise BadInput(
            f"{source.place.uri} has no column {lacking[0] if lacking else 'of latents'}",
            hint=f"it has {', '.join(there.values())}" if there else "omit --latents-of",
        )
    chosen = tuple(resolutions or there)
    encoder = Encoder(Encoding(target=source.place, version=0, base=base, vae=None, resolutions=chosen))
    drawn = [
        Drawn(
            there[latents.resolution], replace(latents, compute_precision=None, drawn=True), scaled_by or latents.scale
        )
        for latents in encoder.latents.values()
    ]
    kept = source.with_latents(tuple(drawn))
    first = chain.from_iterable(map(kept.read, kept.shards(entries, PIECE)))
    whole = (item for item in fetched(first, source.place, Fetching()) if item.image and item.latents)
    shown = list(islice(whole, SHOWN))
    for one in drawn if shown else ():
        _check_drawn(one, shown, encoder)
    return kept


def _check_drawn(drawn: Drawn, shown: list[Item], encoder: Encoder) -> None:
    count, name = len(shown), drawn.column
    rows = {"image": [item.image for item in shown], "sha256": [""] * count, "captions": [[""]] * count}
    own = np.stack(encoder.encode(pa.record_batch(rows)).column(name).to_numpy(zero_copy_only=False)).astype(np.float32)
    mean, deviation = np.split(own, 2, axis=1)
    theirs = np.stack([item.latents[name][: mean.shape[1]] for item in shown]).astype(np.float32)
    apart, draws, spread = (np.sqrt(np.mean(np.square(of), axis=1)) for of in (theirs - mean, deviation, mean))
    if np.median(apart / (DRAWS * draws + SMALLER * spread)) > 1:
        raise BadInput(
            f"{drawn.name} was not made by this VAE, or not multiplied by {drawn.scale:g}: for the first {counted(count, 'image')} it "
            f"differs by {np.median(apart):.2g} from the VAE's own latents, whose size is {np.median(spread):.2g}",
            hint="give --latents-of the model whose VAE made them, and --latents-scaled-by their factor (1 if they were not multiplied)",
        )
