"""Guards are tested by removal: each is taken out in turn, and something must notice.

What notices is a probe: a race or a rule over the real service and SQL, some milliseconds long. Whom no probe notices is given
to chaos.
"""

import re
from collections.abc import Callable, Iterable

import pytest

from gangline.adapters.store.statements import statements
from gangline.sim.soak import play
from gangline.sim.store import SimStore
from gangline.sim.world import World
from tests.sim.mutants import (  # noqa: F401 - what is not named counts, too
    probes,
    probes_of_bases,
    probes_of_bytes,
    probes_of_commands,
    probes_of_datasets,
    probes_of_experiments,
    probes_of_facts,
    probes_of_gauges,
    probes_of_heirs,
    probes_of_lists,
    probes_of_machines,
    probes_of_metrics,
    probes_of_notices,
    probes_of_pictures,
    probes_of_places,
    probes_of_pools,
    probes_of_prices,
    probes_of_proofs,
    probes_of_reports,
    probes_of_retention,
    probes_of_rules,
    probes_of_samples,
    probes_of_sessions,
    probes_of_thresholds,
    probes_of_wishes,
)
from tests.sim.mutants.bench import PROBES, Probe
from tests.sim.mutants.mutants import Mutant, of_choices, of_conflicts, of_guards, of_indexes, of_writes
from tests.sim.mutants.rules import RULES

WRITES, CHOICES, CONFLICTS, INDEXES = map(list, (of_writes(), of_choices(), of_conflicts(), of_indexes()))
GUARDS = list(of_guards())
SOAKED = range(1, 3)
PARAMETER = re.compile(r"(?<!:):(\w+)")


def of(mutants: Iterable[Mutant]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mutant", mutants, ids=lambda mutant: mutant.id)


def who_notices(mutant: Mutant, *, first: str) -> str | None:
    """The probes of the module `first` are tried first."""
    ordered = sorted(PROBES, key=lambda probe: probe.act.__module__ != first)
    with mutant.change():
        for probe in ordered:
            if breaks(probe.run):
                return probe.name
        for seed in SOAKED:
            if breaks(lambda seed=seed: _soak(seed)):
                return f"chaos of seed {seed}"
    return None


def breaks(act: Callable[[], None]) -> bool:
    """A broken promise, a probe's own sentence, a database that refuses: any of them will do; but not a mutant that is no code."""
    try:
        act()
    except (NameError, TypeError):
        raise
    except Exception:
        return True
    return False


def _soak(seed: int) -> None:
    assert play(seed).unfinished == 0


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_with_every_guard_in_its_place(probe: Probe) -> None:
    probe.run()


@pytest.mark.tenths
@of([*WRITES, *CONFLICTS, *INDEXES])
def test_somebody_notices_when_the_sql_loses(mutant: Mutant) -> None:
    assert who_notices(mutant, first=probes.__name__)


@pytest.mark.tenths
@of(CHOICES)
def test_somebody_notices_when_a_claim_chooses_without(mutant: Mutant) -> None:
    assert who_notices(mutant, first=probes_of_rules.__name__)


def test_without_a_guard_it_is_still_sql() -> None:
    store = SimStore(World(0))
    for mutant in (*WRITES, *CHOICES, *CONFLICTS):
        with mutant.change():
            for name, text in statements().items():
                values = dict.fromkeys(PARAMETER.findall(text), 0)
                assert store._connection().execute(f"EXPLAIN {text}", values).fetchall(), (mutant.id, name)
    store.close()


@pytest.mark.tenths
@of(GUARDS)
def test_somebody_notices_when_the_service_loses(mutant: Mutant) -> None:
    assert who_notices(mutant, first=probes.__name__)


@pytest.mark.tenths
@of(RULES)
def test_somebody_notices_when_this_rule_is_broken(mutant: Mutant) -> None:
    assert who_notices(mutant, first=probes_of_rules.__name__)


def test_the_guards_are_found() -> None:
    """A search that finds nothing proves nothing."""
    found = {mutant.id for mutant in (*WRITES, *CHOICES, *CONFLICTS, *INDEXES, *GUARDS)}
    assert found >= {
        "take_job without version = :version",
        "hold_lease without fencing = :fencing",
        "interrupted_candidates without id NOT IN (SELECT ban.job FROM ban WHERE ban.machine = :machine)",
        "drain_idle without NOT EXISTS (SELECT 1 FROM lease WHERE lease.node = node.id)",
        "add_checkpoint without ON CONFLICT (attempt, step) DO NOTHING",
        "schema without attempt_live",
        "schema without UNIQUE (job, fencing) of attempt",
        "claim._take without a guard on enter",
    }
    assert not any(" without id = :id" in name for name in found), "which row is no guard"


def test_every_mutant_still_finds_what_it_breaks() -> None:
    """Those that are not of this tenth, too: one that breaks nothing would be noticed nights later."""
    for mutant in (*WRITES, *CHOICES, *CONFLICTS, *INDEXES, *GUARDS, *RULES):
        with mutant.change():
            pass


def test_a_mutant_leaves_nothing_behind() -> None:
    for mutant in (WRITES[0], CONFLICTS[0], INDEXES[0], GUARDS[0], RULES[0], RULES[-1]):
        with mutant.change():
            pass
    for probe in PROBES[:5]:
        probe.run()
