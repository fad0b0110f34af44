"""What the exit codes of a run's ranks say together."""

from functools import reduce
from itertools import permutations

import pytest

from gangline.core.runs.contract import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_OUT_OF_MEMORY,
    EXIT_PEER_GONE,
    EXIT_STOPPED,
)
from gangline.core.runs.ranks import PATIENCE_S, more_telling


@pytest.mark.parametrize(
    ("codes", "tells"),
    [
        ((EXIT_DONE, EXIT_STOPPED, EXIT_DONE), EXIT_STOPPED),
        ((EXIT_PEER_GONE, EXIT_BAD_INPUT, EXIT_DONE), EXIT_BAD_INPUT),
        ((EXIT_PEER_GONE, EXIT_OUT_OF_MEMORY, EXIT_FAILED), EXIT_OUT_OF_MEMORY),
    ],
)
def test_in_whatever_order_ranks_end_the_one_that_knows_why_is_believed(codes: tuple[int, ...], tells: int) -> None:
    assert {reduce(more_telling, order, EXIT_DONE) for order in permutations(codes)} == {tells}


def test_of_two_failures_the_first_one_tells() -> None:
    assert more_telling(EXIT_BAD_INPUT, EXIT_FAILED) == EXIT_BAD_INPUT
    assert more_telling(EXIT_FAILED, EXIT_BAD_INPUT) == EXIT_FAILED


def test_nobody_waits_for_a_rank_that_has_failed() -> None:
    assert EXIT_FAILED not in PATIENCE_S and EXIT_OUT_OF_MEMORY not in PATIENCE_S
    assert PATIENCE_S[EXIT_PEER_GONE] < 10 <= PATIENCE_S[EXIT_STOPPED]
