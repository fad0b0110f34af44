"""How many samples a GPU computes at a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.runs.microbatch import USED_MAX, first_guess, largest, settled

GB = 10**9


def test_as_many_samples_are_computed_at_a_time_as_fit() -> None:
    for room in (0, 1, 5, 8, 23, 24, 100):
        tried = []
        found = largest(24, lambda count, room=room, tried=tried: tried.append(count) or count <= room)
        assert found == {0: 0, 1: 1, 5: 4, 8: 8, 23: 16, 24: 24, 100: 24}[room]
        assert tried == sorted(set(tried))


@pytest.mark.parametrize(
    ("room", "to_come", "expected"),
    [
        (80 * GB, 0, 32),  # 10 + 31 · 1.5 is 56.5 of 72 GB, and 64 samples would take 104.5
        (80 * GB, 20 * GB, 16),  # with the moments that come with the first step
        (240 * GB, 20 * GB, 96),  # the whole share, which is no power of two
        (12 * GB, 0, 1),
        (8 * GB, 0, 1),  # one was seen to fit
    ],
)
def test_a_first_guess_leaves_room_for_what_comes_later(room: int, to_come: int, expected: int) -> None:
    assert first_guess((10 * GB, 11 * GB + GB // 2), room=room, to_come=to_come, most=96) == expected


@given(
    st.integers(1, 10**11), st.integers(0, 10**10), st.integers(1, 10**12), st.integers(0, 10**11), st.integers(1, 4096)
)
def test_what_is_guessed_fits_where_each_sample_takes_as_much(
    one: int, each: int, room: int, to_come: int, most: int
) -> None:
    guess = first_guess((one, one + each), room=room, to_come=to_come, most=most)
    assert 1 <= guess <= most
    assert guess == 1 or one + (guess - 1) * each + to_come <= USED_MAX * room
    twice = min(2 * guess, most)
    assert twice == guess or one + (twice - 1) * each + to_come > USED_MAX * room


def test_a_phase_is_computed_as_its_spec_says_else_as_memory_was_found_to_have_room_for() -> None:
    assert settled(8, 2, 4) == 8
    assert settled(None, 2, 4) == 2 and settled(None, 4, 2) == 2
    assert settled(None, 2, 0) == 2 and settled(None, 0, 4) == 4
    assert settled(None, 0, 0) == 0
