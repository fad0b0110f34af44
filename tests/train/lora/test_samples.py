"""Pictures of what is learned: between the steps of training or by another worker, and what they say of themselves."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.stable_diffusion_xl.pipeline_stable_diffusion_xl import rescale_noise_cfg
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load, load_file

from gangline.core.errors import BadInput
from gangline.core.models.lora_metadata import lora_name
from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, PICTURES
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.sample import previews_of
from gangline.core.specs.spec import SampleSpec
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.denoise import rescaled, sampler_of
from gangline.train.model.sample import render, write_picture
from gangline.train.model.text import Embedded, Texts, embed_all, tokenize
from gangline.train.run import chance, contract, meter, numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.sample_job import render_job
from tests.conftest import BASE
from tests.train.bases import pipeline_of
from tests.train.conftest import STEPS, copy_to_render, finish, lay_out, report_of, small_spec

SAMPLERS = ("ddim", "euler", "euler_a", "dpm++")
RENDERED = 4


@dataclass
class AskedToRender(RunDirectory):
    """A run that is asked for pictures whenever it has saved."""

    orders: Orders = field(default_factory=Orders)

    def report_phase(self, phase: Any) -> None:
        super().report_phase(phase)
        if phase == "saving":
            self.orders.render = True


@pytest.fixture(scope="module")
def spec() -> LoraSpec:
    return small_spec(sample_every_steps=RENDERED, sample_seeds=(1, 2), sample_steps=3, sample_sampler="euler_a")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory, spec: LoraSpec) -> RunDirectory:
    """A run that rendered between its steps."""
    run = AskedToRender(lay_out(tmp_path_factory.mktemp("rendered") / "run", spec).path)
    assert run_lora_trainer(run, run.orders) == EXIT_DONE
    return run


@pytest.fixture(scope="module")
def base() -> LoadedBase:
    return load_base(BASE, torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def spoken(base: LoadedBase) -> tuple[Texts, Embedded]:
    texts = tokenize(base, [small_spec().prompt, ""])
    return texts, embed_all(base, texts)


def pictures(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / PICTURES).read_text())["pictures"]


def test_rendering_between_steps_changes_no_bit_of_the_result(
    rendered: RunDirectory, tmp_path: Path, spec: LoraSpec
) -> None:
    steps = [folder.name for folder in sorted(rendered.samples.glob("step-*"))]
    assert steps == ["step-000004", "step-000008"]
    left_alone = finish(lay_out(tmp_path / "run", spec))
    assert report_of(rendered)["weights_digest"] == report_of(left_alone)["weights_digest"]


def test_pictures_that_are_made_later_show_the_step_that_they_were_asked_of(
    rendered: RunDirectory, tmp_path: Path, spec: LoraSpec
) -> None:
    """They are asked for when the checkpoint of step 8 is committed, and training has gone on: to the byte what that checkpoint gives."""
    own = rendered.samples / "step-000008"
    job = a_job(tmp_path / "job", spec, rendered.checkpoints / "000008", 8)
    assert render_job(job, Orders()) == EXIT_DONE
    assert pictures(job.output) == pictures(own)
    for one in pictures(own):
        assert (job.output / one["path"]).read_bytes() == (own / one["path"]).read_bytes()


@dataclass
class AskedToShowItselfNow(RunDirectory):
    """A run whose owner asks for pictures after step 6, when those of step 4 are kept for its rhythm."""

    orders: Orders = field(default_factory=Orders)

    def report_step(self, step: int, metrics: dict[str, float], *, steps_since: int) -> None:
        super().report_step(step, metrics, steps_since=steps_since)
        if step == 6:
            self.show_now.touch()
            self.orders.render = True


def test_pictures_of_now_are_not_those_that_were_kept(
    tmp_path: Path, spec: LoraSpec, rendered: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "REPORT_EVERY_S", 0.0)
    run = AskedToShowItselfNow(lay_out(tmp_path / "run", spec).path)
    assert run_lora_trainer(run, run.orders) == EXIT_DONE
    assert [folder.name for folder in sorted(run.samples.glob("step-*"))] == ["step-000007"]
    assert not run.show_now.exists()
    assert report_of(run)["weights_digest"] == report_of(rendered)["weights_digest"]


def test_the_lora_of_a_step_lies_beside_its_pictures_whoever_draws_them(tmp_path: Path, spec: LoraSpec) -> None:
    kept = replace(spec, keep_loras=True, checkpoint_every_steps=RENDERED)
    run = AskedToRender(lay_out(tmp_path / "run", kept).path)
    assert run_lora_trainer(run, run.orders) == EXIT_DONE
    job = a_job(tmp_path / "job", kept, run.checkpoints / "000008", 8)
    assert render_job(job, Orders()) == EXIT_DONE
    name = f"{lora_name(kept)}-step000008.safetensors"
    content = (run.samples / "step-000008" / name).read_bytes()
    assert (job.output / name).read_bytes() == content
    with safe_open(job.output / name, framework="pt") as file:
        assert (file.metadata()["ss_steps"], file.metadata()["modelspec.title"]) == ("8", lora_name(kept))
    trained = load_file(run.checkpoints / "000008" / "weights-00000.safetensors")
    ups = sorted(tensor.sum().item() for name, tensor in trained.items() if "lora_B" in name)
    assert ups == sorted(tensor.sum().item() for name, tensor in load(content).items() if "lora_up" in name)
    assert not list(finish(lay_out(tmp_path / "other", kept)).output.glob("*-step*"))


def test_the_log_says_every_few_seconds_how_far_a_run_is(
    tmp_path: Path, spec: LoraSpec, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "LOG_EVERY_S", 0.0)
    monkeypatch.setattr(meter, "REPORT_EVERY_S", 0.0)
    finish(lay_out(tmp_path / "run", spec))
    said = capsys.readouterr().err.splitlines()
    told = [line for line in said if "s/step" in line]
    assert [line.split()[1] for line in told] == [f"{step}/{STEPS}" for step in range(1, STEPS + 1)]
    assert all("  loss 0." in line and line.endswith(" images/s") for line in told)
    assert said.count("preparing") == said.count(f"step 0/{STEPS}  training") == 1
    assert said.count(f"step {RENDERED}/{STEPS}  saving") == said.count(f"step {STEPS}/{STEPS}  saving") == 1


def test_time_spent_rendering_is_no_steps_time(rendered: RunDirectory) -> None:
    lines = [json.loads(line) for line in (rendered.path / "progress.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line.get("phase") == "rendering"] == [5, 9]
    for number, line in enumerate(lines):
        if line.get("phase") == "rendering":
            assert lines[number - 1]["step"] == line["step"], "what was trained before is reported before"


def test_a_picture_says_of_itself_what_it_shows(rendered: RunDirectory, spec: LoraSpec) -> None:
    folder = rendered.samples / "step-000004"
    told = pictures(folder)
    assert [one["path"] for one in told] == ["prompt-00-seed-1.png", "prompt-00-seed-2.png"]
    for one in told:
        image = Image.open(folder / one["path"])
        said = image.text  # type: ignore[attr-defined]
        assert said == {
            "step": "4",
            "prompt": spec.prompt,
            "seed": str(one["seed"]),
            "sampler": "euler_a",
            "sampler_steps": "3",
            "guidance_scale": "5.0",
        }
        assert {name: str(one[name]) for name in said} == said
        assert image.size == (one["width"], one["height"]) == (64, 64)


def a_job(folder: Path, of: LoraSpec, checkpoint: Path | None, step: int) -> RunDirectory:
    run = lay_out(folder, of)
    task = SampleSpec(of=of, job="job-1", checkpoint="checkpoint-1" if checkpoint else None, step=step)
    (run.path / "spec.json").write_text(json.dumps(to_json(task)))
    if checkpoint:
        copy_to_render(checkpoint, run)
    return run


def test_another_worker_makes_the_pictures_that_the_trainer_would_make(tmp_path: Path, spec: LoraSpec) -> None:
    """Of the same step: saved after it and rendered after it."""
    run = lay_out(tmp_path / "run", replace(spec, checkpoint_every_steps=RENDERED))
    orders = Orders(save=True, render=True)
    assert run_lora_trainer(run, orders) == EXIT_DONE
    own = run.samples / "step-000001"
    job = a_job(tmp_path / "job", spec, run.checkpoints / "000001", 1)
    assert render_job(job, Orders()) == EXIT_DONE
    assert pictures(job.output) == pictures(own)
    for one in pictures(own):
        assert (job.output / one["path"]).read_bytes() == (own / one["path"]).read_bytes()
    assert (job.steps, job.step) == (2, 2)


def test_a_result_is_shown_beside_the_base(tmp_path: Path, spec: LoraSpec, rendered: RunDirectory) -> None:
    job = a_job(tmp_path / "job", spec, None, spec.steps)
    (job.inputs / "result").symlink_to(rendered.output)
    assert render_job(job, Orders()) == EXIT_DONE
    assert (job.steps, job.step) == (4, 4)
    names = [f"prompt-00-{side}-seed-{seed}.png" for side in ("base", "lora") for seed in (1, 2)]
    assert sorted(path.name for path in job.output.iterdir()) == ["grid.png", *names]
    told = [Image.open(job.output / name).text for name in names]  # type: ignore[attr-defined]
    assert [(one["step"], one["seed"]) for one in told] == [
        (step, seed) for step in ("0", str(STEPS)) for seed in ("1", "2")
    ]
    grid = Image.open(job.output / "grid.png")
    assert grid.width > 4 * 256 and grid.height > 256
    card = (rendered.output / "README.md").read_text()
    assert all(f"samples/{name}" in card for name in names[2:])


def test_where_text_encoders_were_trained_the_base_speaks_as_it_did_before(tmp_path: Path, spec: LoraSpec) -> None:
    trained = replace(spec, train_text_encoder=True, sample_every_steps=None, checkpoint_every_steps=spec.steps)
    run = finish(lay_out(tmp_path / "run", trained))
    shown = a_job(tmp_path / "shown", trained, None, spec.steps)
    (shown.inputs / "result").symlink_to(run.output)
    assert render_job(shown, Orders()) == EXIT_DONE
    pixels = [np.asarray(Image.open(shown.output / f"prompt-00-{side}-seed-1.png")) for side in ("base", "lora")]
    assert (pixels[0] != pixels[1]).any()
    device = numerics.device()
    base = load_base(BASE, device, numerics.dtype_of(trained.precision, device))
    texts = tokenize(base, [trained.prompt, ""])
    alone = np.asarray(render(base, trained, texts, embed_all(base, texts), previews_of(trained)[0], 1))
    assert (alone == pixels[0]).all()


def test_who_is_told_to_stop_while_it_renders_stops(tmp_path: Path, spec: LoraSpec, rendered: RunDirectory) -> None:
    job = a_job(tmp_path / "job", spec, rendered.checkpoints / "000008", 8)
    assert render_job(job, Orders(stop=True)) == EXIT_STOPPED
    assert not (job.output / PICTURES).exists()


def test_weights_of_another_lora_are_refused(tmp_path: Path, spec: LoraSpec, rendered: RunDirectory) -> None:
    other = replace(spec, target_modules=("to_q",))
    job = a_job(tmp_path / "job", other, rendered.checkpoints / "000008", 8)
    with pytest.raises(BadInput, match="another LoRA"):
        render_job(job, Orders())


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_seed_gives_the_same_picture_each_time_and_another_seed_another(
    base: LoadedBase, spoken: tuple[Texts, Embedded], sampler: Any
) -> None:
    spec = small_spec(sample_sampler=sampler, sample_steps=4)
    one, again, other = (render(base, spec, *spoken, previews_of(spec)[0], seed) for seed in (1, 1, 2))
    assert one.tobytes() == again.tobytes() != other.tobytes()


@pytest.mark.parametrize("guidance", [1.0, 5.0])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_pictures_are_those_of_the_librarys_own_pipeline(
    base: LoadedBase, spoken: tuple[Texts, Embedded], sampler: Any, guidance: float
) -> None:
    spec = small_spec(sample_sampler=sampler, sample_steps=5, guidance_scale=guidance)
    ours = render(base, spec, *spoken, previews_of(spec)[0], 3)
    difference = np.abs(np.asarray(ours, dtype=int) - np.asarray(theirs_of(base, spec), dtype=int))
    assert difference.max() <= 1


def theirs_of(base: LoadedBase, spec: LoraSpec, rescale: float = 0.0) -> Image.Image:
    """By diffusers' pipeline, from the same noise."""
    side = spec.resolution // base.latent_factor
    return pipeline_of(base, spec.sample_sampler)(
        spec.prompt,
        height=spec.resolution,
        width=spec.resolution,
        num_inference_steps=spec.sample_steps,
        guidance_scale=spec.guidance_scale,
        guidance_rescale=rescale,
        latents=chance.normal(3, "sample", 0, range(1), (base.unet.config.in_channels, side, side)),
        generator=chance.generator(3, "sample steps"),
    ).images[0]


def test_where_training_ends_in_noise_alone_sampling_begins_there() -> None:
    settings: dict[str, Any] = {"zero_terminal_snr": True, "prediction_type": "v_prediction"}
    base = load_base(BASE, torch.device("cpu"), torch.float32, **settings)
    for sampler in SAMPLERS:
        scheduler = sampler_of(base, sampler)
        scheduler.set_timesteps(4)
        assert scheduler.timesteps[0] == scheduler.config.num_train_timesteps - 1
        assert scheduler.config.prediction_type == "v_prediction"


@pytest.mark.parametrize(
    "settings", [{"ema_decay": 0.9}, {"train_text_encoder": True}, {"optimizer": "schedule_free"}], ids=str
)
def test_another_worker_shows_what_would_be_the_result(
    tmp_path: Path, spec: LoraSpec, settings: dict[str, Any]
) -> None:
    """Averaged weights where they are the result, text encoders as they have become."""
    of = replace(spec, steps=2, sample_sampler="ddim", **settings)
    run = lay_out(tmp_path / "run", of)
    assert run_lora_trainer(run, Orders(save=True, render=True)) == EXIT_DONE
    job = a_job(tmp_path / "job", of, run.checkpoints / "000001", 1)
    assert render_job(job, Orders()) == EXIT_DONE
    assert pictures(job.output) == pictures(run.samples / "step-000001")


def test_all_steps_are_rendered_and_nothing_else_is_left_of_the_run(rendered: RunDirectory) -> None:
    assert report_of(rendered)["steps"] == STEPS
    assert not list(rendered.samples.rglob(".*"))


@pytest.mark.parametrize("given", [None, 0.4, 0.0])
def test_guidance_is_rescaled_as_the_librarys_own_pipeline_does(given: float | None) -> None:
    """By itself where the base has zero terminal SNR (Lin et al. 2023, §3.4)."""
    settings: dict[str, Any] = {"zero_terminal_snr": True, "prediction_type": "v_prediction"}
    base = load_base(BASE, torch.device("cpu"), torch.float32, **settings)
    texts = tokenize(base, [small_spec().prompt, ""])
    spec = small_spec(sample_sampler="ddim", sample_steps=5, guidance_scale=7.0, guidance_rescale=given)
    ours = render(base, spec, texts, embed_all(base, texts), previews_of(spec)[0], 3)
    theirs = theirs_of(base, spec, 0.7 if given is None else given)
    assert np.abs(np.asarray(ours, dtype=int) - np.asarray(theirs, dtype=int)).max() <= 1


def test_the_formula_is_that_of_diffusers() -> None:
    guided, towards = (chance.normal(seed, "x", 0, range(2), (4, 8, 8)) for seed in (1, 2))
    for by in (0.0, 0.3, 0.7, 1.0):
        assert torch.equal(rescaled(3 * guided, towards, by), rescale_noise_cfg(3 * guided, towards, by))


@pytest.mark.parametrize(
    ("zero", "given", "by"), [(False, None, 0.0), (True, None, 0.7), (True, 0.0, 0.0), (False, 0.5, 0.5)]
)
def test_a_picture_says_how_far_its_guidance_was_rescaled(
    tmp_path: Path, zero: bool, given: float | None, by: float
) -> None:
    base = load_base(BASE, torch.device("cpu"), torch.float32, zero_terminal_snr=zero, prediction_type="v_prediction")
    spec = small_spec(guidance_rescale=given)
    write_picture(Image.new("RGB", (8, 8)), tmp_path / "a.png", base, spec, 1, previews_of(spec)[0], 1)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.info.get("guidance_rescale", "0.0") == str(by)
