"""The kinds of notices are a closed list, and which events they stand for is the same rule in Python and in SQL."""

from typing import get_args

import pytest

from gangline.core.events import EVENTS, EventKind
from gangline.core.job import JobState
from gangline.core.notices.kinds import (
    FOR_PEOPLE,
    FOR_WEBHOOKS,
    NOTICES,
    NoticeKind,
    events_of,
    notice_kind,
    webhook_type,
)

STATES = (*get_args(JobState), "")
TOLD_OF_BY_NOBODY: set[EventKind] = {
    "prepared",
    "asked to stop",
    "asked to save",
    "asked to sample",
    "asked to finish",
    "bans lifted",
    "admitted",
    "advanced",
}


def test_every_kind_of_notice_has_one_sentence() -> None:
    assert set(NOTICES) == set(get_args(NoticeKind))
    for notice in NOTICES.values():
        assert notice.says[0].isupper() and notice.says.endswith(".") and "\n" not in notice.says


def test_every_event_is_of_one_kind_of_notice_or_is_named_here_as_of_none() -> None:
    of_none = {kind for kind in EVENTS if not any(notice_kind(kind, state) for state in STATES)}
    assert of_none == TOLD_OF_BY_NOBODY


def test_the_pairs_for_sql_select_the_events_that_the_function_names() -> None:
    """An event matches a pair whose state is empty, or its own."""
    for event in EVENTS:
        for state in STATES:
            joined = [kind for kind in NOTICES for pair in events_of([kind]) if pair in ((event, ""), (event, state))]
            found = notice_kind(event, state)
            assert joined == ([found] if found else []), (event, state)


def test_several_kinds_select_the_events_of_each_once() -> None:
    pairs = events_of(["succeeded", "failed", "succeeded"])
    assert pairs == [*events_of(["succeeded"]), *events_of(["failed"])]
    assert len(events_of(list(NOTICES))) == len(set(events_of(list(NOTICES))))


@pytest.mark.parametrize(
    ("event", "state", "kind"),
    [
        ("failed", "failed", "failed"),
        ("failed", "queued", "attempt_failed"),
        ("failed", "paused", "paused"),
        ("failed", "", None),
        ("interrupted", "queued", "interrupted"),
        ("interrupted", "failed", "failed"),
        ("released", "queued", "interrupted"),
        ("released", "paused", "paused"),
        ("paused", "paused", "paused"),
        ("queued", "queued", "resumed"),
        ("canceled", "canceled", "canceled"),
        ("succeeded", "succeeded", "succeeded"),
        ("over budget", "running", "over_budget"),
        ("not delivered", "succeeded", "not_delivered"),
    ],
)
def test_the_state_of_the_job_says_what_the_end_of_an_attempt_means(
    event: EventKind, state: str, kind: NoticeKind | None
) -> None:
    assert notice_kind(event, state) == kind


def test_webhook_types_are_delimited_by_full_stops() -> None:
    assert webhook_type("over_budget") == "job.over_budget" and webhook_type("cost_threshold") == "cost.threshold"
    types = [webhook_type(kind) for kind in NOTICES]
    assert all(each.replace(".", "").replace("_", "").isalpha() and each == each.lower() for each in types)


def test_people_hear_of_what_ended_or_needs_them_unless_they_choose_otherwise() -> None:
    assert FOR_PEOPLE == ("succeeded", "failed", "over_budget", "not_delivered", "cost_threshold")
    assert set(FOR_PEOPLE) <= set(FOR_WEBHOOKS) <= set(NOTICES)
