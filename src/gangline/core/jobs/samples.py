"""When pictures of a training job are due, and who is to render them."""

from collections.abc import Sequence
from dataclasses import dataclass

from gangline.core.job import Node
from gangline.core.jobs.claim import ClaimCandidate, mismatch, refusal, unpriced
from gangline.core.money.budget import Purse


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """Pictures every so many steps or seconds, or never; `step` and `at_ms` are those of the last."""

    every_steps: int | None
    every_s: float | None
    step: int
    at_ms: int


def are_samples_due(rhythm: Rhythm, step: int, now_ms: int) -> bool:
    """Of a checkpoint of `step`: the first at or after each multiple. Steps that are trained again are not shown again."""
    by_steps = rhythm.every_steps is not None and step // rhythm.every_steps > rhythm.step // rhythm.every_steps
    by_time = rhythm.every_s is not None and now_ms - rhythm.at_ms >= rhythm.every_s * 1000
    return step > rhythm.step and (by_steps or by_time)


def may_go_elsewhere(job: ClaimCandidate, nodes: Sequence[Node], purse: Purse, now_ms: int) -> bool:
    """Whether one of `nodes`, those with nothing to train, may take it. Else who trains renders between its steps: that holds it up
    for less than a node that nobody has."""
    return any(
        refusal(node, now_ms) is None and mismatch(job, node, now_ms) is None and unpriced(purse, node) is None
        for node in nodes
    )
