"""A page of a list is answered by the index of its most selective filter."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.jobs.lists.filters import OLDEST, JobFilters, LabelFilter, ListPosition
from gangline.core.jobs.lists.paths import (
    SCANS_MAX,
    AccessPath,
    ChosenPath,
    IndexScan,
    access_paths,
    choose_path,
    nearest_edge,
    needs_reach,
    next_page,
)


def chosen(filters: JobFilters, reach: dict[str, int | None], owners: Sequence[str] = ()) -> ChosenPath:
    """What is chosen where the next jobs of each filter reach back so far."""
    paths = access_paths(filters, owners)
    reaches = [
        (path, None if reach[path.filter] is None else ListPosition(reach[path.filter] or 0, "x")) for path in paths
    ]
    return choose_path(reaches, filters)


BOTH = JobFilters(states=("failed",), labels=(LabelFilter("team", "a"),))


def test_of_two_filters_the_one_whose_jobs_reach_further_back_is_chosen() -> None:
    assert chosen(BOTH, {"state": 500, "label": 900}).path.filter == "state"
    assert chosen(BOTH, {"state": 900, "label": 500}).path.filter == "label"


def test_a_filter_of_which_few_jobs_are_left_wins_over_any_reach() -> None:
    found = chosen(BOTH, {"state": None, "label": 1})
    assert (found.path.filter, found.more, found.end) == ("state", False, OLDEST)
    assert "fewer than" in found.because


def test_a_page_of_two_common_filters_ends_where_its_index_was_measured() -> None:
    found = chosen(BOTH, {"state": 900, "label": 500})
    assert found.more and found.end == ListPosition(500, "x")


def test_every_choice_says_why() -> None:
    for reach in ({"state": 900, "label": 500}, {"state": None, "label": None}):
        assert chosen(BOTH, reach).because


def test_a_list_without_filters_is_in_the_order_of_time() -> None:
    (path,) = access_paths(JobFilters(since_ms=5), [])
    assert path.scans == (IndexScan("time"),)
    assert not needs_reach(JobFilters(since_ms=5), [path])


@pytest.mark.parametrize(
    "filters",
    [
        JobFilters(states=("failed", "queued")),
        JobFilters(kind="lora"),
        JobFilters(owner="me"),
        JobFilters(labels=(LabelFilter("a"),)),
        JobFilters(named="timber"),
    ],
)
def test_a_filter_alone_is_not_measured(filters: JobFilters) -> None:
    assert not needs_reach(filters, access_paths(filters, ["key-1"]))


def test_two_filters_are_measured_and_so_is_one_without_an_index() -> None:
    assert needs_reach(BOTH, access_paths(BOTH, []))
    many = [f"key-{number}" for number in range(SCANS_MAX + 1)]
    of_many = JobFilters(owner="a name of many keys")
    (path,) = access_paths(of_many, many)
    assert path.filter == "time" and needs_reach(of_many, [path])
    short = JobFilters(named="x")
    assert needs_reach(short, access_paths(short, []))


def test_several_states_are_several_scans_of_one_path() -> None:
    (path,) = access_paths(JobFilters(states=("failed", "queued", "failed")), [])
    assert path.scans == (IndexScan("state", "failed"), IndexScan("state", "queued"))
    assert nearest_edge([ListPosition(5, "a"), None, ListPosition(9, "b")]) == ListPosition(9, "b")
    assert nearest_edge([None, None]) is None


def test_fewer_than_four_characters_of_an_id_are_in_no_index() -> None:
    (short,), (long,) = access_paths(JobFilters(named="7ab"), []), access_paths(JobFilters(named="7abc"), [])
    assert short.scans == (IndexScan("time"),)
    assert {scan.index for scan in long.scans} == {"name", "beginning of id", "end of id"}
    (crowded,) = access_paths(JobFilters(named="7abc"), [], crowded=True)
    assert crowded == short and crowded.mixed


LISTED = st.lists(st.builds(ListPosition, st.integers(0, 9), st.sampled_from("abcdef")), max_size=30)


@given(LISTED, st.integers(1, 8), st.booleans())
def test_pages_have_every_job_once_in_order_and_none_beyond_the_limit(
    found: list[ListPosition], limit: int, more: bool
) -> None:
    end = ListPosition(-1, "")
    path = ChosenPath(AccessPath("time", ()), end, "", more)
    left, listed = sorted(set(found), reverse=True), list[ListPosition]()
    while True:
        page, following = next_page(left[: limit + 1], path, limit)
        assert len(page) <= limit
        listed += page
        if following is None or following == end:
            assert (following is None) == (not more)
            break
        left = [each for each in left if each < following]
    assert listed == sorted(set(found), reverse=True)
