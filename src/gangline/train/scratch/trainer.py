"""Train a U-Net, with or without its text encoders, or a VAE on data sets: `python -m gangline.train.scratch DIRECTORY`, or several ranks
of it under torchrun that share each step. The directory keeps the trainer contract (gangline.core.runs.contract).

Read `run_scratch_trainer` from top to bottom: it is the whole run.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch

from gangline.core.errors import BadInput
from gangline.core.runs.contract import EXIT_DONE, EXIT_OUT_OF_MEMORY, EXIT_STOPPED, pictures_name
from gangline.core.specs.scratch import ScratchSpec, moment_of_step
from gangline.train.checkpoints import shards
from gangline.train.checkpoints.limits import lower_limit, read_limits
from gangline.train.model.base import LoadedBase, base_at, check_resolution
from gangline.train.model.sample import show_step
from gangline.train.model.text import Texts, embed_all, tokenize
from gangline.train.run import numerics
from gangline.train.run.aside import left_out_without_memory
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.meter import LossMeter, SaveClock
from gangline.train.run.ranks import Ranks, joined_ranks
from gangline.train.run.throughput import ThroughputMeter, peak_flops
from gangline.train.scratch.batches import ScratchBatches, open_data
from gangline.train.scratch.denoiser import Denoiser, ScratchBatch
from gangline.train.scratch.learner import Learner
from gangline.train.scratch.microbatch import NoRoom
from gangline.train.scratch.pipeline import gathered, with_whole_parts, write_pipeline
from gangline.train.scratch.resume import resume_learner, save_learner
from gangline.train.scratch.vae import VaeModel


def run_scratch_trainer(run: RunDirectory, orders: Orders) -> int:
    """Run to the end, or until ordered to stop. Return the exit code."""
    try:
        with joined_ranks() as ranks:
            return train_as(ranks, run if ranks.is_first else Unheard(run.path), orders)
    except NoRoom as error:
        lower_limit(run.path, error.phase, error.samples // 2)
        print(f"{error}: {str(error.__cause__).partition('.')[0]}", file=sys.stderr)  # noqa: T201 - the job's log
        return EXIT_OUT_OF_MEMORY


def train_as(ranks: Ranks, run: RunDirectory, orders: Orders) -> int:
    """Train as one of the ranks. Return the exit code."""
    run.report_phase("preparing")
    spec = run.read_scratch()
    run.steps = spec.steps
    check_shares(spec, ranks)
    numerics.choose_kernels(repeatable=spec.exact != "off")
    device = ranks.device()
    dtype = numerics.dtype_of(spec.precision, device)
    base = base_at(run.inputs / "base", spec, device, dtype)
    for phase in spec.phases:
        check_resolution(base, phase.resolution)
    batches = ScratchBatches(spec, base, open_data(spec, run.inputs), ranks, device)
    texts = tokenize(base, [*spec.sample_prompts, ""]) if spec.sample_prompts else None
    network = VaeModel(base, spec) if spec.part == "vae" else Denoiser(base, spec)
    learner = Learner(network, spec, ranks, device, dtype, read_limits(run.path))
    run.step = resume_learner(learner, (run.resume, run.checkpoints))
    learner.keep(run.step)
    held_out = HeldOutLoss(spec, *(batches.held_out() if spec.held_out else (None, 0)))
    saver = shards.ShardSaver(run.checkpoints, ranks, after=run.step)
    saves = SaveClock(spec.checkpoint_every_s, (spec.checkpoint_every_steps, spec.sample_every_steps))
    meter = LossMeter(device)
    if run.step == 0:
        held_out.look(learner, 0)
    run.report_phase("training")
    run.restart_meter()
    for step in range(run.step + 1, spec.steps + 1):
        moment, samples = moment_of_step(spec, step), batches.step(step)
        if learner.fit(moment, samples):
            run.images_per_step = moment.phase.batch_size
            run.throughput = ThroughputMeter(
                gpus=ranks.count, flops_per_image=learner.flops_per_image, peak_flops=peak_flops(device)
            )
            run.restart_meter()
        meter.add(*learner.step(moment, samples))
        # One exchange for everything: what to do next, and (the maximum of -step) the last step whose part every rank has written.
        stop, save, render, report, written = ranks.most(*wishes(ranks, orders, saves, meter, step), -saver.written)
        saver.heard(-written)
        look = held_out.due(step)
        if stop or save or render or report or look or moment.is_last_of_phase:
            count, loss, norm = meter.take()
            with run.aside():
                found = held_out.look(learner, step) if look else {}
            run.report_step(step, {"loss": loss, "gradient_norm": norm} | learner.gauges() | found, steps_since=count)
        if render:
            orders.render = False
            draw_scratch_samples(run, learner, base, texts, step)
        if (stop or save) and step < spec.steps:
            orders.save = False
            run.report_phase("saving")
            run.save_s = save_learner(learner, saver, step)
            learner.keep(step)
            saves.saved()
            run.report_phase("training")
            run.restart_meter()
            if stop:
                saver.wait()
                batches.close()
                return EXIT_STOPPED

    run.report_phase("saving")
    saver.wait()
    write_pipeline(run, base, spec, learner, batches)
    batches.close()
    ranks.meet()
    return EXIT_DONE


def check_shares(spec: ScratchSpec, ranks: Ranks) -> None:
    """Raise `BadInput` if a step's samples cannot be divided evenly among the ranks."""
    for phase in spec.phases:
        if phase.batch_size % ranks.count:
            raise BadInput(
                f"a batch of {phase.batch_size} cannot be divided among {ranks.count} GPUs: it is not a multiple of that",
                hint="set another batch_size, or another number of GPUs",
            )


def wishes(ranks: Ranks, orders: Orders, saves: SaveClock, meter: LossMeter, step: int) -> tuple[int, ...]:
    """Return whether to stop, to save, to render and to report. Any rank may have received an order; only the first rank's clocks count."""
    save = orders.save or (ranks.is_first and saves.due(step))
    return orders.stop, save, orders.render, ranks.is_first and meter.due


class Unheard(RunDirectory):
    """The run directory of ranks that report nothing: only the first rank does."""

    def _write(self, line: dict[str, Any]) -> None:
        pass

    def _log(self, words: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """The samples that are never trained on: this rank's share of all `rows`, padded so that every rank has the same number."""

    spec: ScratchSpec
    samples: ScratchBatch | None
    rows: int

    def due(self, step: int) -> bool:
        every = self.spec.held_out_every_steps
        return bool(self.spec.held_out) and (step == self.spec.steps or bool(every and step % every == 0))

    def look(self, learner: Learner, step: int) -> dict[str, float]:
        """Return the mean over the rows of all ranks, with the weights that would be the result now, and append it to the learner's
        history."""
        if self.samples is None:
            return {}
        total = torch.zeros((), dtype=torch.float64, device=learner.device)
        with learner.as_result():
            for piece in self.samples.pieces(learner.at_a_time):
                values = learner.network.score(learner.measure(piece)).double()
                total += values[piece.numbers.to(learner.device) < self.rows].sum()
        mean = learner.ranks.sum(total).item() / self.rows
        learner.history.append((step, mean))
        return {learner.network.measures: mean}


def draw_scratch_samples(run: RunDirectory, learner: Learner, base: LoadedBase, texts: Texts | None, step: int) -> None:
    """Draw pictures of what would be the result, if there are prompts and as far as memory suffices: of the step that was kept for them,
    else of this one.

    The first rank draws them alone, with unsharded weights, so that no other rank waits inside a pass.
    """
    if texts is None:
        return
    run.report_phase("rendering")
    kept = learner.pictured
    shown = kept.weights if kept else None
    step = kept.step if kept else step
    weights = gathered(learner, shown) if learner.in_pieces else None
    if learner.ranks.is_first:
        as_result = learner.as_result(shown) if weights is None else with_whole_parts(base, learner, weights)
        with left_out_without_memory(f"pictures of step {step} are"), base.borrowed(), as_result:
            spoken = embed_all(base, texts)
            show_step(base, learner.spec, texts, spoken, run.samples / pictures_name(step), step)
    learner.ranks.meet()
    run.report_phase("training")
    run.restart_meter()
