"""A VAE that is trained on a data set reconstructs pictures that it never saw, and says how far its latents spread."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import AutoencoderKL, StableDiffusionPipeline

from gangline.core.runs.contract import EXIT_STOPPED, FINISH
from gangline.core.specs.phases import TrainingPhase
from gangline.data.dataset import DataSet
from gangline.train.model.base import base_at
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks
from gangline.train.scratch.batches import ScratchBatches, open_data
from gangline.train.scratch.denoiser import ScratchBatch, in_floats
from gangline.train.scratch.trainer import run_scratch_trainer
from gangline.train.scratch.vae import standardise
from tests.train.bases import save_tiny
from tests.train.sets import data_set, finish, lay_out, report_of, scratch_spec


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, base: Path, data: DataSet) -> RunDirectory:
    spec = scratch_spec(
        base,
        data,
        part="vae",
        new=("vae",),
        phases=(TrainingPhase(steps=40, resolution=32, batch_size=8),),
        learning_rate=2e-3,
        checkpoint_every_steps=None,
    )
    return finish(lay_out(tmp_path_factory.mktemp("vae") / "run", spec, base))


def test_pictures_that_it_never_saw_come_back_better(trained: RunDirectory) -> None:
    first, last = (one["held_out_psnr"] for one in report_of(trained)["held_out"])
    assert last > first + 5


def pictures_of(run: RunDirectory) -> ScratchBatch:
    spec = run.read_training()
    base = base_at(run.inputs / "base", spec, torch.device("cpu"), torch.float32)
    return ScratchBatches(spec, base, open_data(spec, run.inputs), Ranks()).first_pictures(1024)


@torch.no_grad()
def drawn(vae: AutoencoderKL, samples: ScratchBatch) -> torch.Tensor:
    posterior = vae.encode(in_floats(samples)).latent_dist
    return posterior.mean + posterior.std * samples.drawn


def test_its_latents_lie_as_noise_does_in_every_channel_and_the_pipeline_loads_it(trained: RunDirectory) -> None:
    latents = drawn(AutoencoderKL.from_pretrained(trained.output / "vae"), pictures_of(trained))
    assert latents.mean(dim=(0, 2, 3)) == pytest.approx([0.0] * latents.shape[1], abs=1e-3)
    assert latents.std(dim=(0, 2, 3)) == pytest.approx([1.0] * latents.shape[1], rel=1e-3)
    pipeline = StableDiffusionPipeline.from_pretrained(trained.output, local_files_only=True)
    assert pipeline.vae.config.scaling_factor == 1


@torch.no_grad()
def test_pictures_come_back_as_before_when_latents_are_standardised(trained: RunDirectory, base: Path) -> None:
    samples = pictures_of(trained)
    vae = AutoencoderKL.from_pretrained(base / "vae")
    before = vae.decode(drawn(vae, samples)).sample
    standardise(vae, samples, 8, by_channel=True)
    assert torch.allclose(vae.decode(drawn(vae, samples)).sample, before, atol=1e-5)


def test_a_vae_that_was_trained_before_keeps_its_channels(trained: RunDirectory, base: Path) -> None:
    samples = pictures_of(trained)
    vae = AutoencoderKL.from_pretrained(base / "vae")
    latents = drawn(vae, samples)
    standardise(vae, samples, 8, by_channel=False)
    assert torch.equal(drawn(vae, samples), latents)
    assert (latents * vae.config.scaling_factor).std() == pytest.approx(1, rel=1e-3)


@pytest.mark.tenths
def test_an_interrupted_run_ends_with_the_same_bits(tmp_path: Path, trained: RunDirectory, base: Path) -> None:
    spec = replace(trained.read_training(), checkpoint_every_steps=7)
    run = lay_out(tmp_path / "run", spec, base)
    orders = Orders()

    class StopsInItsSecondSave(RunDirectory):
        def report_phase(self, phase: str) -> None:
            super().report_phase(phase)
            orders.stop |= phase == "saving" and self.step >= 14

    assert run_scratch_trainer(StopsInItsSecondSave(run.path), orders) == EXIT_STOPPED
    assert report_of(finish(run)) == report_of(trained)


def test_one_that_a_node_only_finishes_has_the_same_latents(tmp_path: Path, trained: RunDirectory, base: Path) -> None:
    """Without a step nothing has found out how many pictures fit into memory: the checkpoint says it."""
    spec = replace(trained.read_training(), checkpoint_every_steps=3)
    begun, run = (lay_out(tmp_path / name, spec, base) for name in ("begun", "run"))
    (begun.path / FINISH).touch()
    early = report_of(finish(begun))
    shutil.copytree(begun.checkpoints, run.resume)
    (run.path / FINISH).touch()
    assert report_of(finish(run)) == early and early["steps"] == 1
