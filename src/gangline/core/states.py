"""The states of jobs, attempts and nodes, and every move between two of them with its cause.

A job moves along `JOB_MOVES` alone: `gangline.service.attempts.moving` asserts it. Attempts and nodes are moved by guarded statements;
a test plays every move of these tables against the real service and finds no other. docs/contributing/states.md draws them.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from gangline.core.job import AttemptEnd, AttemptState, JobState, NodeState

New = Literal["new"]
"""Before the row exists."""

JOB_MOVES: Mapping[tuple[JobState | New, JobState], str] = {
    ("new", "queued"): "submitted",
    ("queued", "running"): "a node claims it",
    ("queued", "paused"): "its owner pauses it",
    ("queued", "failed"): "its photos cannot be fetched, or no node that it needs came",
    ("queued", "canceled"): "its owner cancels it, or its pictures are not wanted any more",
    ("paused", "queued"): "its owner resumes it",
    ("paused", "failed"): "its photos cannot be fetched",
    ("paused", "canceled"): "its owner cancels it",
    ("running", "queued"): "interrupted, released, or failed with tries left",
    ("running", "paused"): "its owner paused it, and the node has handed it back",
    ("running", "succeeded"): "its result is stored",
    ("running", "failed"): "confirmed to be bad, or failed attempts_max times",
    ("running", "canceled"): "its owner cancels it",
}

_ENDS: Mapping[AttemptEnd, str] = {
    "succeeded": "its result is stored",
    "failed": "a failure that counts",
    "interrupted": "its lease is overdue, or its node is gone",
    "released": "its node had notice and handed the job back",
    "canceled": "its job is canceled",
}
ATTEMPT_MOVES: Mapping[tuple[AttemptState | New, AttemptState], str] = {
    ("new", "live"): "a node claims the job",
    **{("live", end): because for end, because in _ENDS.items()},
}

_JOINS = {
    "ready": "its worker joins",
    "on_trial": "its worker joins on a machine on trial",
    "quarantined": "its worker joins, but failed its probe or the machine is in quarantine",
}
_DRAINS = "it is not needed any more, or another machine does its work for less"
NODE_MOVES: Mapping[tuple[NodeState | New, NodeState], str] = {
    ("new", "starting"): "rented from a provider",
    ("new", "ready"): _JOINS["ready"],
    ("new", "on_trial"): _JOINS["on_trial"],
    ("new", "quarantined"): _JOINS["quarantined"],
    ("starting", "ready"): _JOINS["ready"],
    ("starting", "on_trial"): _JOINS["on_trial"],
    ("starting", "quarantined"): _JOINS["quarantined"],
    ("ready", "on_trial"): "strikes, but it is the last machine of its pool",
    ("ready", "quarantined"): "strikes with a contrast",
    ("on_trial", "ready"): "an attempt succeeds there",
    ("on_trial", "quarantined"): "it fails its trial",
    ("quarantined", "on_trial"): "the quarantine is over",
    ("ready", "draining"): _DRAINS,
    ("on_trial", "draining"): _DRAINS,
    ("quarantined", "draining"): "another machine does the work that it still holds for less",
    **{
        (state, "gone"): "it left, fell silent, or its provider ended it"
        for state in get_args(NodeState)
        if state != "gone"
    },
}


def may_move_job(before: JobState, after: JobState) -> bool:
    return (before, after) in JOB_MOVES
