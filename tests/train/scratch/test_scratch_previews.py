"""Previews of a whole model with settings of their own, also of a family without size conditioning."""

import json
from pathlib import Path

import pytest
from PIL import Image

from gangline.core.models.families import FamilyName
from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_DONE, PICTURES
from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.spec import SampleSpec
from gangline.train.run.contract import Orders
from gangline.train.sample_job import render_job
from gangline.train.scratch.trainer import run_scratch_trainer
from tests.train.bases import save_tiny
from tests.train.conftest import copy_to_render
from tests.train.sets import data_set, lay_out, scratch_spec

WIDE = SamplePrompt(
    prompt="a red disc", negative_prompt="a blue disc, dark", width=64, height=48, seeds=(3,), sampler="euler_a"
)
HIGH = SamplePrompt(prompt="a red disc", height=64, steps=3, guidance_scale=1.0)


@pytest.mark.parametrize("family", ["sd15", "sdxl"])
def test_another_worker_makes_the_pictures_that_the_trainer_makes(tmp_path: Path, family: FamilyName) -> None:
    base, data = save_tiny(tmp_path / "base", family), data_set(tmp_path)
    spec = scratch_spec(
        base,
        data,
        phases=(TrainingPhase(steps=2, resolution=32, batch_size=2),),
        held_out="",
        checkpoint_every_steps=None,
        sample_prompts=("a red disc", WIDE, HIGH),
        sample_steps=2,
        sample_seeds=(1,),
    )
    run = lay_out(tmp_path / "run", spec, base)
    assert run_scratch_trainer(run, Orders(save=True, render=True)) == EXIT_DONE
    own = run.samples / "step-000001"
    told = json.loads((own / PICTURES).read_text())["pictures"]
    assert [(one["path"], one["width"], one["height"]) for one in told] == [
        ("prompt-00-seed-1.png", 32, 32),
        ("prompt-01-seed-3.png", 64, 48),
        ("prompt-02-seed-1.png", 32, 64),
    ]
    job = lay_out(tmp_path / "job", spec, base)
    task = SampleSpec(of=spec, job="job-1", checkpoint="checkpoint-1", step=1)
    (job.path / "spec.json").write_text(json.dumps(to_json(task)))
    copy_to_render(run.checkpoints / "000001", job)
    assert render_job(job, Orders()) == EXIT_DONE
    for one in told:
        assert (job.output / one["path"]).read_bytes() == (own / one["path"]).read_bytes()
        assert Image.open(own / one["path"]).size == (one["width"], one["height"])
