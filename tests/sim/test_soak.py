"""Promise 4, and all others, under every mix of faults: chaos, then peace, in which everything must end."""

from multiprocessing import get_context

import pytest

from gangline.sim.soak import JOBS_MIN, KINDS, NODES_MIN, Chaos, Soak, soak

PROCESSES = 2


def soaked(first: int, seeds: int) -> Soak:
    """Over processes of its own, a share of the seeds each."""
    shares = [range(first + number, first + seeds, PROCESSES) for number in range(PROCESSES)]
    whole = Soak()
    with get_context("spawn").Pool(PROCESSES) as pool:
        for part in pool.imap(soak, shares):
            whole.join(part)
    return whole


def is_clean(found: Soak, seeds: int) -> None:
    print(f"{found.seeds} seeds, {found.attempts} attempts, {found.events} events; struck: {dict(found.struck)}")
    assert found.because == []
    assert (found.seeds, found.violations, found.unfinished) == (seeds, 0, 0)
    assert found.never() == []


@pytest.mark.timeout(3600)
def test_every_promise_holds_under_every_kind_of_fault() -> None:
    is_clean(soaked(0, 200), 200)


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_every_promise_holds_over_thousands_of_seeds() -> None:
    is_clean(soaked(1000, 5000), 5000)


@pytest.mark.parametrize("seed", range(5))
def test_a_seed_is_no_toy(seed: int) -> None:
    scenario = Chaos(seed).simulation.scenario
    assert scenario.fleet.nodes_max >= NODES_MIN
    assert sum(batch.count for batch in scenario.jobs) >= JOBS_MIN


def test_a_kind_of_fault_that_never_struck_is_named() -> None:
    assert Soak().never() == list(KINDS)
