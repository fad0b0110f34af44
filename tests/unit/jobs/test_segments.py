"""A timeline splits all of a job's time into phases, without gap or overlap, whatever was heard of it."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.core.charts.phases import PHASES, WAITING, TimelineMark, TimelineSegment
from gangline.core.job import HELD
from gangline.core.jobs.story.marks import COMMITS_MAX, marks_of
from gangline.core.jobs.story.segments import TriedSpan, segments_of, waits_of

SPAN: dict[str, Any] = {
    "attempt": "a",
    "node_name": "node-1",
    "machine": "m-1",
    "gpu": "",
    "state": "succeeded",
    "because": "it ended",
    "started_ms": 10_000,
    "training_ms": 20_000,
    "beat_ms": 95_000,
    "ended_ms": 100_000,
    "phases": ((12_000, "downloading"), (15_000, "preparing"), (21_000, "training"), (90_000, "uploading")),
}


def span(**changes: Any) -> TriedSpan:
    return TriedSpan(**(SPAN | changes))


def told(segments: tuple[TimelineSegment, ...]) -> list[tuple[int, str]]:
    return [(segment.from_ms // 1000, segment.phase) for segment in segments]


def test_training_begins_with_the_first_step_as_in_the_ledger() -> None:
    found = segments_of(0, 100_000, [(0, "queued")], [span()])
    assert told(found) == [
        (0, "queued"),
        (10, "starting"),
        (12, "downloading"),
        (15, "preparing"),
        (20, "training"),
        (90, "uploading"),
    ]
    assert [segment.ended for segment in found] == ["", "", "", "", "", "succeeded"]
    assert found[0].attempt is None and found[1].machine == "m-1"


def test_an_attempt_of_an_older_version_has_the_phases_that_its_row_tells_apart() -> None:
    assert told(segments_of(10_000, 100_000, [], [span(phases=())])) == [(10, "starting"), (20, "training")]
    assert told(segments_of(10_000, 100_000, [], [span(phases=(), training_ms=None)])) == [(10, "starting")]


def test_what_comes_after_the_last_heartbeat_of_an_interrupted_attempt_is_silence() -> None:
    lost = span(state="interrupted", beat_ms=60_000, phases=((21_000, "training"),))
    found = segments_of(10_000, 130_000, [(100_000, "queued")], [lost])
    assert told(found) == [(10, "starting"), (20, "training"), (60, "silent"), (100, "queued")]
    assert (found[2].ended, found[2].because) == ("interrupted", "it ended")


def test_a_live_attempt_lasts_until_now() -> None:
    found = segments_of(0, 50_000, [], [span(state="live", ended_ms=None, phases=())])
    assert (found[-1].phase, found[-1].to_ms, found[-1].ended) == ("training", 50_000, "")


def test_waits_are_named_by_what_the_job_waited_for() -> None:
    events = [
        (0, "submitted", "queued"),
        (5, "admitted", "queued"),
        (8, "claimed", "running"),
        (9, "committed", "running"),
    ]
    assert waits_of(events, 0) == [(0, "held"), (5, "queued"), (8, "queued")]
    paused = [*events, (20, "released", "paused"), (30, "queued", "queued")]
    assert waits_of(paused, 0)[3:] == [(20, "paused"), (30, "queued")]
    assert waits_of(paused, HELD)[3:] == [(20, "paused"), (30, "held")]
    assert waits_of([(0, "submitted", "queued"), (5, "fetched", "queued")], 0) == [(0, "fetching"), (5, "queued")]
    assert waits_of([(0, "submitted", "queued")], 1) == [(0, "fetching")]


def test_what_older_versions_recorded_without_a_state_is_a_wait_in_the_queue() -> None:
    events = [(0, "submitted", ""), (8, "claimed", ""), (20, "interrupted", "")]
    assert {phase for _, phase in waits_of(events, 0)} == {"queued"}


def test_a_trainer_that_saves_all_the_time_does_not_fill_the_timeline() -> None:
    saves = tuple(
        part for at_s in range(30, 9000, 3) for part in ((at_s * 1000, "saving"), (at_s * 1000 + 500, "training"))
    )
    found = segments_of(0, 10_000_000, [], [span(ended_ms=9_000_000, phases=saves)], segments_max=50)
    assert len(found) <= 50
    assert_whole(found, 0, 10_000_000)
    assert [segment.ended for segment in found if segment.ended] == ["succeeded"]


MOMENTS = st.integers(-1000, 200_000)


@st.composite
def spans(draw: st.DrawFn) -> list[TriedSpan]:
    """Attempts of servers and nodes whose clocks may differ."""
    found = list[TriedSpan]()
    for number in range(draw(st.integers(0, 5))):
        phases = draw(st.lists(st.tuples(MOMENTS, st.sampled_from(sorted(PHASES.keys() - WAITING))), max_size=6))
        found.append(
            span(
                attempt=f"a-{number}",
                state=draw(st.sampled_from(["succeeded", "failed", "interrupted", "released", "live"])),
                started_ms=draw(MOMENTS),
                training_ms=draw(st.none() | MOMENTS),
                beat_ms=draw(MOMENTS),
                ended_ms=draw(st.none() | MOMENTS),
                phases=tuple(phases),
            )
        )
    return found


def assert_whole(found: tuple[TimelineSegment, ...], from_ms: int, until_ms: int) -> None:
    assert all(segment.from_ms < segment.to_ms for segment in found)
    assert all(before.to_ms == after.from_ms for before, after in pairwise(found))
    assert sum(segment.to_ms - segment.from_ms for segment in found) == until_ms - from_ms
    if found:
        assert (found[0].from_ms, found[-1].to_ms) == (from_ms, until_ms)


@given(
    spans(),
    st.lists(st.tuples(MOMENTS, st.sampled_from(sorted(WAITING))), max_size=6),
    st.integers(0, 1000),
    st.integers(0, 200_000),
    st.integers(1, 20),
)
def test_the_segments_cover_all_of_a_jobs_time_without_gap_or_overlap(
    tried: list[TriedSpan], waits: list[tuple[int, str]], from_ms: int, length_ms: int, segments_max: int
) -> None:
    found = segments_of(from_ms, from_ms + length_ms, sorted(waits), tried, segments_max)
    assert_whole(found, from_ms, from_ms + length_ms)
    assert {segment.phase for segment in found} <= PHASES.keys()
    assert all((segment.attempt is None) == (segment.phase in WAITING) for segment in found)


def test_a_mark_has_the_names_of_its_attempt_or_machine() -> None:
    moments = [
        TimelineMark(at_ms=100_000, kind="banned", machine="m-1", because="it failed there"),
        TimelineMark(at_ms=50_000, kind="interrupted", attempt="a"),
        TimelineMark(at_ms=1, kind="submitted"),
        TimelineMark(at_ms=2, kind="bans lifted"),
    ]
    found = marks_of(moments, [span()])
    assert [(mark.kind, mark.attempt, mark.node_name, mark.machine) for mark in found] == [
        ("bans lifted", None, "", ""),
        ("interrupted", "a", "node-1", "m-1"),
        ("banned", "a", "node-1", "m-1"),
    ]


def test_of_very_many_checkpoints_some_are_marked_and_the_last_one() -> None:
    commits = [TimelineMark(at_ms=at, kind="committed", step=at) for at in range(10 * COMMITS_MAX)]
    found = marks_of([*commits, TimelineMark(at_ms=7, kind="failed")], [])
    assert len(found) <= COMMITS_MAX + 2
    assert found[-1].step == 10 * COMMITS_MAX - 1
    assert "failed" in {mark.kind for mark in found}
