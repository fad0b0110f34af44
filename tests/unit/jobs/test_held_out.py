"""What a report says of held-out photos: their mean loss before and after, or nothing."""

import json

import pytest

from gangline.core.jobs.story.held_out import HeldOutChange, held_out_change


def test_it_is_the_mean_over_the_photos() -> None:
    photos = [{"loss_before": 0.5, "loss_after": 0.1}, {"loss_before": 0.7, "loss_after": 0.2}]
    found = held_out_change(json.dumps({"held_out": photos}))
    assert found is not None
    assert found.in_words == "0.6000 → 0.1500 (-75%)" and found.photos == 2


def test_a_loss_that_was_nothing_has_no_share() -> None:
    assert HeldOutChange(photos=1, before=0.0, after=0.1).in_words == "0.0000 → 0.1000"


@pytest.mark.parametrize(
    "report",
    [
        "no JSON",
        "[]",
        "{}",
        '{"held_out": []}',
        '{"held_out": 3}',
        '{"held_out": [3]}',
        '{"held_out": [{"loss_before": 1}]}',
        '{"held_out": [{"loss_before": "x", "loss_after": 1}]}',
        '{"held_out": [{"loss_before": NaN, "loss_after": 1}]}',
        '{"held_out": [{"step": 0, "held_out_loss": 0.5, "noise": 0}]}',
    ],
)
def test_a_report_that_says_nothing_of_them_says_nothing(report: str) -> None:
    assert held_out_change(report) is None
