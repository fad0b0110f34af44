"""What of a trainer's reports is measured: neither its warm-up nor less than a mean needs."""

from gangline.cli.tools.measure import MeasuredSteps


def test_the_first_steps_do_not_count_however_long_they_take() -> None:
    stretch = MeasuredSteps(4.0)
    stretch.add(1, 60.0)
    stretch.add(2, 30.0)
    assert stretch.is_warm and not stretch.steps
    stretch.add(6, 0.5)
    assert (stretch.warm_up_steps, stretch.steps, stretch.seconds) == (2, 4, 2.0)
    assert not stretch.is_whole


def test_quick_steps_warm_up_for_a_quarter_of_the_time_that_is_measured() -> None:
    stretch = MeasuredSteps(4.0)
    for step in range(4, 404, 4):
        stretch.add(step, 1 / 64)
        if stretch.is_whole:
            break
    assert (stretch.warm_up_steps, stretch.steps) == (64, 256)


def test_steps_that_are_longer_than_the_time_are_three_nevertheless() -> None:
    stretch = MeasuredSteps(4.0)
    for step in range(1, 5):
        stretch.add(step, 100.0)
    assert not stretch.is_whole
    stretch.add(5, 100.0)
    assert stretch.is_whole and stretch.seconds / stretch.steps == 100.0


def test_what_was_measured_before_ranks_were_started_again_does_not_count() -> None:
    stretch = MeasuredSteps(4.0)
    for step in range(1, 6):
        stretch.add(step, 1.0)
    for step in range(1, 6):  # with fewer samples at a time
        assert not stretch.is_whole
        stretch.add(step, 2.0)
    assert stretch.is_whole
    assert stretch.seconds / stretch.steps == 2.0
