"""What the trainer is given in a second, beside what a card consumes: `python benchmarks/loader.py intake` runs this.

The trainer's own `ScratchBatches`, made ahead as in a run: rows are read in their order, latents drawn, noise and timesteps made, captions
dropped and tokenised.
Stable Diffusion 2's shapes: 4 channels of 32² and 64², captions of twelve words, a batch of 256, one rank, as the trainer has it.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PUBLISHED = {256: (1100 / 8, 11_600 / 128), 512: (290 / 8, 4590 / 128)}
"""Images a second of one A100 with latents made before, of 8 and of 128 (README of github.com/mosaicml/diffusion)."""
TIMES = 30.0
"""Its authors' loader gave at least so many times what the model took ("Training Stable Diffusion from Scratch Costs <$160k", 2023)."""
BATCH, STEPS, WARM = 256, 12, 2
CHANNELS, FACTOR = 4, 8
WORDS = (
    "a",
    "photo",
    "of",
    "one",
    "small",
    "red",
    "house",
    "by",
    "the",
    "sea",
    "under",
    "grey",
    "clouds",
    "in",
    "winter",
)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """`rate`: samples a second that somebody gets who takes a step as soon as it is there. `cpu_ms`: of a sample, of all threads."""

    resolution: int
    rate: float
    cpu_ms: float


def make_base(folder: Path) -> Path:
    """Stable Diffusion 2 but for the widths of its networks: its tokenizer, and latents of an eighth of a picture's side."""
    from diffusers import AutoencoderKL
    from tests.train.bases import save_tiny

    save_tiny(folder, "sd2")
    AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(32,) * 4,
        latent_channels=CHANNELS,
        scaling_factor=0.18215,
    ).save_pretrained(folder / "vae")
    return folder


def make_data(to: Path, base: Path, resolution: int, rows: int) -> None:
    """Of random numbers: what they are changes no speed."""
    import lance
    import pyarrow as pa
    import torch
    from diffusers import AutoencoderKL

    from gangline.data.columns import LatentsColumn, described, latents_column
    from gangline.data.dataset import Info
    from gangline.train.model.digest import weights_digest

    vae = AutoencoderKL.from_pretrained(base / "vae", torch_dtype=torch.float32)
    side = resolution // FACTOR
    known = LatentsColumn(
        vae=weights_digest(vae),
        scale=vae.config.scaling_factor,
        shift=0.0,
        channels=CHANNELS,
        side=side,
        resolution=resolution,
        crop="center",
        precision="float16",
    )
    column = described(pa.field(latents_column(resolution, "center"), pa.list_(pa.float16(), known.numbers)), known)
    info = Info(id=f"made-{resolution}", plan="made", rows=rows, image_bytes=0, source="random numbers")
    texts, sizes = pa.list_(pa.string()), [pa.field("width", pa.int32()), pa.field("height", pa.int32())]
    schema = pa.schema(
        [pa.field("sha256", pa.string()), *sizes, pa.field("captions", texts), column], info.to_metadata()
    )
    rng = np.random.default_rng(0)

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, BATCH):
            count = min(BATCH, rows - first)
            numbers = rng.standard_normal((count, known.numbers), dtype=np.float32).astype(np.float16)
            said = [[" ".join(rng.choice(WORDS, 12))] for _ in range(count)]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([f"{first + number:064x}" for number in range(count)]),
                    pa.array([resolution] * count, pa.int32()),
                    pa.array([resolution] * count, pa.int32()),
                    pa.array(said, texts),
                    pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), known.numbers),
                ],
                schema=schema,
            )

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(to))


def measure(base: Path, place: Path, resolution: int) -> Taken:
    """In a process of its own."""
    import torch
    from benchmarks.random_bases import files_of
    from tests.train.sets import reference

    from gangline.core.specs.fields import FilesBase
    from gangline.core.specs.phases import TrainingPhase
    from gangline.core.specs.scratch import ScratchSpec
    from gangline.data.dataset import open_data_set
    from gangline.data.place import DataPlace
    from gangline.train.learning.prefetch import Prefetcher
    from gangline.train.model.base import base_at
    from gangline.train.run.ranks import Ranks
    from gangline.train.scratch.batches import ScratchBatches

    data = open_data_set(DataPlace(str(place)))
    spec = ScratchSpec(
        base=FilesBase(files=files_of(base)),
        data=(reference(data),),
        new=("unet",),
        phases=(TrainingPhase(steps=STEPS + WARM, resolution=resolution, batch_size=BATCH, latents="required"),),
        caption_drop=0.1,
    )
    device = torch.device("cpu")
    made_of = ScratchBatches(spec, base_at(base, spec, device, torch.float32), [data], Ranks())
    intake = Prefetcher(lambda step: [made_of.batch(step)], spec.steps, device)
    for step in range(1, WARM + 1):
        intake.step(step)
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    for step in range(WARM + 1, WARM + STEPS + 1):
        intake.step(step)
    took_s, cpu_s = time.perf_counter() - started_s, time.process_time() - started_cpu_s
    intake.close()
    made_of.close()
    # the step that was made ahead while the last warm one was awaited is not in this time
    made = (STEPS - 1) * BATCH
    return Taken(resolution=resolution, rate=made / took_s, cpu_ms=cpu_s / made * 1e3)


def show(rounds: dict[int, list[Taken]]) -> None:
    print(f"\n{'side':>5} {'samples/s':>10} {'by round':>20} {'CPU ms':>7}   A100 of 8, × less    of 128, × less")
    for resolution, found in rounds.items():
        rates = [one.rate for one in found]
        rate, cpu_ms = statistics.median(rates), statistics.median(one.cpu_ms for one in found)
        of_8, of_128 = PUBLISHED[resolution]
        print(
            f"{resolution:5} {rate:10,.0f} {f'{min(rates):,.0f} to {max(rates):,.0f}':>20} {cpu_ms:7.3f}   "
            f"{of_8:9.1f} {rate / of_8:9.0f} {of_128:11.1f} {rate / of_128:9.0f}"
        )
    print(f"× less: how many times a card's rate one rank's thread gives; {TIMES:.0f} was published of a loader")
