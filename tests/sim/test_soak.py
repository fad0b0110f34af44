"""Promise 4, and all others, under every mix of faults: chaos, then peace, in which everything must end."""

from collections.abc import Sequence
from multiprocessing import get_context

import pytest

from gangline.sim.drawing import JOBS_MIN, NODES_MIN
from gangline.sim.soak import KINDS, Chaos, Soak, soak
from tests.tenths import TENTHS

PROCESSES = 2
SEEDS = 200


def soaked(seeds: Sequence[int]) -> Soak:
    """Over processes of its own, a share of the seeds each."""
    whole = Soak()
    with get_context("spawn").Pool(PROCESSES) as pool:
        for part in pool.imap(soak, [seeds[number::PROCESSES] for number in range(PROCESSES)]):
            whole.join(part)
    return whole


def is_clean(found: Soak, seeds: int) -> None:
    print(f"{found.seeds} seeds, {found.attempts} attempts, {found.events} events; struck: {dict(found.struck)}")
    assert found.because == []
    assert (found.seeds, found.violations, found.unfinished) == (seeds, 0, 0)


def in_turn(tenth: int | None) -> list[range]:
    """All seeds at once, or by tenths, that one first."""
    if tenth is None:
        return [range(SEEDS)]
    return [range((tenth + number) % TENTHS, SEEDS, TENTHS) for number in range(TENTHS)]


@pytest.mark.timeout(3600)
def test_every_promise_holds_under_every_kind_of_fault(tenth: int | None) -> None:
    """Over a tenth of the seeds, and over further tenths for as long as there is a kind of fault that never struck."""
    found, played = Soak(), 0
    for seeds in in_turn(tenth):
        found.join(soaked(seeds))
        played += len(seeds)
        is_clean(found, played)
        if not found.never():
            break
    assert found.never() == []


def test_the_tenths_are_all_of_the_seeds() -> None:
    for tenth in range(TENTHS):
        assert in_turn(tenth)[0] == range(tenth, SEEDS, TENTHS)
        assert sorted(seed for seeds in in_turn(tenth) for seed in seeds) == list(*in_turn(None))


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_every_promise_holds_over_thousands_of_seeds() -> None:
    found = soaked(range(1000, 6000))
    is_clean(found, 5000)
    assert found.never() == []


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_is_no_toy(seed: int) -> None:
    scenario = Chaos(seed).simulation.scenario
    assert sum(pool.nodes_max for pool in scenario.all_pools) >= NODES_MIN
    assert sum(batch.count for batch in scenario.jobs) >= JOBS_MIN


def test_a_kind_of_fault_that_never_struck_is_named() -> None:
    assert Soak().never() == list(KINDS)
