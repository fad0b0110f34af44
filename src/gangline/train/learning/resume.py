"""Save a learner in a checkpoint, and resume it with the same number of ranks or another."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from gangline.core.errors import BadInput
from gangline.core.runs.microbatch import settled
from gangline.core.specs.phases import moment_of_step
from gangline.train.checkpoints import shards
from gangline.train.checkpoints.manifest import FORMAT, MADE_BY
from gangline.train.checkpoints.stored import StoredCheckpoint, newest_good
from gangline.train.learning.average import LossScale
from gangline.train.learning.learner import Learner
from gangline.train.learning.microbatch import must_stay
from gangline.train.run import numerics
from gangline.train.run.optimiser import OptimizerState, optimizer_state, restore_optimizer
from gangline.train.tensors import Tensors
from gangline.version import VERSION


def save_learner(learner: Learner, saver: shards.ShardSaver, step: int) -> float:
    """Save the learner after `step`. Return the seconds for which that held up training."""
    started_s = time.monotonic()
    state = learner.buffers.state_by_weight(optimizer_state(learner.optimizer, learner.buffers.owners))
    tensors = {shards.WEIGHTS + name: weight for name, weight in learner.weights.items()}
    tensors |= {shards.OPTIMIZER + name: tensor for name, tensor in state.tensors.items()}
    tensors |= {shards.AVERAGED + name: tensor for name, tensor in learner.averaged().items()}
    tensors |= {shards.BEST + name: tensor for name, tensor in learner.best.items()}
    numbers = {
        "format": FORMAT,
        MADE_BY: VERSION,
        "optimizer": state.numbers,
        "loss_scale": [learner.scale.factor, learner.scale.steps],
        "held_out": learner.curve.to_json(),
    }
    identity = replace(learner.identity, best=learner.curve.best_step == step)
    saver.save(step, identity, tensors, numbers)
    return time.monotonic() - started_s


def resume_learner(learner: Learner, folders: tuple[Path, ...]) -> int:
    """Resume from the newest valid checkpoint, if there is one. Return the step after which it was made, or 0.

    Raise `BadInput` if the job continues another one and there is none: beginning at step 0 would give another result, at the price of all
    steps.
    """
    continues = learner.spec.continues
    stored, rejected = newest_good(folders, learner.identity.spec_hash, set(learner.weights), learner.ranks, continues)
    for sentence in rejected:
        print(sentence, file=sys.stderr)  # noqa: T201 - the trainer's standard error is the job's log
    if stored is None and continues:
        raise BadInput(
            f"this job continues step {continues.step} of {continues.job}, and no valid checkpoint of that step is here",
            hint="extend the old job again, from a checkpoint that it still has",
        )
    if stored is None:
        return 0
    step = stored.manifest.step
    _take_numerics(learner, stored.manifest.fingerprint, stored.manifest.exact, step)
    learner.put({name: _same_rows(stored, shards.WEIGHTS + name, weight) for name, weight in learner.weights.items()})
    if learner.average:
        learner.average.tensors = learner.buffers.by_whole(_restored(learner, stored, shards.AVERAGED))
    learner.best = _restored(learner, stored, shards.BEST)
    _restore_optimizer(learner, stored)
    learner.scale = LossScale(*stored.numbers["loss_scale"])
    learner.curve.restore(stored.numbers["held_out"])
    if stored.manifest.spec_hash != learner.identity.spec_hash:
        learner.curve.worse = (
            0  # a job that continues another one, which may have ended as it was worse, is measured as often again
        )
    return step


def _restored(learner: Learner, stored: StoredCheckpoint, kind: str) -> Tensors:
    """Return the rows that this rank has of another copy of the weights, of those that have one."""
    named = {name: kind + name for name in learner.weights if kind + name in stored.parts}
    return {name: _same_rows(stored, key, learner.weights[name]) for name, key in named.items()}


def _same_rows(stored: StoredCheckpoint, name: str, weight: torch.Tensor) -> torch.Tensor:
    """Return the rows that this rank has of the weight; a tensor of another shape, such as a step count, is read whole."""
    if stored.shape(name) != tuple(weight.shape):
        return stored.rows(name, shards.Span((), 0, 2**62)).to(weight.device, copy=True)
    rows = stored.rows(name, shards.rows_of_shard(weight)).to(weight.device, copy=True)
    return shards.as_sharded_as(weight, rows)


def _restore_optimizer(learner: Learner, stored: StoredCheckpoint) -> None:
    known = learner.weights | learner.wholes
    tensors = Tensors()
    for key in stored.below(shards.OPTIMIZER):
        name = key.removeprefix(shards.OPTIMIZER)
        tensors[name] = _same_rows(stored, key, known[name.rpartition("/")[0]])
    state = learner.buffers.state_by_whole(OptimizerState(tensors, stored.numbers["optimizer"]))
    restore_optimizer(learner.optimizer, learner.buffers.owners, state)


def _take_numerics(learner: Learner, before: dict[str, str], exact: bool, step: int) -> None:
    """Take over the checkpoint's microbatch in its phase, or a smaller one if memory has no room for it. Report other differences in
    numerics.

    Raise `OtherNumerics` or `MemoryError` if the job does not allow the difference.
    """
    phase, had = moment_of_step(learner.spec.phases, step).number, int(before["microbatch"])
    has = settled(None, learner.limits.get(phase, 0), had)
    learner.kept = {phase: has}
    if has < had and learner.spec.exact == "required":
        raise must_stay(phase, had)
    now = learner.identity.fingerprint | {"microbatch": str(has)}
    changed = numerics.differences(before, now)
    if changed and learner.spec.exact == "required":
        raise numerics.OtherNumerics(f"its checkpoint was made with other numerics: {changed}")
    if changed:
        print(f"no longer exact to the bit: {changed}", file=sys.stderr)  # noqa: T201
    learner.identity = replace(
        learner.identity, fingerprint=now, exact=learner.identity.exact and exact and not changed
    )
