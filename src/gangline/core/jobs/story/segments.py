"""Split a job's time into phases: every millisecond from its submission on is in exactly one segment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from gangline.core.charts.phases import TimelineSegment
from gangline.core.job import HELD, AttemptState

SEGMENTS_MAX = 1000
"""A trainer that saves all the time has more phases than a page can show: the shortest become a part of the one before."""
BEFORE = {"admitted": "held", "fetched": "fetching"}
"""Events that end a wait for something other than a node, and the phase before each."""
AT_WORK = "at work"
"""Stands for any state in which a job does not wait. Events of older versions have no state: what follows an attempt is then the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSpan:
    """The time that one attempt had the job. `phases` are the moments at which its node was heard to go into another phase, in order.
    `beat_ms` is when it was heard last, and `silent` says that it is live and two heartbeats have not come."""

    attempt: str
    node_name: str
    machine: str
    gpu: str
    state: AttemptState
    because: str
    started_ms: int
    training_ms: int | None
    beat_ms: int
    ended_ms: int | None
    phases: tuple[tuple[int, str], ...] = ()
    silent: bool = False


def waits_of(events: Iterable[tuple[int, str, str]], fetching: int) -> list[tuple[int, str]]:
    """Return when a job began to wait for what. `events` have a time, a kind and the state that they led to, in order; `fetching` is the
    job's column, which says what it waits for now."""
    found = list[tuple[int, str]]()
    for at_ms, kind, state in events:
        phase = state if state in ("queued", "paused") else AT_WORK
        if kind in BEFORE and found and found[-1][1] == "queued":
            found[-1] = (found[-1][0], BEFORE[kind])
        if not found or found[-1][1] != phase:
            found.append((at_ms, phase))
    if fetching and found and found[-1][1] == "queued":
        found[-1] = (found[-1][0], "held" if fetching == HELD else "fetching")
    return [(at_ms, "queued" if phase == AT_WORK else phase) for at_ms, phase in found]


def segments_of(
    submitted_ms: int,
    until_ms: int,
    waits: Sequence[tuple[int, str]],
    tried: Sequence[TriedSpan],
    segments_max: int = SEGMENTS_MAX,
) -> tuple[TimelineSegment, ...]:
    """Return the job's segments from `submitted_ms` to `until_ms` in order, without gap or overlap. `tried` are in the order of attempts.

    Servers' clocks may differ: a moment that comes before what was already counted is moved to its end.
    """
    found = list[TimelineSegment]()
    at_ms = submitted_ms
    for span in tried:
        from_ms = min(max(span.started_ms, at_ms), until_ms)
        to_ms = min(max(until_ms if span.ended_ms is None else span.ended_ms, from_ms), until_ms)
        found += [*_waiting(at_ms, from_ms, waits), *_working(from_ms, to_ms, span)]
        at_ms = to_ms
    found += _waiting(at_ms, max(at_ms, until_ms), waits)
    return tuple(_thinned(found, segments_max))


def _waiting(from_ms: int, to_ms: int, waits: Sequence[tuple[int, str]]) -> list[TimelineSegment]:
    before = [phase for at_ms, phase in waits if at_ms <= from_ms]
    inside = [(at_ms, phase) for at_ms, phase in waits if from_ms < at_ms < to_ms]
    return _spans(from_ms, to_ms, [(from_ms, before[-1] if before else "queued"), *inside])


def _working(from_ms: int, to_ms: int, span: TriedSpan) -> list[TimelineSegment]:
    cuts = [(from_ms, "starting"), *_heard(span)]
    if span.state == "interrupted" or span.silent:
        cuts = [*(cut for cut in cuts if cut[0] < max(span.beat_ms, from_ms + 1)), (span.beat_ms, "silent")]
    of = {"attempt": span.attempt, "node_name": span.node_name, "machine": span.machine, "gpu": span.gpu}
    found = [replace(segment, **of) for segment in _spans(from_ms, to_ms, cuts)]
    if found and span.state != "live":
        found[-1] = replace(found[-1], ended=span.state, because=span.because)
    return found


def _heard(span: TriedSpan) -> list[tuple[int, str]]:
    """Return the phases that were heard of. Beats are seconds apart, but the time of the first step is known: training begins then, as in
    the ledger, also where it began and ended between two beats."""
    found = list(span.phases)
    if span.training_ms is None:
        return found
    first = next((number for number, (_, phase) in enumerate(found) if phase == "training"), None)
    if first is None:
        return sorted([*found, (span.training_ms, "training")], key=lambda cut: cut[0])
    before_ms = found[first - 1][0] if first else span.started_ms
    found[first] = (min(found[first][0], max(span.training_ms, before_ms)), "training")
    return found


def _spans(from_ms: int, to_ms: int, cuts: Sequence[tuple[int, str]]) -> list[TimelineSegment]:
    """Return what lies between the cuts, of which the first is at `from_ms`. What has no length is left out, equal neighbours are one."""
    found = list[TimelineSegment]()
    at_ms = from_ms
    for (_, phase), (next_ms, _) in pairwise([*cuts, (to_ms, "")]):
        end_ms = min(max(next_ms, at_ms), to_ms)
        if end_ms == at_ms:
            continue
        if found and found[-1].phase == phase:
            found[-1] = replace(found[-1], to_ms=end_ms)
        else:
            found.append(TimelineSegment(from_ms=at_ms, to_ms=end_ms, phase=phase))
        at_ms = end_ms
    return found


def _thinned(found: list[TimelineSegment], segments_max: int) -> list[TimelineSegment]:
    """Return at most about this many segments: an attempt, and a wait between two, keeps at least one."""
    shortest_ms = 1000
    while len(found) > segments_max:
        thinner = list[TimelineSegment]()
        for segment in found:
            before = thinner[-1] if thinner else None
            if before and before.attempt == segment.attempt and segment.to_ms - segment.from_ms < shortest_ms:
                thinner[-1] = replace(before, to_ms=segment.to_ms, ended=segment.ended, because=segment.because)
            else:
                thinner.append(segment)
        found, shortest_ms = thinner, 2 * shortest_ms
        if shortest_ms > found[-1].to_ms - found[0].from_ms:
            break
    return found
