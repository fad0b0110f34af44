"""Rules of the stream of facts: each event of a user's job has one number in its project's stream, given once it is committed."""

import sqlite3

from gangline.service.facts import facts_after, number_facts
from gangline.service.jobs import steer
from gangline.service.retention.removal import remove
from tests.sim.mutants.bench import PROJECT, Bench, probe, refused
from tests.sim.mutants.probes_of_samples import pair, render


def numbered(bench: Bench, project: str = PROJECT) -> list[tuple[int, str]]:
    number_facts(bench.deployment, bench.now_ms)
    return [(fact.number, fact.kind) for fact in facts_after(bench.deployment, project, 0)]


@probe()
def numbers_continue_in_each_project_by_itself(bench: Bench) -> None:
    bench.submit(), bench.submit(seed=1), bench.submit("other", seed=2)
    assert numbered(bench) == [(1, "submitted"), (2, "submitted")]
    assert numbered(bench, "other") == [(1, "submitted")]
    job = bench.submit("other", seed=3)
    steer.cancel(bench.deployment, job, bench.now_ms)
    assert numbered(bench, "other") == [(1, "submitted"), (2, "submitted"), (3, "canceled")]
    assert numbered(bench) == [(1, "submitted"), (2, "submitted")]


@probe()
def a_number_of_a_deleted_job_is_given_to_no_other_fact(bench: Bench) -> None:
    bench.submit()
    job = bench.submit(seed=1)
    steer.cancel(bench.deployment, job, bench.now_ms)
    assert len(numbered(bench)) == 3
    remove(bench.deployment, job, bench.now_ms)
    bench.submit(seed=2)
    assert numbered(bench) == [(1, "submitted"), (4, "submitted")]


@probe()
def a_server_whose_turn_another_has_taken_numbers_nothing(bench: Bench) -> None:
    bench.submit()
    bench.look("UPDATE service SET ticker = 'another'")
    assert numbered(bench) == []


@probe()
def a_server_whose_turn_is_over_numbers_nothing(bench: Bench) -> None:
    bench.submit()
    bench.world.now_ms += 1
    assert numbered(bench) == []


@probe()
def the_events_of_jobs_that_only_render_have_no_number(bench: Bench) -> None:
    found = pair(bench)
    render(bench, found.other, bench.claim(found.other))
    assert [kind for _, kind in numbered(bench)] == bench.events(found.job)


@probe()
def no_event_is_left_without_a_number(bench: Bench) -> None:
    bench.submit()
    number_facts(bench.deployment, bench.now_ms)
    assert not bench.store.load("unnumbered_facts")
    bench.checks.facts.at_the_end()


@probe()
def the_schema_refuses_two_facts_of_one_number(bench: Bench) -> None:
    bench.submit(), bench.submit(seed=1)
    numbered(bench)
    assert refused(sqlite3.IntegrityError, lambda: bench.store.look("UPDATE event SET fact = 1 WHERE fact = 2"))
