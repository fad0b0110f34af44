"""Train a LoRA on photos of one subject or of several: `python -m gangline.train.lora DIRECTORY`. The directory keeps the trainer contract
(gangline.core.runs.contract); the loop is gangline.train.trainer."""

from functools import partial

import torch

from gangline.core.runs.contract import pictures_name
from gangline.core.specs.lora import LoraSpec
from gangline.data.chance import stream
from gangline.train.learning.held_out import HeldOutSamples
from gangline.train.learning.learner import Learner
from gangline.train.learning.prefetch import Prefetcher
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.batches import ClassSource, ExampleSource, LoraSource, step_batches
from gangline.train.lora.inputs import TrainingInputs, gather
from gangline.train.lora.network import LoraNetwork
from gangline.train.lora.result import held_out_batches, spoken_now, write_result, write_step
from gangline.train.model.base import LoadedBase, check_previews, check_resolution, load_base
from gangline.train.model.sample import show_step
from gangline.train.model.timesteps import TimestepSampler
from gangline.train.run import numerics
from gangline.train.run.aside import left_out_without_memory
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.trainer import Place, Training, run_trainer


class LoraTraining(Training):
    """A LoRA of one base on photos whose latents are computed."""

    def __init__(self, base: LoadedBase, spec: LoraSpec, inputs: TrainingInputs, device: torch.device) -> None:
        self.base = base
        self.spec = spec
        self.inputs = inputs
        self.adapter = Adapter(base, spec)
        self.network = LoraNetwork(base, spec, self.adapter, inputs.digest)
        batches, numbers = held_out_batches(base, spec, inputs) if spec.held_out_every_steps else ([], [])
        self.held_out = HeldOutSamples(spec, batches, numbers, sum(map(len, numbers)))
        self.batches = Prefetcher(partial(step_batches, sources(base, spec, inputs)), spec.steps, device)

    def measured(self, learner: Learner, step: int, *, last: bool = False) -> dict[str, float]:
        return self.held_out.measure(learner, step) if self.held_out.due(step, last=last) else {}

    def draw(self, run: RunDirectory, learner: Learner, step: int) -> None:
        base, kept = self.base, learner.pictured
        step, weights = (kept.step, kept.weights) if kept else (step, None)
        learner.forget_graphs()
        with (
            left_out_without_memory(f"pictures of step {step} are"),
            base.borrowed(),
            learner.as_result(weights),
        ):
            shown, folder = self.inputs.shown, run.samples / pictures_name(step)
            if self.spec.keep_loras:
                write_step(folder, base, self.spec, self.adapter, step)
            show_step(base, self.spec, shown.texts, spoken_now(base, shown), folder, step)

    def write_result(self, run: RunDirectory, learner: Learner) -> None:
        learner.forget_graphs()
        with learner.as_result(learner.best or None):
            write_result(run, self.base, self.spec, self.inputs, self.adapter, learner.identity, learner.curve)

    def close(self) -> None:
        self.batches.close()


def prepare_lora(run: RunDirectory, spec: LoraSpec, place: Place, orders: Orders) -> LoraTraining | None:
    """Load the base, compute all that is computed once, and add the LoRA. Return None after an order to stop."""
    base = base_of(run, spec, place.device, place.dtype)
    check_resolution(base, spec.resolution)
    check_previews(base, spec)
    inputs = gather(run, base, spec, numerics.fingerprint(place.device, place.dtype, spec), orders)
    if inputs is None:
        return None
    base.forget("vae", *([] if spec.train_text_encoder else ["text_encoders"]))
    training = LoraTraining(base, spec, inputs, place.device)
    if spec.init_lora:
        training.adapter.start_from(run.inputs / "init_lora" / spec.init_lora.path, base)
    return training


def base_of(run: RunDirectory, spec: LoraSpec, device: torch.device, dtype: torch.dtype) -> LoadedBase:
    return load_base(
        run.inputs / "base",
        device,
        dtype,
        vae=run.inputs / "vae" if spec.vae else None,
        prediction_type=spec.prediction_type,
        zero_terminal_snr=spec.zero_terminal_snr,
        base_precision=spec.base_precision,
        clip_skip=spec.clip_skip,
    )


def sources(base: LoadedBase, spec: LoraSpec, inputs: TrainingInputs) -> list[LoraSource]:
    """Return the source of the subjects' photos and, with prior preservation, one of class images."""
    subjects = spec.all_subjects
    timesteps = TimestepSampler(spec, base.noise.config.num_train_timesteps)
    source = partial(ExampleSource, spec, words=inputs.words, timesteps=timesteps)
    weights, prior_weights = [each.weight for each in subjects], [each.weight * each.prior_weight for each in subjects]

    def of_class(subject: int, at_a_time: int) -> ExampleSource:
        images = [own for bucket in inputs.class_images if (own := bucket.of_subject(subject)).examples]
        seed = int(stream(spec.seed, "class", sample=subject).integers(2**63))
        return source(images, seed=seed, weights=prior_weights, at_a_time=at_a_time)

    photos = source(inputs.photos, seed=spec.seed, weights=weights, at_a_time=spec.batch_size)
    classes = sorted({subject for bucket in inputs.class_images for subject in bucket.subjects})
    if not classes:
        return [photos]
    if len(subjects) == 1:
        return [photos, of_class(0, spec.batch_size)]
    return [photos, ClassSource(photos, {subject: of_class(subject, 1) for subject in classes})]


run_lora_trainer = partial(run_trainer, prepare_lora)
"""Run to the end, or until ordered to stop. Return the exit code."""
