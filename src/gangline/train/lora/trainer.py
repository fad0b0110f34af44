"""Train a LoRA on photos of one subject: `python -m gangline.train.lora DIRECTORY`. The directory keeps the trainer contract
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
from gangline.train.lora.batches import ExampleSource, step_batches
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


def sources(base: LoadedBase, spec: LoraSpec, inputs: TrainingInputs) -> list[ExampleSource]:
    """Return the source of the subject's photos and, with prior preservation, one of class images with as many samples in each step."""
    timesteps = TimestepSampler(spec, base.noise.config.num_train_timesteps)
    subject = ExampleSource(spec, inputs.photos, inputs.words, seed=spec.seed, timesteps=timesteps)
    if not inputs.class_images:
        return [subject]
    seed = int(stream(spec.seed, "class").integers(2**63))
    prior = {"seed": seed, "timesteps": timesteps, "share": spec.prior_weight}
    return [subject, ExampleSource(spec, inputs.class_images, inputs.words, **prior)]


run_lora_trainer = partial(run_trainer, prepare_lora)
"""Run to the end, or until ordered to stop. Return the exit code."""
