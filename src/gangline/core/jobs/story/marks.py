"""The moments of a job that its timeline marks."""

from collections.abc import Sequence
from dataclasses import replace

from gangline.core.charts.phases import MARKS, TimelineMark
from gangline.core.jobs.story.segments import TriedSpan

COMMITS_MAX = 500
"""A job that saves every few seconds has more checkpoints than a page can show: then every n-th is marked, and the last one."""


def marks_of(moments: Sequence[TimelineMark], tried: Sequence[TriedSpan]) -> tuple[TimelineMark, ...]:
    """Return the marks in the order of their times. `moments` name an attempt or a machine of `tried`, or neither, and get its names; those
    of kinds that no timeline marks are left out."""
    of_attempt = {span.attempt: span for span in tried}
    of_machine = {span.machine: span for span in tried}
    found = list[TimelineMark]()
    for mark in _thinned(moments):
        span = of_attempt.get(mark.attempt or "") or of_machine.get(mark.machine)
        if mark.kind not in MARKS:
            continue
        if span:
            attempt = mark.attempt or (span.attempt if span.ended_ms == mark.at_ms else None)
            found.append(replace(mark, attempt=attempt, node_name=span.node_name, machine=span.machine))
        else:
            found.append(mark)
    return tuple(sorted(found, key=lambda mark: mark.at_ms))


def _thinned(moments: Sequence[TimelineMark]) -> list[TimelineMark]:
    commits = [mark for mark in moments if mark.kind == "committed"]
    every = -(-len(commits) // COMMITS_MAX)
    if every <= 1:
        return list(moments)
    kept = {id(mark) for mark in [*commits[::every], commits[-1]]}
    return [mark for mark in moments if mark.kind != "committed" or id(mark) in kept]
