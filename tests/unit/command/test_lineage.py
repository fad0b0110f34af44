"""Which checkpoints a run goes on from, which are forgotten, and what runs cost."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.command.lineage import (
    Begun,
    Ref,
    account,
    forgotten,
    history,
    is_key_of_exec,
    newest_begun,
    next_run,
    overtaken_by,
    parse_begun,
)

A, B, C = "000001", "000002", "000003"


def begun(run: str, origin: Ref | None = None, after_ms: int = 0, price: float | None = None) -> Begun:
    return Begun(
        run=run, origin=origin, continues=origin.run if origin else "", continued_ms=after_ms, usd_per_hour=price
    )


def test_a_runs_own_checkpoints_come_first_then_those_up_to_where_it_went_on() -> None:
    runs = {A: begun(A), B: begun(B, Ref(A, 2))}
    refs = [Ref(A, 1), Ref(A, 2), Ref(A, 3), Ref(B, 1)]
    assert history(runs, refs, last=B) == [Ref(B, 1), Ref(A, 2), Ref(A, 1)]


def test_what_an_overtaken_run_sends_later_is_in_nobodys_history() -> None:
    runs = {A: begun(A), B: begun(B, Ref(A, 1)), C: begun(C, Ref(A, 1))}
    assert history(runs, [Ref(A, 1), Ref(A, 9), Ref(B, 1)], last=C) == [Ref(A, 1)]
    assert forgotten([Ref(A, 1)], [Ref(A, 1), Ref(A, 9), Ref(B, 1)], frozenset(), keep=2) == [Ref(A, 9), Ref(B, 1)]


def test_a_run_that_took_a_number_and_began_nothing_changes_nothing() -> None:
    runs = {A: begun(A)}
    assert newest_begun(runs) == A
    assert history(runs, [Ref(A, 1)], last=newest_begun(runs)) == [Ref(A, 1)]


def test_numbers_grow_and_the_greater_one_overtakes() -> None:
    assert next_run([]) == A and next_run([A, B]) == C
    assert next_run([f"{B}-0a1b2c3d"]) == C
    assert overtaken_by(A, [A]) is None
    assert overtaken_by(A, [A, B]) == B
    assert overtaken_by(f"{A}-11111111", [f"{A}-11111111", f"{A}-22222222"]) == f"{A}-22222222"


def test_other_keys_are_nobodys() -> None:
    ours = ["claims/000001.json", "runs/000001/begun.json", "runs/000002-0a1b2c3d/log/1.txt", "probes/x"]
    others = ["photos/1.png", "claims/notes.json", "claims/000002 (1).json", "runs/Jan01_host/events", "readme"]
    assert all(map(is_key_of_exec, ours)) and not any(map(is_key_of_exec, others))


def test_what_a_run_said_of_its_beginning_comes_back() -> None:
    said = Begun(run=B, origin=Ref(A, 3), continues=B, continued_ms=5, at_ms=7, command=("a", "b"), usd_per_hour=1.5)
    assert parse_begun(B, said.to_json()) == said


def test_time_after_the_checkpoint_that_was_gone_on_from_is_lost_and_all_time_costs() -> None:
    runs = {
        A: begun(A, price=1.0),
        B: begun(B, Ref(A, 2), 50_000, price=2.0),
        C: begun(C, Ref(A, 2), 50_000, price=2.0),
    }
    told = account(runs, {A: 60_000, B: 30_000, C: 3_600_000}, now=C)
    assert (told.runs, told.seconds, told.lost_s) == (3, 3690.0, 10.0 + 30.0)
    assert told.cost_usd == 60 / 3600 + 2 * 30 / 3600 + 2.0
    assert account({A: begun(A)}, {A: 5}, now=A).cost_usd is None


def test_what_went_on_from_its_own_disk_lost_only_what_came_after_that() -> None:
    """Also where nothing had arrived in the store yet."""
    for origin in (None, Ref(A, 2)):
        runs = {A: begun(A), B: Begun(run=B, origin=origin, continues=A, continued_ms=55_000)}
        assert account(runs, {A: 60_000, B: 1}, now=B).lost_s == 5.0


RUNS = [f"{number:06d}" for number in range(1, 7)]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, Begun], list[Ref]]:
    """Runs that each went on from something an earlier one had made, or from nothing; any of them may have handed in more since."""
    refs, runs = list[Ref](), dict[str, Begun]()
    for run in RUNS[: draw(st.integers(1, 6))]:
        runs[run] = begun(run, draw(st.sampled_from(refs)) if refs and draw(st.booleans()) else None)
        refs += [Ref(run, number) for number in range(1, draw(st.integers(0, 4)) + 1)]
    return runs, refs


@given(worlds())
def test_a_history_is_one_line_of_descent(world: tuple[dict[str, Begun], list[Ref]]) -> None:
    """Walked the other way round: from each checkpoint one asks what it came from."""
    runs, refs = world
    last = max(runs)
    found = history(runs, refs, last=last)
    ahead = {after: before for before, after in zip(found[1:], found, strict=False)}
    for ref in found:
        own = [other for other in refs if other.run == ref.run and other.number < ref.number]
        assert ahead.get(ref) == (max(own) if own else runs[ref.run].origin)
    mine = [ref for ref in refs if ref.run == last]
    assert found[: len(mine)] == sorted(mine, reverse=True)


@given(worlds(), st.integers(2, 3), st.sets(st.integers(0, 9)))
def test_the_newest_of_a_history_and_the_pinned_stay(
    world: tuple[dict[str, Begun], list[Ref]], keep: int, pins: set[int]
) -> None:
    runs, refs = world
    found = history(runs, refs, last=max(runs))
    pinned = frozenset(ref for number, ref in enumerate(found) if number in pins)
    gone = forgotten(found, refs, pinned, keep=keep)
    assert set(refs) - set(gone) == set(found[:keep]) | pinned
