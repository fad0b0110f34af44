"""Decide when samples of a training job are due, and whether another node renders them."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.job import Node
from gangline.core.jobs.claim import ClaimCandidate, mismatch, refusal, unpriced
from gangline.core.money.budget import Purse


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """A schedule of samples: every `every_steps` steps, every `every_s` seconds, or never. The last ones are of `step`, at `at_ms`."""

    every_steps: int | None
    every_s: float | None
    step: int
    at_ms: int


def are_samples_due(rhythm: Rhythm, step: int, now_ms: int) -> bool:
    """Return whether the checkpoint of `step` is to be sampled: the first one at or after each multiple of `every_steps`, or `every_s`
    after the last. Steps that are repeated after an interruption are not sampled again."""
    by_steps = rhythm.every_steps is not None and step // rhythm.every_steps > rhythm.step // rhythm.every_steps
    by_time = rhythm.every_s is not None and now_ms - rhythm.at_ms >= rhythm.every_s * 1000
    return step > rhythm.step and (by_steps or by_time)


def may_go_elsewhere(job: ClaimCandidate, nodes: Sequence[Node], purse: Purse, now_ms: int) -> bool:
    """Return whether one of the idle `nodes` may take the rendering job.

    If none may, the training node renders between its steps: that delays the job less than waiting for a node that does not exist.
    """
    return any(
        refusal(node, now_ms) is None and mismatch(job, node, now_ms) is None and unpriced(purse, node) is None
        for node in nodes
    )
