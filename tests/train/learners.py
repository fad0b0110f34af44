"""One way to a LoRA that takes its first step, for tests and benchmarks. It imports nothing that only tests need."""

import torch

from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.phases import moment_of_step
from gangline.train.learning.learner import Learner
from gangline.train.learning.prefetch import Prefetcher
from gangline.train.lora.batches import LoraBatch
from gangline.train.lora.trainer import prepare_lora
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.ranks import Ranks
from gangline.train.trainer import Place


def learner_of(run: RunDirectory) -> tuple[Learner, Prefetcher[LoraBatch]]:
    """What the trainer takes its first step with, and what it is fed."""
    spec = run.read_training()
    assert isinstance(spec, LoraSpec)
    numerics.choose_kernels(repeatable=spec.exact != "off")
    device = numerics.device()
    place = Place(ranks=Ranks(), device=device, dtype=numerics.dtype_of(spec.precision, device))
    training = prepare_lora(run, spec, place, Orders())
    assert training is not None
    return Learner(training.network, spec, place.ranks, device, place.dtype), training.batches


def take_step(learner: Learner, batches: Prefetcher[LoraBatch], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As the trainer does."""
    moment, samples = moment_of_step(learner.spec.phases, step), list(batches.step(step))
    learner.fit(moment, samples)
    return learner.step(moment, samples)
