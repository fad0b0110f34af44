"""The trainer: one loop, whatever is trained. Read `train_as` from top to bottom: it is the whole run.

What a kind of job brings is a `Training`: gangline.train.lora.trainer and gangline.train.scratch.trainer have one each.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from gangline.core.errors import BadInput
from gangline.core.runs.contract import EXIT_DONE, EXIT_OUT_OF_MEMORY, EXIT_STOPPED
from gangline.core.specs.phases import moment_of_step
from gangline.core.specs.sample import TrainingSpec
from gangline.core.words import counted
from gangline.train.checkpoints.limits import lower_limit, read_limits
from gangline.train.checkpoints.shards import ShardSaver
from gangline.train.learning.learner import Learner
from gangline.train.learning.microbatch import NoRoom
from gangline.train.learning.network import Network
from gangline.train.learning.prefetch import Prefetcher
from gangline.train.learning.resume import resume_learner, save_learner
from gangline.train.run import numerics
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.meter import LossMeter, SaveClock
from gangline.train.run.ranks import Ranks, joined_ranks
from gangline.train.run.throughput import ThroughputMeter, peak_flops


class Training(ABC):
    """What a run trains, on what, and what becomes of it."""

    network: Network
    batches: Prefetcher[Any]

    @abstractmethod
    def measured(self, learner: Learner, step: int, *, last: bool = False) -> dict[str, float]:
        """Return what is measured on held-out samples after `step`, if anything is; always after the `last`, if there are any."""

    @abstractmethod
    def draw(self, run: RunDirectory, learner: Learner, step: int) -> None:
        """Draw pictures of what would be the result: of the step that was kept for them, else of this one. Training continues as if they
        had not been drawn."""

    @abstractmethod
    def write_result(self, run: RunDirectory, learner: Learner) -> None:
        """Write the result of a run whose last step was `run.step`, be that all of its spec's or not."""

    @abstractmethod
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run computes, and in which dtype."""

    ranks: Ranks
    device: torch.device
    dtype: torch.dtype


Prepare = Callable[[RunDirectory, Any, Place, Orders], Training | None]
"""Make ready what a spec asks for; None if there was an order to stop before all was ready."""


def run_trainer(prepare: Prepare, run: RunDirectory, orders: Orders) -> int:
    """Run to the end, or until ordered to stop. Return the exit code."""
    try:
        with joined_ranks() as ranks:
            return train_as(ranks, prepare, run if ranks.is_first else Unheard(run.path, run.memory), orders)
    except NoRoom as error:
        lower_limit(run.path, error.phase, error.samples // 2)
        print(f"{error}: {str(error.__cause__).partition('.')[0]}", file=sys.stderr)  # noqa: T201 - the job's log
        return EXIT_OUT_OF_MEMORY


def train_as(ranks: Ranks, prepare: Prepare, run: RunDirectory, orders: Orders) -> int:
    """Train as one of the ranks. Return the exit code."""
    run.report_phase("preparing")
    spec = run.read_training()
    run.steps = spec.steps
    check_shares(spec, ranks)
    numerics.choose_kernels(repeatable=spec.exact != "off", precision=spec.precision)
    device = ranks.device()
    place = Place(ranks=ranks, device=device, dtype=numerics.dtype_of(spec.precision, device))
    training = prepare(run, spec, place, orders)
    if training is None:
        return EXIT_STOPPED
    batches = training.batches
    learner = Learner(training.network, spec, ranks, device, place.dtype, read_limits(run.path))
    run.step = resume_learner(learner, run.resumable)
    learner.keep(run.step)
    saver = ShardSaver(run.checkpoints, ranks, after=run.step, memory=run.memory)
    saves = SaveClock(spec.checkpoint_every_s, (spec.checkpoint_every_steps, spec.sample_every_steps))
    meter = LossMeter(device)
    if run.step == 0:
        training.measured(learner, 0)
    run.report_phase("training")
    run.restart_meter()
    for step in steps_to_take(run, ranks, learner):
        moment, samples = moment_of_step(spec.phases, step), batches.step(step)
        if learner.fit(moment, samples):
            run.images_per_step = moment.phase.batch_size
            run.throughput = ThroughputMeter(
                gpus=ranks.count, flops_per_image=learner.flops_per_image, peak_flops=peak_flops(device)
            )
            run.restart_meter()
        meter.add(*learner.step(moment, samples))
        # One exchange for everything: what to do next, and (the maximum of -step) the last step whose part every rank has written.
        wanted = wishes(run, ranks, orders, saves, meter, step)
        stop, finish, save, render, report, written = ranks.most(*wanted, -saver.written)
        saver.heard(-written)
        with run.aside():
            measured = training.measured(learner, step, last=bool(finish))
        finish = finish or learner.is_worse
        if stop or finish or save or render or report or measured or moment.is_last_of_phase:
            count, loss, norm = meter.take()
            metrics = {"loss": loss, "gradient_norm": norm} | learner.gauges() | measured
            run.report_step(step, metrics, steps_since=count)
        if render:
            orders.render = False
            draw_as_ordered(training, run, learner, step, now=render == NOW)
        best = bool(measured) and learner.curve.best_step == step
        if (stop or finish or save or best) and step < spec.steps:
            orders.save = False
            run.report_phase("saving")
            run.save_s = save_learner(learner, saver, step)
            learner.keep(step)
            saves.saved()
            run.report_phase("training")
            run.restart_meter()
            if ranks.most(orders.stop)[0]:  # an order may have come meanwhile
                saver.wait()
                training.close()
                return EXIT_STOPPED
            if finish:
                break
    tell_why(run, learner)

    run.report_phase("saving")
    saver.wait()
    training.write_result(run, learner)
    training.close()
    ranks.meet()
    return EXIT_DONE


def steps_to_take(run: RunDirectory, ranks: Ranks, learner: Learner) -> range:
    """Return the steps from here to the last; none if the run resumes only to write its result."""
    finish = learner.is_worse or (run.step and ranks.most(run.is_to_finish)[0])
    return range(run.step + 1, run.step + 1 if finish else learner.spec.steps + 1)


def tell_why(run: RunDirectory, learner: Learner) -> None:
    """Say in the job's log why a run ends early by itself, and with which weights."""
    curve = learner.curve
    if learner.spec.stop_when_worse and curve.best_step is not None:
        ended = f"no better result in {counted(curve.worse, 'measurement')}: " * learner.is_worse
        run.log(f"{ended}the result has the weights of step {curve.best_step}, the best on held-out samples")


def draw_as_ordered(training: Training, run: RunDirectory, learner: Learner, step: int, *, now: bool) -> None:
    """Draw pictures between two steps: `now` of this one, whatever was kept for pictures."""
    run.report_phase("rendering")
    if now:
        learner.pictured = None
    training.draw(run, learner, step)
    if learner.ranks.is_first:
        run.show_now.unlink(missing_ok=True)
    run.report_phase("training")
    run.restart_meter()


def check_shares(spec: TrainingSpec, ranks: Ranks) -> None:
    """Raise `BadInput` if a step's samples cannot be divided evenly among the ranks."""
    for phase in spec.phases:
        if phase.batch_size % ranks.count:
            raise BadInput(
                f"a batch of {phase.batch_size} cannot be divided among {ranks.count} GPUs: it is not a multiple of that",
                hint="set another batch_size, or another number of GPUs",
            )


NOW = 2
"""An order to render this step, whatever was kept for pictures."""


def wishes(
    run: RunDirectory, ranks: Ranks, orders: Orders, saves: SaveClock, meter: LossMeter, step: int
) -> tuple[int, ...]:
    """Return whether to stop, to finish, to save, to render and to report. Any rank may have an order; the first one's clocks count."""
    save = orders.save or (ranks.is_first and saves.due(step))
    render = (NOW if run.show_now.exists() else 1) if orders.render else 0
    return orders.stop, run.is_to_finish, save, render, ranks.is_first and meter.due


class Unheard(RunDirectory):
    """The run directory of ranks that report nothing: only the first rank does."""

    def _write(self, line: dict[str, Any]) -> None:
        pass

    def log(self, words: str) -> None:
        pass
