"""What training on data sets promises besides its bits: what a step sees, how it is computed, what is left, what is refused."""

import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gangline.core.errors import BadInput
from gangline.core.runs.contract import EXIT_STOPPED
from gangline.core.specs.phases import TrainingPhase, moment_of_step
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.dataset import DataSet
from gangline.train.learning.average import Average, LossScale
from gangline.train.learning.learner import AT_A_TIME, Learner
from gangline.train.model.base import LoadedBase, load_base
from gangline.train.model.text import tokenize
from gangline.train.program import failure_kind
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks
from gangline.train.run.throughput import ThroughputMeter, flops
from gangline.train.scratch.batches import ScratchBatches, open_data
from gangline.train.scratch.denoiser import Denoiser, ScratchBatch
from gangline.train.scratch.initial_weights import FROZEN_EMBEDDINGS
from gangline.train.scratch.trainer import prepare_scratch, run_scratch_trainer
from gangline.train.trainer import train_as
from tests.data.made import converted
from tests.train.bases import save_tiny
from tests.train.sets import (
    HELD_OUT,
    data_set,
    draw_pictures,
    finish,
    lay_out,
    lines,
    reference,
    report_of,
    scratch_spec,
    with_latents,
    with_texts,
)

CPU = torch.device("cpu")
ALONE = Ranks()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


def batches_of(spec: ScratchSpec, base: Path, ranks: Ranks = ALONE) -> ScratchBatches:
    return ScratchBatches(spec, loaded(spec, base), open_data(spec, base), ranks)


def loaded(spec: ScratchSpec, base: Path) -> LoadedBase:
    return load_base(base, CPU, torch.float32, prediction_type=spec.prediction_type)


def learner_of(spec: ScratchSpec, base: Path, dtype: torch.dtype = torch.float32) -> Learner:
    return Learner(Denoiser(loaded(spec, base), spec), spec, Ranks(), CPU, dtype)


def each(samples: ScratchBatch) -> list[dict[str, bytes]]:
    """The tensors of every sample."""
    return [
        {
            name: getattr(one, name).numpy().tobytes()
            for name in ("numbers", "pixels", "drawn", "noise", "timesteps", "sizes")
        }
        | {"ids": b"".join(ids.numpy().tobytes() for ids in one.ids)}
        for one in samples.pieces(1)
    ]


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_together_see_the_samples_of_one_in_their_order(base: Path, data: DataSet, count: int) -> None:
    spec = scratch_spec(base, data)
    alone, shared = batches_of(spec, base), [batches_of(spec, base, Ranks(rank, count)) for rank in range(count)]
    for step in range(1, spec.steps + 1):
        whole, parts = each(alone.batch(step)), [each(batches.batch(step)) for batches in shared]
        together = [part[place] for place in range(spec.phases[0].batch_size // count) for part in parts]
        assert together == whole


def test_what_a_step_sees_does_not_depend_on_where_a_run_goes_on(base: Path, data: DataSet) -> None:
    phases = (TrainingPhase(steps=3, resolution=16, batch_size=8), TrainingPhase(steps=8, resolution=32, batch_size=4))
    spec = scratch_spec(base, data, phases=phases)
    whole = batches_of(spec, base)
    seen = {step: each(whole.batch(step)) for step in range(1, spec.steps + 1)}
    for first in (2, 4, 7, 11):
        later = batches_of(spec, base)
        assert all(each(later.batch(step)) == seen[step] for step in range(first, spec.steps + 1))


def test_rows_that_are_held_out_are_never_trained_on_and_phases_have_rows_of_their_own(
    base: Path, data: DataSet
) -> None:
    phases = (TrainingPhase(steps=30, resolution=16, batch_size=8, where="width > 41"),)
    spec = scratch_spec(base, data, phases=phases)
    batches = batches_of(spec, base)
    rows = data.table.to_table(columns=["width"], filter=f"not ({HELD_OUT}) and width > 41").num_rows
    seen = {sample["pixels"] for step in range(1, 31) for sample in each(batches.batch(step))}
    held_out, count = batches.held_out()
    assert rows == len(seen) < data.rows
    assert count == len(held_out) and not seen & {sample["pixels"] for sample in each(held_out)}


def test_data_sets_are_mixed_by_weight(base: Path, data: DataSet, tmp_path: Path) -> None:
    other = data_set(tmp_path, count=12, name="others")
    both = (reference(data, weight=3), reference(other))
    spec = replace(scratch_spec(base, data, held_out=""), data=both)
    rows = batches_of(spec, base)._stream(0)
    sets = next(rows.batches(0, 1024)).sets
    assert np.bincount(sets).tolist() == [768, 256]


def test_captions_are_dropped_as_often_as_is_asked(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data, caption_drop=0.25, phases=(TrainingPhase(steps=1, resolution=16, batch_size=400),))
    said = batches_of(spec, base).batch(1).said
    assert 0.68 < said.float().mean() < 0.82


def test_timesteps_come_from_the_range_that_is_trained_and_held_out_rows_have_all(base: Path, data: DataSet) -> None:
    bias = {"timestep_bias_strategy": "earlier", "timestep_bias_multiplier": 4.0}
    phases = (TrainingPhase(steps=2, resolution=16, batch_size=200),)
    spec = scratch_spec(base, data, phases=phases, min_timestep=300, max_timestep=400, **bias)
    batches = batches_of(spec, base)
    found = torch.cat([batches.batch(step).timesteps for step in range(1, spec.steps + 1)])
    early = ((found >= 300) & (found < 325)).double().mean()
    assert ((found >= 300) & (found < 400)).all() and early > 0.4  # 4/7 of them, against a quarter without the bias
    again = batches_of(spec, base).batch(spec.steps).timesteps
    assert again.equal(found[-len(again) :])
    measured = batches.held_out()[0].timesteps
    assert measured.min() < 300 and measured.max() >= 400


def test_of_several_captions_each_is_drawn_as_often_and_the_same_by_any_number_of_ranks(
    base: Path, tmp_path: Path
) -> None:
    variants = ["a red disc", "round", "some disc of red"]
    images = [path.read_bytes() for path in sorted(draw_pictures(tmp_path / "drawn", 4).glob("*.png"))]
    table = pa.table({"jpg": images, "captions": [variants] * len(images)})
    (tmp_path / "source").mkdir()
    pq.write_table(table, tmp_path / "source" / "a.parquet")
    data = converted(tmp_path / "source", tmp_path / "several.lance")[0]
    phases = (TrainingPhase(steps=1, resolution=16, batch_size=600),)
    spec = scratch_spec(base, data, held_out="", caption_drop=0.0, phases=phases)
    tokens = tokenize(loaded(spec, base), variants)
    known = [tokens.ids[0][tokens.index(words), 0] for words in variants]

    def chosen(ranks: Ranks) -> list[int]:
        said = batches_of(spec, base, ranks).batch(1).ids[0][:, 0]
        return [next(place for place, ids in enumerate(known) if torch.equal(one, ids)) for one in said]

    alone, shared = chosen(ALONE), [chosen(Ranks(rank, 4)) for rank in range(4)]
    assert [part[place] for place in range(150) for part in shared] == alone
    assert all(160 < count < 240 for count in np.bincount(alone, minlength=3))


def test_latents_are_trained_on_whatever_their_vae_computed_in(base: Path, tmp_path: Path) -> None:
    sets = [
        with_latents(data_set(tmp_path, count=8, name=dtype), base, 32, dtype=dtype)
        for dtype in ("float32", "bfloat16")
    ]
    spec = replace(scratch_spec(base, sets[0], held_out=""), data=tuple(map(reference, sets)))
    assert batches_of(spec, base).columns == ["latents_32"]


def test_the_gradient_is_the_same_however_many_samples_are_computed_at_a_time(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data)
    learner, samples, at = learner_of(spec, base), [batches_of(spec, base).batch(1)], moment_of_step(spec.phases, 1)
    found = []
    for learner.microbatch in (4, 3, 1):
        loss = learner._gradient(at, samples)
        found.append((loss, torch.cat([weight.grad.flatten() for weight in learner.weights.values()])))
        learner.optimizer.zero_grad()
    for loss, gradient in found[1:]:
        assert torch.allclose(loss, found[0][0], rtol=1e-6)
        assert (gradient - found[0][1]).norm() < 1e-5 * found[0][1].norm()


def test_the_average_is_the_one_that_the_formula_gives(base: Path) -> None:
    weights = {"a": torch.zeros(3), "b": torch.zeros(2, 2)}
    average, naive = Average(0.95, from_step=4), {}
    rng = torch.Generator().manual_seed(0)
    for step in range(1, 40):
        for weight in weights.values():
            weight.add_(torch.randn(weight.shape, generator=rng))
        average.follow(step, weights)
        if step == 4:
            naive = {name: weight.double() for name, weight in weights.items()}
        elif step > 4:
            decay = min(0.95, (1 + step - 4) / (10 + step - 4))
            naive = {name: decay * naive[name] + (1 - decay) * weight.double() for name, weight in weights.items()}
        assert bool(average.tensors) == (step >= 4)
    for name, tensor in average.tensors.items():
        assert torch.allclose(tensor.double(), naive[name], rtol=1e-5)
        assert tensor.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_moments_and_averages_are_float32_whatever_is_computed_in(
    base: Path, data: DataSet, dtype: torch.dtype
) -> None:
    spec = scratch_spec(base, data, precision="bf16" if dtype == torch.bfloat16 else "fp16")
    learner, samples, at = (
        learner_of(spec, base, dtype),
        [batches_of(spec, base).batch(1)],
        moment_of_step(spec.phases, 1),
    )
    seen = []
    learner.network.base.unet.conv_out.register_forward_hook(lambda module, given, made: seen.append(made.dtype))
    learner.fit(at, samples)
    loss, norm = learner.step(at, samples)
    assert seen == [dtype] and loss.dtype == torch.float32 and torch.isfinite(norm)
    kept = [*learner.weights.values(), *learner.average.tensors.values()]
    kept += [state["exp_avg"] for state in learner.optimizer.state.values()]
    assert {tensor.dtype for tensor in kept} == {torch.float32}


def test_a_step_that_overflows_is_left_out_and_the_loss_is_scaled_less(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data, precision="fp16")
    learner, samples, at = (
        learner_of(spec, base, torch.float16),
        [batches_of(spec, base).batch(1)],
        moment_of_step(spec.phases, 1),
    )
    learner.fit(at, samples)
    learner.scale = LossScale(2.0**60)
    before = {name: weight.detach().clone() for name, weight in learner.weights.items()}
    learner.step(at, samples)
    assert learner.scale.factor == 2.0**59
    assert all(torch.equal(weight, before[name]) for name, weight in learner.weights.items())


def out_of_memory_from(learner: Learner, count: int) -> None:
    """As a card that has no room for so many samples at a time."""

    def refuse(module: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        if len(given[0]) >= count:
            raise torch.OutOfMemoryError("CUDA out of memory")

    learner.network.base.unet.conv_out.register_forward_pre_hook(refuse)


def test_what_fits_is_found_by_trying_and_leaves_no_trace(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data, phases=(TrainingPhase(steps=1, resolution=16, batch_size=16),))
    learner, samples = learner_of(spec, base), [batches_of(spec, base).batch(1)]
    before = {name: weight.detach().clone() for name, weight in learner.weights.items()}
    out_of_memory_from(learner, 6)
    assert learner.trial.largest(samples[0], 16) == 4
    assert all(torch.equal(weight, before[name]) and weight.grad is None for name, weight in learner.weights.items())


def test_what_cannot_fit_is_said_plainly(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data, phases=(TrainingPhase(steps=1, resolution=16, batch_size=4, microbatch=4),))
    learner, samples, at = learner_of(spec, base), [batches_of(spec, base).batch(1)], moment_of_step(spec.phases, 1)
    learner.fit(at, samples)
    out_of_memory_from(learner, 4)
    with pytest.raises(
        MemoryError, match="4 samples of 16 pixels at a time do not fit into this GPU's memory: set microbatch lower"
    ) as told:
        learner.step(at, samples)
    assert failure_kind(told.value) == "out of memory"
    out_of_memory_from(learner, 1)
    with pytest.raises(
        MemoryError, match="one sample of 16 pixels at a time does not fit into this GPU's memory: set gradient"
    ):
        learner.trial.largest(samples[0], 16)


def test_who_is_alone_goes_on_with_half_as_many_samples_where_memory_runs_out(
    base: Path, data: DataSet, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = scratch_spec(base, data, phases=(TrainingPhase(steps=2, resolution=16, batch_size=4),))
    samples = [[batches_of(spec, base).batch(step)] for step in (1, 2)]
    found = {}
    for name, microbatch in {"told": 2, "found": None, "found later": None}.items():
        phase = replace(spec.phases[0], microbatch=microbatch)
        learner = learner_of(replace(spec, phases=(phase,)), base)
        for step in (1, 2):
            at = moment_of_step((phase,), step)
            learner.fit(at, samples[step - 1])
            if name == ("found" if step == 1 else "found later"):
                out_of_memory_from(learner, 3)
            found[name, step] = *learner.step(at, samples[step - 1]), learner.microbatch, learner.identity.exact
    assert found["found", 1] == found["told", 1] and found["found", 2] == found["told", 2]
    assert found["told", 2][2:] == (2, True)
    assert found["found later", 1][2:] == (4, True) and found["found later", 2][2:] == (2, False)
    assert found["found later", 2][1].item() == pytest.approx(found["told", 2][1].item(), rel=1e-4)
    assert capsys.readouterr().err.count("out of memory: continuing with 2 samples at a time") == 2


def test_what_failed_passes_had_made_is_given_back_before_fewer_are_tried(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data, phases=(TrainingPhase(steps=1, resolution=16, batch_size=4),))
    learner, samples, at = learner_of(spec, base), [batches_of(spec, base).batch(1)], moment_of_step(spec.phases, 1)
    made: list[weakref.ref[torch.Tensor]] = []

    def refuse(module: torch.nn.Module, given: tuple[torch.Tensor, ...], result: torch.Tensor) -> None:
        assert not made or made[-1]() is None
        made.append(weakref.ref(result))
        if len(result) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")

    learner.network.base.unet.conv_in.register_forward_hook(refuse)
    learner.fit(at, samples)
    learner.step(at, samples)
    assert len(made) == 2 + 4


def test_a_run_whose_bits_must_stay_the_same_does_not_go_on_with_fewer_samples_at_a_time(
    base: Path, data: DataSet
) -> None:
    spec = scratch_spec(base, data, phases=(TrainingPhase(steps=2, resolution=16, batch_size=4),), exact="required")
    learner, samples = learner_of(spec, base), [batches_of(spec, base).batch(1)]
    learner.fit(moment_of_step(spec.phases, 1), samples)
    learner.step(moment_of_step(spec.phases, 1), samples)
    out_of_memory_from(learner, 4)
    with pytest.raises(MemoryError, match=r"exact = required forbids: set phases.0.microbatch to fewer") as told:
        learner.step(moment_of_step(spec.phases, 2), samples)
    assert failure_kind(told.value) == "out of memory"
    begun_anew = learner_of(spec, base)
    begun_anew.fit(moment_of_step(spec.phases, 1), samples)
    out_of_memory_from(begun_anew, 4)
    begun_anew.step(moment_of_step(spec.phases, 1), samples)  # nothing had been computed with more
    assert begun_anew.microbatch == 2 and begun_anew.identity.exact


def test_the_work_of_a_step_is_counted() -> None:
    layer, given = torch.nn.Linear(30, 20), torch.randn(7, 30, requires_grad=True)
    assert flops(lambda: layer(given).sum().backward()) == 3 * 2 * 7 * 30 * 20
    rates = ThroughputMeter(gpus=4, flops_per_image=2e12, peak_flops=312e12).rates(100.0)
    assert rates == {"images_per_second_per_gpu": 25.0, "share_of_peak": pytest.approx(50 / 312)}


def test_a_model_that_begins_random_learns_and_diffusers_loads_it(tmp_path: Path, base: Path, data: DataSet) -> None:
    from diffusers import StableDiffusionPipeline

    phases = (TrainingPhase(steps=40, resolution=32, batch_size=6),)
    spec = scratch_spec(base, data, phases=phases, checkpoint_every_steps=None, prediction_type="v_prediction")
    run = finish(lay_out(tmp_path / "run", spec, base))
    first, last = (one["held_out_loss"] for one in report_of(run)["held_out"])
    assert last < 0.7 * first
    pipeline = StableDiffusionPipeline.from_pretrained(run.output, local_files_only=True)
    assert pipeline.scheduler.config.prediction_type == "v_prediction"
    image = pipeline("a red disc", num_inference_steps=2, width=32, height=32, output_type="np").images[0]
    assert image.shape == (32, 32, 3) and np.isfinite(image).all()


def test_the_result_is_what_was_measured_the_average_and_not_the_weights_in_training(
    tmp_path: Path, base: Path, data: DataSet
) -> None:
    # as many at once as before the first step: a processor may round otherwise where a batch has other rows
    phases = (TrainingPhase(steps=6, resolution=16, batch_size=AT_A_TIME),)
    spec = scratch_spec(base, data, phases=phases, checkpoint_every_steps=None)
    run = finish(lay_out(tmp_path / "run", spec, base))
    again = finish(lay_out(tmp_path / "again", replace(spec, new=()), run.output))
    assert report_of(again)["held_out"][0]["held_out_loss"] == report_of(run)["held_out"][-1]["held_out_loss"]


def test_text_encoders_of_sdxl_begin_random_are_trained_and_diffusers_loads_them(tmp_path: Path, data: DataSet) -> None:
    from diffusers import StableDiffusionXLPipeline

    base = save_tiny(tmp_path / "sdxl", "sdxl")
    spec = scratch_spec(
        base,
        data,
        phases=(TrainingPhase(steps=3, resolution=32, batch_size=2),),
        new=("unet", "text_encoders"),
        train_text_encoders=True,
        text_encoder_learning_rate=2e-3,
        freeze_token_embeddings=True,
        gradient_checkpointing=True,
        checkpoint_every_steps=None,
        sample_prompts=("a red disc",),
        sample_steps=1,
    )
    run = lay_out(tmp_path / "run", spec, base)
    assert run_scratch_trainer(run, Orders(render=True)) == 0
    pipeline = StableDiffusionXLPipeline.from_pretrained(run.output, local_files_only=True)
    begun = Learner(Denoiser(loaded(spec, base), spec), spec, Ranks(), CPU, torch.float32)
    for part in ("text_encoder", "text_encoder_2"):
        before, after = begun.network.parts[part].state_dict(), getattr(pipeline, part).state_dict()
        changed = {name for name in after if not torch.equal(before[name], after[name])}
        assert changed == {name for name in after if f"{part}.{name}" in begun.weights}
        (tokens,) = (name for name in after if "token_embedding" in name)
        assert tokens not in changed
        assert after[tokens].std().item() == pytest.approx(FROZEN_EMBEDDINGS, rel=0.1)  # wide enough to be told apart
    assert sorted(path.name for path in run.samples.iterdir()) == ["step-000001"]
    rates = [line["metrics"] for line in lines(run) if line.get("metrics")]
    assert rates[-1]["text_encoder_learning_rate"] == 2e-3 and rates[-1]["images_per_second_per_gpu"] > 0


def test_random_weights_are_the_same_wherever_a_run_begins(base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data)
    one, other, another = (learner_of(replace(spec, seed=seed), base).weights for seed in (0, 0, 1))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(not torch.equal(one[name], another[name]) for name in one)


def test_told_to_stop_a_run_saves_and_goes_on_from_there(tmp_path: Path, base: Path, data: DataSet) -> None:
    phases = (TrainingPhase(steps=2, resolution=16, batch_size=2),)
    run = lay_out(tmp_path / "run", scratch_spec(base, data, phases=phases, checkpoint_every_steps=None), base)
    assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True)) == EXIT_STOPPED
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]
    assert report_of(finish(run))["exact"] is True


def test_latents_of_a_column_are_those_that_encoding_gives(tmp_path: Path, base: Path) -> None:
    data = with_latents(data_set(tmp_path), base, 32)
    phase = TrainingPhase(steps=1, resolution=32, batch_size=4)
    made = []
    for latents in ("required", "off"):
        spec = scratch_spec(base, data, phases=(replace(phase, latents=latents),))
        batches = batches_of(spec, base)
        samples = batches.batch(1)
        assert (samples.posterior is None) == (latents == "off")
        made.append(Denoiser(loaded(spec, base), spec)._latents(samples))
    assert (made[0] - made[1]).norm() < 2e-3 * made[1].norm()


def test_latents_of_another_encoder_are_refused(tmp_path: Path, base: Path) -> None:
    data = with_latents(data_set(tmp_path), save_tiny(tmp_path / "sdxl", "sdxl"), 32)
    spec = scratch_spec(base, data)
    with pytest.raises(
        BadInput, match=r"the latents latents_32 of .* were made with another VAE \(SHA-256 .*, scale 0\.13025\)"
    ) as told:
        run_scratch_trainer(lay_out(tmp_path / "run", spec, base), Orders())
    assert "scale 0.18215" in told.value.message
    off = replace(spec, phases=tuple(replace(phase, steps=1, latents="off") for phase in spec.phases))
    finish(lay_out(tmp_path / "off", off, base))


@pytest.mark.parametrize("family", ["sd2", "sdxl"])
def test_captions_of_a_column_say_what_encoding_them_does(tmp_path: Path, family: str) -> None:
    base = save_tiny(tmp_path / "base", family)
    data = with_texts(data_set(tmp_path), base)
    spec = scratch_spec(base, data, caption_drop=0.5, phases=(TrainingPhase(steps=1, resolution=32, batch_size=16),))
    said = []
    for texts in ("required", "off"):
        own = replace(spec, text_embeddings=texts)
        samples = batches_of(own, base).batch(1)
        assert bool(samples.words) == (texts == "required") and not samples.said.all() and samples.said.any()
        said.append(Denoiser(loaded(own, base), own)._embedded(samples))
    assert (said[0].tokens - said[1].tokens).norm() < 2e-3 * said[1].tokens.norm()
    assert (said[0].pooled is None) == (family == "sd2")
    if said[0].pooled is not None and said[1].pooled is not None:
        assert (said[0].pooled - said[1].pooled).norm() < 2e-3 * said[1].pooled.norm()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_learns_from_captions_that_were_embedded_before(tmp_path: Path, base: Path, precision: str) -> None:
    data = with_texts(data_set(tmp_path), base)
    spec = scratch_spec(base, data, text_embeddings="required", precision=precision)
    first, last = (one["held_out_loss"] for one in report_of(finish(lay_out(tmp_path / "run", spec, base)))["held_out"])
    assert last < first


def test_captions_that_other_encoders_embedded_are_refused(tmp_path: Path, base: Path) -> None:
    data = with_texts(data_set(tmp_path), save_tiny(tmp_path / "sdxl", "sdxl"))
    spec = scratch_spec(base, data, text_embeddings="required")
    with pytest.raises(BadInput, match="were embedded by other text encoders"):
        run_scratch_trainer(lay_out(tmp_path / "run", spec, base), Orders())


def test_embeddings_that_must_be_there_and_are_not_are_missed(tmp_path: Path, base: Path, data: DataSet) -> None:
    with pytest.raises(BadInput, match="has no embeddings of its captions"):
        run_scratch_trainer(
            lay_out(tmp_path / "run", scratch_spec(base, data, text_embeddings="required"), base), Orders()
        )


def test_latents_that_must_be_there_and_are_not_are_missed(tmp_path: Path, base: Path, data: DataSet) -> None:
    spec = scratch_spec(base, data, phases=(TrainingPhase(steps=1, resolution=32, batch_size=4, latents="required"),))
    with pytest.raises(BadInput, match="has no latents latents_32"):
        run_scratch_trainer(lay_out(tmp_path / "run", spec, base), Orders())


def test_what_is_wrong_with_a_later_phase_is_told_before_the_first_step(
    tmp_path: Path, base: Path, data: DataSet
) -> None:
    first = TrainingPhase(steps=1, resolution=32, batch_size=4)
    for wrong, told in {"widht > 3": "cannot be used", "width < 3": "matches"}.items():
        spec = scratch_spec(base, data, phases=(first, replace(first, where=wrong)), held_out="")
        run = lay_out(tmp_path / told, spec, base)
        with pytest.raises(BadInput, match=told):
            run_scratch_trainer(run, Orders())
        assert not run.checkpoints.exists() or not list(run.checkpoints.iterdir())


def test_a_data_set_that_was_made_anew_under_a_job_is_not_gone_on_with(tmp_path: Path, base: Path) -> None:
    data = data_set(tmp_path)
    run = lay_out(tmp_path / "run", scratch_spec(base, data, checkpoint_every_steps=None), base)
    assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True)) == EXIT_STOPPED
    data.place.wipe()
    data_set(tmp_path / "anew")
    Path(tmp_path / "anew" / "shapes.lance").rename(tmp_path / "shapes.lance")
    with pytest.raises(BadInput, match="is another data set than before"):
        run_scratch_trainer(RunDirectory(run.path), Orders())
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]


def test_columns_that_come_to_a_data_set_later_change_nothing(tmp_path: Path, base: Path) -> None:
    data = data_set(tmp_path)
    spec = scratch_spec(
        base, data, checkpoint_every_steps=None, phases=(TrainingPhase(steps=2, resolution=32, batch_size=2),)
    )
    peaceful = finish(lay_out(tmp_path / "peaceful", spec, base))
    run = lay_out(tmp_path / "run", spec, base)
    assert run_scratch_trainer(RunDirectory(run.path), Orders(stop=True)) == EXIT_STOPPED
    with_latents(data, base, 32)
    assert report_of(finish(run)) == report_of(peaceful)


def test_a_batch_that_ranks_cannot_share_evenly_is_refused(tmp_path: Path, base: Path, data: DataSet) -> None:
    run = lay_out(tmp_path / "run", scratch_spec(base, data), base)
    with pytest.raises(BadInput, match="a batch of 4 cannot be divided among 3 GPUs"):
        train_as(Ranks(0, 3), prepare_scratch, run, Orders())
