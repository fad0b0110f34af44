"""Pictures on the way of a training from nothing: the first rank draws them alone, and where memory runs out nobody waits for it."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders.vae import Decoder

from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_DONE
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.scratch import ScratchSpec
from gangline.core.specs.spec import SampleSpec
from gangline.data.dataset import DataSet
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.sample_job import render_job
from gangline.train.scratch.launch import free_port
from gangline.train.scratch.trainer import run_scratch_trainer
from tests.train.bases import save_tiny
from tests.train.conftest import copy_to_render
from tests.train.sets import STARTS, data_set, finish, lay_out, needs_a_card_each, report_of, scratch_spec

FAILS = "GANGLINE_TEST_FAILS"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sdxl", "sdxl")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


def spec_of(base: Path, data: DataSet, **settings: Any) -> ScratchSpec:
    """Where the models are asked without being trained only for pictures."""
    of_texts = {"new": ("unet", "text_encoders"), "train_text_encoders": True}
    shown = {"sample_prompts": ("a red disc",), "sample_steps": 2, "sample_seeds": (1,)}
    phases = (TrainingPhase(steps=2, resolution=32, batch_size=2),)
    return scratch_spec(
        base, data, phases=phases, held_out="", checkpoint_every_steps=None, **of_texts, **shown, **settings
    )


def fail(module: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
    if type(module).__name__ == os.environ.get(FAILS) and not module.training:
        raise torch.OutOfMemoryError("CUDA out of memory")


def test_without_memory_for_pictures_training_goes_on_to_the_same_bits(
    tmp_path: Path, base: Path, data: DataSet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = spec_of(base, data)
    left_alone = finish(lay_out(tmp_path / "alone", spec, base))
    run = lay_out(tmp_path / "run", spec, base)
    monkeypatch.setenv(FAILS, Decoder.__name__)
    hook = torch.nn.modules.module.register_module_forward_pre_hook(fail)
    try:
        assert run_scratch_trainer(run, Orders(render=True)) == EXIT_DONE
    finally:
        hook.remove()
    assert "pictures of step 1 are skipped: memory ran out" in capfd.readouterr().err
    assert report_of(run) == report_of(left_alone)
    assert not list(run.samples.rglob("*.*"))


def at_two_ranks(run: RunDirectory, fails: str = "") -> RunDirectory:
    """Told to save after their first step, and to render then. On the first one all passes of `fails` fail that are for pictures."""
    needs_a_card_each(2)
    who = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [{**who, "RANK": str(rank)} | ({FAILS: fails} if rank == 0 else {}) for rank in range(2)]
    processes = [STARTS.Process(target=rank_of, args=(str(run.path), environment)) for environment in ranks]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    alive = [process for process in processes if process.is_alive()]
    for process in alive:
        process.kill()
    log = (run.path / "log.txt").read_text()[-3000:]
    assert not alive, f"a rank waits for the other one: {log}"
    assert [process.exitcode for process in processes] == [EXIT_DONE] * 2, log
    return run


@dataclass
class AskedLater(RunDirectory):
    """A run that is asked for pictures when it saves: they come a step later."""

    orders: Orders = field(default_factory=Orders)

    def report_phase(self, phase: Any) -> None:
        super().report_phase(phase)
        if phase == "saving":
            self.orders.render = True


def rank_of(directory: str, environment: dict[str, str]) -> None:
    log = os.open(f"{directory}/log.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment)
    torch.nn.modules.module.register_module_forward_pre_hook(fail)
    run = AskedLater(Path(directory), orders=Orders(save=True))
    sys.exit(run_scratch_trainer(run, run.orders))


@pytest.mark.tenths
@pytest.mark.parametrize("fails", ["UNet2DConditionModel", "CLIPTextModelWithProjection"])
def test_ranks_that_hold_weights_in_pieces_go_on_where_the_first_has_no_memory_for_pictures(
    tmp_path: Path, base: Path, data: DataSet, fails: str
) -> None:
    run = at_two_ranks(
        lay_out(tmp_path / "run", spec_of(base, data, parallel="fsdp", sample_every_steps=1), base), fails
    )
    log = (run.path / "log.txt").read_text()
    assert log.count("pictures of step 1 are skipped: memory ran out") == 1
    assert report_of(run)["exact"] is True and not list(run.samples.rglob("*.*"))


@pytest.mark.tenths
@pytest.mark.parametrize("parallel", ["fsdp", "ddp"])
def test_several_ranks_draw_what_another_worker_draws_of_the_same_step(
    tmp_path: Path, base: Path, data: DataSet, parallel: str
) -> None:
    spec = spec_of(base, data, parallel=parallel, sample_every_steps=1)
    run = at_two_ranks(lay_out(tmp_path / "run", spec, base))
    job = lay_out(tmp_path / "job", spec, base)
    (job.path / "spec.json").write_text(
        json.dumps(to_json(SampleSpec(of=spec, job="job-1", checkpoint="checkpoint-1", step=1)))
    )
    copy_to_render(run.checkpoints / "000001", job)
    assert render_job(job, Orders()) == EXIT_DONE
    drawn = run.samples / "step-000001" / "prompt-00-seed-1.png"
    assert drawn.read_bytes() == (job.output / drawn.name).read_bytes()
