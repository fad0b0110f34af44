"""The cursor of a list of jobs leads on from where it was written, and any other text is refused with a sentence."""

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.errors import BadInput
from gangline.core.jobs.lists.cursor import CURSOR_MAX, read_cursor, write_cursor
from gangline.core.jobs.lists.filters import JobFilters, LabelFilter, ListPosition

IDS = st.from_regex(r"job-[0-9a-f]{19}", fullmatch=True)
POSITIONS = st.builds(ListPosition, st.integers(0, 2**50), IDS)
FILTERS = st.builds(
    JobFilters,
    states=st.lists(st.sampled_from(["queued", "failed", "succeeded"]), max_size=3).map(tuple),
    owner=st.text(max_size=5),
    named=st.text(max_size=5),
    since_ms=st.none() | st.integers(0, 2**50),
    labels=st.lists(st.builds(LabelFilter, st.sampled_from("abc"), st.none() | st.text(max_size=3)), max_size=2).map(
        tuple
    ),
)
MINE = JobFilters(states=("failed",))


@given(POSITIONS, FILTERS)
def test_a_cursor_leads_on_from_where_it_was_written(position: ListPosition, filters: JobFilters) -> None:
    assert read_cursor(write_cursor(position, filters), filters) == position


@given(POSITIONS, FILTERS, FILTERS)
def test_a_cursor_of_other_filters_is_refused(position: ListPosition, filters: JobFilters, others: JobFilters) -> None:
    cursor = write_cursor(position, filters)
    if filters.digest != others.digest:
        with pytest.raises(BadInput, match="of a list with other filters"):
            read_cursor(cursor, others)


def test_the_order_in_which_filters_were_typed_is_no_other_list() -> None:
    one = JobFilters(states=("queued", "failed"), labels=(LabelFilter("a", "1"), LabelFilter("b")))
    other = JobFilters(states=("failed", "queued"), labels=(LabelFilter("b"), LabelFilter("a", "1")))
    assert read_cursor(write_cursor(ListPosition(7, "job-1"), one), other) == ListPosition(7, "job-1")


@given(st.text(max_size=CURSOR_MAX + 10))
def test_any_text_is_a_cursor_or_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadInput, match="not one that a list of jobs had"):
        read_cursor(text, MINE)


@given(st.binary(max_size=200))
def test_so_is_anything_that_is_encoded(content: bytes) -> None:
    with pytest.raises(BadInput):
        read_cursor(urlsafe_b64encode(content).decode().rstrip("="), MINE)


@given(POSITIONS, st.data())
def test_a_cursor_with_one_character_changed_is_refused(position: ListPosition, data: st.DataObject) -> None:
    cursor = write_cursor(position, MINE)
    place = data.draw(st.integers(0, len(cursor) - 1))
    letter = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda letter: letter != cursor[place]))
    with pytest.raises(BadInput):
        read_cursor(cursor[:place] + letter + cursor[place + 1 :], MINE)


@given(POSITIONS, st.integers(1, 60))
def test_a_cursor_that_was_cut_is_refused(position: ListPosition, cut: int) -> None:
    with pytest.raises(BadInput):
        read_cursor(write_cursor(position, MINE)[:-cut], MINE)


@pytest.mark.parametrize("old", ["1700000000000.job-000001", "", "x.y", "99999999999999999999.x"])
def test_the_cursor_of_an_older_version_is_refused_with_a_hint(old: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_cursor(old, JobFilters())
    assert "begin without a cursor" in refused.value.hint
