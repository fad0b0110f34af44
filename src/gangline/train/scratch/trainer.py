"""Train a U-Net, with or without its text encoders, or a VAE on data sets: `python -m gangline.train.scratch DIRECTORY`, or several ranks
of it under torchrun that share each step. The directory keeps the trainer contract (gangline.core.runs.contract); the loop is
gangline.train.trainer."""

from functools import partial

import torch

from gangline.core.runs.contract import pictures_name
from gangline.core.specs.sample import texts_to_show
from gangline.core.specs.scratch import ScratchSpec
from gangline.train.learning.held_out import HeldOutSamples
from gangline.train.learning.learner import Learner
from gangline.train.learning.prefetch import Prefetcher
from gangline.train.model.base import LoadedBase, base_at, check_previews, check_resolution
from gangline.train.model.sample import show_step
from gangline.train.model.text import embed_all, tokenize
from gangline.train.run.aside import left_out_without_memory
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.scratch.batches import ScratchBatches, open_data
from gangline.train.scratch.denoiser import Denoiser
from gangline.train.scratch.pipeline import gathered, with_whole_parts, write_pipeline
from gangline.train.scratch.vae import VaeModel
from gangline.train.trainer import Place, Training, run_trainer


class ScratchTraining(Training):
    """Whole parts of a model, on data sets."""

    def __init__(self, base: LoadedBase, spec: ScratchSpec, made: ScratchBatches, device: torch.device) -> None:
        self.base = base
        self.spec = spec
        self.made = made
        self.texts = tokenize(base, texts_to_show(spec)) if spec.sample_prompts else None
        self.network = VaeModel(base, spec) if spec.part == "vae" else Denoiser(base, spec)
        self.held_out = HeldOutSamples(spec)
        if spec.held_out:
            samples, rows = made.held_out()
            self.held_out = HeldOutSamples(spec, [samples], [samples.numbers], rows)
        self.batches = Prefetcher(lambda step: [made.batch(step)], spec.steps, device)

    def measured(self, learner: Learner, step: int, *, last: bool = False) -> dict[str, float]:
        return self.held_out.measure(learner, step) if self.held_out.due(step, last=last) else {}

    def draw(self, run: RunDirectory, learner: Learner, step: int) -> None:
        """The first rank draws them alone, with unsharded weights, so that no other rank waits inside a pass."""
        base, texts, kept = self.base, self.texts, learner.pictured
        if texts is None:
            return
        step, shown = (kept.step, kept.weights) if kept else (step, None)
        weights = gathered(learner, shown) if learner.in_pieces else None
        if learner.ranks.is_first:
            as_result = learner.as_result(shown) if weights is None else with_whole_parts(base, learner, weights)
            with left_out_without_memory(f"pictures of step {step} are"), base.borrowed(), as_result:
                show_step(base, self.spec, texts, embed_all(base, texts), run.samples / pictures_name(step), step)
        learner.ranks.meet()

    def write_result(self, run: RunDirectory, learner: Learner) -> None:
        write_pipeline(run, self.base, self.spec, learner, self.made)

    def close(self) -> None:
        self.batches.close()
        self.made.close()


def prepare_scratch(run: RunDirectory, spec: ScratchSpec, place: Place, orders: Orders) -> ScratchTraining:
    """Load the base and open the data sets."""
    base = base_at(run.inputs / "base", spec, place.device, place.dtype)
    for phase in spec.phases:
        check_resolution(base, phase.resolution)
    check_previews(base, spec)
    made = ScratchBatches(spec, base, open_data(spec, run.inputs), place.ranks)
    return ScratchTraining(base, spec, made, place.device)


run_scratch_trainer = partial(run_trainer, prepare_scratch)
"""Run to the end, or until ordered to stop. Return the exit code."""
