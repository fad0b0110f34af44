"""Two small models beside each other: `python benchmarks/tiny_model.py ONE OTHER emoji.lance --pictures FOLDER`.

Each is a folder in diffusers' layout; FOLDER gets what both make of the same prompts and seeds, and of the subject. On the rows that
tiny_sdxl.toml holds out, of all categories and of those that the first tiny model was trained on:
  loss      of the noise that is predicted, at noise and timesteps that stay, in each model's own latents: what training reports of a
            model that predicts noise, and the same of one that predicts the velocity
  vae_db    how near pictures come back through its VAE, in dB
  clean_db  how near the clean picture comes that follows from the noise predicted, at a quarter, half and three quarters of the way
Then each learns examples/subject by recipes/tiny_subject.toml, but for one photo: the loss and clean_db of that one before and after.
`--reports vae/report.json unet/report.json` draws what was held out while the model was made.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import json
import shutil
import time
from dataclasses import replace
from hashlib import sha256
from tempfile import TemporaryDirectory
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline
from tests.data.made import converted
from tests.inputs import ROOT, SUBJECT, file_at

from gangline.cli.admin.box import Box
from gangline.cli.jobs.follow import follow_job, wait_for_pictures
from gangline.cli.jobs.train import read_recipe, upload_inputs
from gangline.cli.tools.estimate.figure import STYLE
from gangline.compose.buckets import data_place
from gangline.core.charts.colours import HUES
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.phases import DataRef, TrainingPhase
from gangline.core.specs.sample import previews_of, texts_to_show
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.dataset import DataSet, open_data_set
from gangline.data.images.grid import GridRow, draw_grid
from gangline.train.model.base import LoadedBase, base_at
from gangline.train.model.sample import render
from gangline.train.model.text import condition, embed, embed_all, tokenize, with_silence
from gangline.train.run.ranks import Ranks
from gangline.train.scratch.batches import ScratchBatch, ScratchBatches
from gangline.train.scratch.denoiser import in_floats

HELD_OUT = "sha256 < '08'"
FIRST = "category in ('Smileys and Emotion', 'Animals and Nature', 'Food and Drink')"
WHERE = {"all": "true", "first": FIRST}
ROWS_MAX, AT_A_TIME, RESOLUTION = 1000, 16, 64
PROMPTS = (
    "cat face, noto emoji",
    "crying face, noto emoji",
    "grinning face, fluent emoji",
    "red apple, fluent emoji",
    "dog face, fluent emoji",
    "pizza, noto emoji",
    "red car, fluent emoji",
    "house, noto emoji",
)
SEEDS = (1, 2, 3)
RECIPE, PHOTO = ROOT / "recipes" / "tiny_subject.toml", "crying-cat.png"
THIS_PHOTO, DRAWS = f"sha256 = '{sha256((SUBJECT / PHOTO).read_bytes()).hexdigest()}'", 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs=2, type=Path)
    parser.add_argument("data")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    parser.add_argument("--reports", nargs="+", type=Path, default=[], metavar="FILE", help="with --pictures")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = open_data_set(data_place(asked.data))
    print(f"{'model':24} {'rows':>12} {'loss':>8} {'vae_db':>7} {'clean_db':>9}")
    for folder in asked.models:
        for name, where in WHERE.items():
            rows, loss, vae_db, clean_db = measured(folder, data, where)
            print(f"{folder.name:24} {rows:>6} {name:>5} {loss:8.4f} {vae_db:7.2f} {clean_db:9.2f}", flush=True)
    print(f"\n{'model':24} {'photo':>7} {'loss':>8} {'clean_db':>9} {'seconds':>8}")
    for folder in asked.models:
        with TemporaryDirectory() as made:
            seconds, grid, lora = taught(folder, Path(made))
            photos = as_data(Path(made))
            for name, weights in {"before": None, "after": lora}.items():
                _, loss, _, clean_db = measured(folder, photos, "true", held_out=THIS_PHOTO, lora=weights)
                print(f"{folder.name:24} {name:>7} {loss:8.4f} {clean_db:9.2f} {seconds:8.0f}", flush=True)
        if asked.pictures:
            (asked.pictures / f"subject-{folder.name}.png").write_bytes(grid)
    if asked.pictures:
        columns = [f"{folder.name}, {seed}" for folder in asked.models for seed in SEEDS]
        drawn = [pictures(folder, data) for folder in asked.models]
        rows = [GridRow(prompt, [one for each in drawn for one in each[prompt]]) for prompt in PROMPTS]
        draw_grid(rows, columns).save(asked.pictures / "side-by-side.png")
        if asked.reports:
            curves([json.loads(path.read_text())["held_out"] for path in asked.reports], asked.pictures / "curves.svg")


def spec_of(folder: Path, data: DataSet, held_out: str = HELD_OUT, **settings: Any) -> ScratchSpec:
    files = tuple(file_at(path, folder) for path in sorted(folder.rglob("*")) if path.is_file())
    phase = TrainingPhase(steps=1, resolution=RESOLUTION, batch_size=AT_A_TIME, latents="off", **settings)
    return ScratchSpec(
        base=FilesBase(files=files),
        data=(DataRef(place=data.place.uri, id=data.info.id, version=data.version),),
        phases=(phase,),
        held_out=held_out,
        held_out_rows=ROWS_MAX,
        guidance_scale=3.0,
        precision="fp32",
    )


@torch.no_grad()
def measured(
    folder: Path, data: DataSet, where: str, *, held_out: str = HELD_OUT, lora: Path | None = None
) -> tuple[int, float, float, float]:
    spec = spec_of(folder, data, held_out, where=where)
    base = base_at(folder, spec, torch.device("cpu"), torch.float32)
    if lora:
        pipeline = StableDiffusionXLPipeline.from_pretrained(folder)
        pipeline.load_lora_weights(lora)
        base.__dict__["unet"] = pipeline.unet
    samples, rows = ScratchBatches(spec, base, [data], Ranks()).held_out()
    pieces = list(samples.pieces(AT_A_TIME))
    losses = torch.cat([error_of_noise(base, piece) for piece in pieces])
    back = torch.cat([decibels(through(base, latents_of(base, piece)), in_floats(piece)) for piece in pieces])
    clean = torch.cat(
        [
            decibels(through(base, predicted(base, piece, torch.full((len(piece),), at))[1]), in_floats(piece))
            for piece in pieces
            for at in (250, 500, 750)
        ]
    )
    return rows, losses.mean().item(), back.mean().item(), clean.mean().item()


def latents_of(base: LoadedBase, samples: ScratchBatch) -> torch.Tensor:
    return base.vae.encode(in_floats(samples)).latent_dist.mean * base.vae.config.scaling_factor


def error_of_noise(base: LoadedBase, samples: ScratchBatch) -> torch.Tensor:
    """Of each, (B,)."""
    return (predicted(base, samples, samples.timesteps)[0] - samples.noise).square().mean(dim=(1, 2, 3))


def predicted(base: LoadedBase, samples: ScratchBatch, timesteps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The noise in noisy latents, and the clean latents that follow from it (Ho et al. 2020, eq. 15; Salimans & Ho 2022, §4)."""
    kept = base.noise.alphas_cumprod[timesteps][:, None, None, None]
    signal, spread = kept**0.5, (1 - kept) ** 0.5
    noisy = signal * latents_of(base, samples) + spread * samples.noise
    told = condition(base, with_silence(base, embed(base, samples.ids), samples.said), samples.sizes)
    found = base.unet(noisy, timesteps, **told).sample
    if base.prediction_type == "v_prediction":
        return spread * noisy + signal * found, signal * noisy - spread * found
    return found, (noisy - spread * found) / signal


def through(base: LoadedBase, latents: torch.Tensor) -> torch.Tensor:
    return base.vae.decode(latents / base.vae.config.scaling_factor).sample.clamp(-1, 1)


def decibels(pictures: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Of each, for values in [-1, 1]."""
    return 10 * torch.log10(4 / (pictures - like).square().mean(dim=(1, 2, 3)))


@torch.no_grad()
def pictures(folder: Path, data: DataSet) -> dict[str, list[Any]]:
    spec = replace(spec_of(folder, data), sample_prompts=tuple(PROMPTS))
    base = base_at(folder, spec, torch.device("cpu"), torch.float32)
    texts = tokenize(base, texts_to_show(spec))
    spoken = embed_all(base, texts)
    return {
        preview.prompt: [render(base, spec, texts, spoken, preview, seed) for seed in SEEDS]
        for preview in previews_of(spec)
    }


def taught(base: Path, folder: Path) -> tuple[float, bytes, Path]:
    """By a service and a node of this machine: how long it took, the pictures, and the LoRA."""
    with Box(folder / "box", lease_s=45, heartbeat_interval_s=5) as box:
        box.start_node("node")
        spec = upload_inputs(box.client, SUBJECT, str(base), [PHOTO], read_recipe(RECIPE))
        job, began_s = box.client.jobs.submit(spec).summary.id, time.monotonic()
        found = follow_job(box.client, job)
        seconds = time.monotonic() - began_s
        assert found.summary.state == "succeeded", found.summary.because
        wait_for_pictures(box.client, job)
        for artifact in box.client.artifacts.list(job):
            box.client.files.download(artifact, folder / "results")
    return seconds, (folder / "results" / "samples" / "grid.png").read_bytes(), folder / "results"


def as_data(folder: Path) -> DataSet:
    """The subject's photos, the one that is held out many times: each with a noise and a timestep of its own."""
    photos, prompt = folder / "photos", read_recipe(RECIPE)["prompt"]
    photos.mkdir()
    for path in SUBJECT.iterdir():
        for number in range(DRAWS if path.name == PHOTO else 1):
            copy = photos / f"{path.stem}-{number}{path.suffix}"
            shutil.copyfile(path, copy)
            copy.with_suffix(".txt").write_text(prompt)
    return converted(photos, folder / "photos.lance")[0]


def curves(reports: list[list[dict[str, float]]], file: Path) -> None:
    """What was measured of the rows held out, by step: one panel for each training."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        figure = Figure(figsize=(3.6 * len(reports), 2.8), layout="constrained")
        panels = figure.subplots(1, len(reports), squeeze=False)[0]
        for axes, report in zip(panels, reports, strict=True):
            (name,) = report[0].keys() - {"step"}
            found = [one for one in report if one["step"]]
            axes.plot(
                [one["step"] for one in found], [one[name] for one in found], color=HUES[0], marker="o", markersize=3
            )
            axes.set(xlabel="step", title=name.replace("_", " "))
        figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
