"""One sentence says how a job stands. Its numbers are those of the ledger and of the attempts."""

from dataclasses import replace
from typing import Any

import pytest

from gangline.core.job import Attempt
from gangline.core.jobs.failure import MEANING
from gangline.core.jobs.story.verdict import (
    REMEDIES,
    RETRY,
    JobStanding,
    interruptions_of,
    lost_micro_usd,
    verdict,
)
from gangline.core.money.cost import Lost
from tests.unit.examples import ATTEMPT

NONE = Lost(interruptions=0, steps_redone=0, ms=0)
TWO = Lost(interruptions=2, steps_redone=40, ms=220_000)
STANDING = JobStanding(
    state="succeeded",
    because="finished on node-3",
    steps=500,
    step=500,
    committed_step=500,
    phase=None,
    node_name="node-3",
    eta_s=None,
    submitted_ms=0,
    since_ms=860_000,
    ended_ms=860_000,
    busy_ms=860_000,
    micro_usd=310_000,
    cost_lacks=(),
    lost=NONE,
    lost_micro_usd=0,
)
AT_WORK: dict[str, Any] = {"state": "running", "step": 120, "phase": "training", "ended_ms": None, "eta_s": 350.0}
WAITS: dict[str, Any] = {"state": "queued", "ended_ms": None, "step": 0, "busy_ms": 0, "since_ms": 620_000}
BAD: dict[str, Any] = {
    "state": "failed",
    "step": 120,
    "because": "out of memory: 30 GB asked",
    "failure": "out of memory",
}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Succeeded in 14 min 20 s for $0.31."),
        (
            {"lost": TWO, "lost_micro_usd": 20_000},
            "Succeeded in 14 min 20 s for $0.31; two interruptions cost 3 min 40 s and $0.02.",
        ),
        (
            {"lost": replace(TWO, interruptions=1, ms=40_000), "lost_micro_usd": 2_100},
            "Succeeded in 14 min 20 s for $0.31; one interruption cost 40 s and $0.0021.",
        ),
        (
            {"lost": replace(TWO, interruptions=11)},
            "Succeeded in 14 min 20 s for $0.31; 11 interruptions cost 3 min 40 s and $0.00.",
        ),
        ({"cost_lacks": ("node time",), "lost": TWO}, "Succeeded in 14 min 20 s; two interruptions cost 3 min 40 s."),
        ({"busy_ms": 500_000}, "Succeeded in 14 min 20 s (6 min 00 s of it without a node) for $0.31."),
        ({"step": 50}, "Succeeded at step 50 of 500 in 14 min 20 s for $0.31."),
        (AT_WORK, "Training on node-3, step 120 of 500, about 6 min left."),
        (
            AT_WORK | {"lost": TWO, "lost_micro_usd": 20_000},
            "Training on node-3, step 120 of 500, about 6 min left; two interruptions cost 3 min 40 s and $0.02 so far.",
        ),
        (AT_WORK | {"eta_s": 34.0}, "Training on node-3, step 120 of 500, about 30 seconds left."),
        (AT_WORK | {"eta_s": 9000.0}, "Training on node-3, step 120 of 500, about 2 h 30 min left."),
        (AT_WORK | {"steps": 0, "eta_s": None}, "Training on node-3, step 120."),
        (AT_WORK | {"step": 0, "phase": "downloading", "eta_s": None}, "Downloading on node-3."),
        (
            WAITS | {"because": "no node can take it: node-1 has 16 GB and it needs 24; a pool starts one"},
            "Queued for 4 min; no node can take it: node-1 has 16 GB and it needs 24; a pool starts one.",
        ),
        (
            AT_WORK | {"silent_ms": 24_300, "lease_s": 45.0, "eta_s": None},
            "Nothing heard from node-3 for 20 s; it was training, step 120 of 500; after 45 s the job goes back to the queue.",
        ),
        (WAITS | {"because": "waits for a node"}, "Queued for 4 min; it waits for a node."),
        (
            WAITS | {"state": "paused", "because": "paused by its owner", "committed_step": 100},
            "Paused by its owner for 4 min, at step 100 of 500.",
        ),
        (
            WAITS | {"state": "paused", "because": "its checkpoint is older", "committed_step": 0},
            "Paused for 4 min: its checkpoint is older.",
        ),
        (
            {"state": "canceled", "because": "canceled by its owner", "step": 120},
            "Canceled by its owner at step 120 of 500 after 14 min 20 s for $0.31.",
        ),
        (
            {"state": "canceled", "because": "canceled by its owner", "step": 0, "busy_ms": 0, "micro_usd": 0},
            "Canceled by its owner after 14 min 20 s.",
        ),
        (
            BAD,
            "Failed at step 120 of 500 after 14 min 20 s for $0.31: out of memory: 30 GB asked. "
            "Clone the job with a smaller batch or resolution, or let it need more GPU memory.",
        ),
        (
            BAD | {"because": "no node came.", "failure": "", "step": 0, "busy_ms": 0},
            f"Failed after 14 min 20 s: no node came. {RETRY}.",
        ),
    ],
)
def test_the_sentence_says_how_a_job_stands(changes: dict[str, Any], sentence: str) -> None:
    assert verdict(replace(STANDING, **changes), now_ms=860_000) == sentence


@pytest.mark.parametrize(
    ("waited_s", "words"), [(0, "less than a minute"), (59, "less than a minute"), (60, "1 min"), (4000, "1 h 06 min")]
)
def test_a_wait_is_said_to_the_minute(waited_s: int, words: str) -> None:
    job = replace(STANDING, **(WAITS | {"because": "waits for a node", "since_ms": 0}))
    assert verdict(job, now_ms=1000 * waited_s) == f"Queued for {words}; it waits for a node."


def test_a_long_reason_is_cut_so_that_what_to_do_is_still_read() -> None:
    said = verdict(replace(STANDING, **(BAD | {"because": "x" * 4000})), now_ms=0)
    assert len(said) < 500 and "… Clone the job" in said.replace("…. ", "… ")


def test_every_failure_that_can_end_a_job_has_a_remedy() -> None:
    ends = {kind for kind, meaning in MEANING.items() if meaning.counts}
    assert ends == REMEDIES.keys()


FIRST = replace(ATTEMPT, id="a", state="interrupted", step=65, started_ms=0, beat_ms=10_000)
SECOND = replace(ATTEMPT, id="b", from_step=50, step=300, started_ms=20_000, training_ms=22_000, seconds_per_step=0.1)
EXPENSES = {("a", "redone steps"): 300, ("a", "download"): 7, ("b", "download"): 40, ("b", "redone steps"): 5}


@pytest.mark.parametrize(
    ("attempts", "paused", "cost"),
    [
        ((FIRST, replace(SECOND, state="succeeded")), "", 340),
        ((FIRST, replace(SECOND, state="succeeded")), "a", 0),
        ((replace(FIRST, state="failed"), replace(SECOND, state="succeeded")), "", 0),
        ((FIRST, replace(SECOND, state="live", price_micro_usd_per_hour=3_600_000)), "", 300 + 2000),
        (
            (FIRST, replace(SECOND, state="live", price_micro_usd_per_hour=3_600_000, training_ms=None)),
            "",
            300 + 10_000,
        ),
        ((FIRST,), "", 0),
    ],
)
def test_interruptions_cost_what_was_paid_for_lost_steps_and_the_next_start(
    attempts: tuple[Attempt, ...], paused: str, cost: int
) -> None:
    assert lost_micro_usd(attempts, frozenset({paused}), EXPENSES, now_ms=30_000) == cost


def test_a_pause_is_no_interruption() -> None:
    attempts = [replace(FIRST, state="released"), SECOND]
    assert interruptions_of(attempts, frozenset()).interruptions == 1
    assert interruptions_of(attempts, frozenset({"a"})) == NONE
