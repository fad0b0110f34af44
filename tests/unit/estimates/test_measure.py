"""What of a trainer's reports is measured: neither its warm-up nor less than a mean needs."""

from gangline.cli.tools.measure import MeasuredSteps


def test_the_first_steps_do_not_count_however_long_they_take() -> None:
    measured = MeasuredSteps(4.0)
    measured.add(1, 60.0)
    measured.add(2, 30.0)
    assert measured.is_warm and not measured.steps
    measured.add(6, 0.5)
    assert (measured.warm_up_steps, measured.steps, measured.seconds) == (2, 4, 2.0)
    assert not measured.is_whole


def test_quick_steps_warm_up_for_a_quarter_of_the_time_that_is_measured() -> None:
    measured = MeasuredSteps(4.0)
    for step in range(4, 404, 4):
        measured.add(step, 1 / 64)
        if measured.is_whole:
            break
    assert (measured.warm_up_steps, measured.steps) == (64, 256)


def test_steps_that_are_longer_than_the_time_are_three_nevertheless() -> None:
    measured = MeasuredSteps(4.0)
    for step in range(1, 5):
        measured.add(step, 100.0)
    assert not measured.is_whole
    measured.add(5, 100.0)
    assert measured.is_whole and measured.seconds / measured.steps == 100.0


def test_what_was_measured_before_ranks_were_started_again_does_not_count() -> None:
    measured = MeasuredSteps(4.0)
    for step in range(1, 6):
        measured.add(step, 1.0)
    for step in range(1, 6):  # with fewer samples at a time
        assert not measured.is_whole
        measured.add(step, 2.0)
    assert measured.is_whole
    assert measured.seconds / measured.steps == 2.0
