"""When pictures of a training job are due, who may render them, and how they are laid side by side."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gangline.core.jobs.samples import Rhythm, are_samples_due, may_go_elsewhere
from gangline.core.runs.retention import KeptCheckpoint, to_prune
from gangline.data.images.grid import GAP, LABEL, MARGIN, TILE, GridRow, draw_grid
from tests.unit.examples import CANDIDATE, NODE, PURSE

NEVER = Rhythm(every_steps=None, every_s=None, step=0, at_ms=0)


@given(st.integers(1, 50), st.lists(st.integers(1, 500), unique=True, max_size=60).map(sorted))
def test_each_stretch_of_so_many_steps_is_shown_once_by_its_first_checkpoint(every: int, committed: list[int]) -> None:
    rhythm, shown = replace(NEVER, every_steps=every), []
    for step in committed:
        if are_samples_due(rhythm, step, 0):
            shown.append(step)
            rhythm = replace(rhythm, step=step)
    stretches = {step // every: step for step in reversed(committed) if step >= every}
    assert shown == sorted(stretches.values())


@given(st.integers(10, 100), st.lists(st.integers(0, 1000), max_size=60).map(sorted))
def test_by_time_pictures_are_no_closer_than_asked(every_s: int, at_s: list[int]) -> None:
    rhythm, shown = replace(NEVER, every_s=float(every_s)), [0]
    for step, second in enumerate(at_s, 1):
        if are_samples_due(rhythm, step, second * 1000):
            shown.append(second)
            rhythm = replace(rhythm, step=step, at_ms=second * 1000)
    assert all(after - before >= every_s for before, after in pairwise(shown))
    assert all(second < shown[-1] + every_s for second in at_s)


def test_without_an_interval_nothing_is_due() -> None:
    assert not are_samples_due(NEVER, 10**6, 10**12)


def test_a_step_is_not_due_twice() -> None:
    assert not are_samples_due(replace(NEVER, every_s=10.0, step=100), 100, 10**9)
    assert not are_samples_due(replace(NEVER, every_steps=10, step=100), 99, 10**9)


def test_pictures_go_elsewhere_where_a_node_with_nothing_to_train_may_have_them() -> None:
    job = replace(CANDIDATE, gpu_memory_gb=24)
    small, busy, resting = (
        replace(NODE, gpu_memory_gb=8),
        replace(NODE, slots_free=0),
        replace(NODE, rest_until_ms=5),
    )
    assert not may_go_elsewhere(job, [], PURSE, 0)
    assert not may_go_elsewhere(job, [small, busy, resting], PURSE, 0)
    assert may_go_elsewhere(job, [small, NODE], PURSE, 0)


def test_what_is_pinned_is_kept_and_nothing_else_for_its_sake() -> None:
    known = [KeptCheckpoint(id=str(n), step=100 - n, verified=n == 0, pinned=n == 4) for n in range(6)]
    assert [gone.id for gone in to_prune(known, keep=2)] == ["2", "3", "5"]


def test_a_grid_has_a_tile_for_each_step_and_leaves_one_empty_where_a_picture_is_missing() -> None:
    red, wide = Image.new("RGB", (64, 64), "red"), Image.new("RGB", (100, 50), "blue")
    sheet = draw_grid([GridRow("a prompt " * 100, [red, None]), GridRow("two", [wide, red])], ["base", "step 100"])
    assert sheet.size == (2 * MARGIN + 2 * TILE + GAP, LABEL + 2 * (LABEL + TILE) + MARGIN)
    middle = TILE // 2
    first, second = MARGIN + middle, MARGIN + TILE + GAP + middle
    top, below = 2 * LABEL + middle, 2 * LABEL + LABEL + TILE + middle
    places = [sheet.getpixel(place) for place in ((first, top), (second, top), (first, below), (second, below))]
    assert places == [(255, 0, 0), (255, 255, 255), (0, 0, 255), (255, 0, 0)]
    assert sheet.getpixel((first, below - TILE // 2 + 10)) == (255, 255, 255), "a wide picture is not stretched"
