"""Steps of a command are found in what it prints or reports; what is no progress is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.command.progress import Pace, StepReport, step_in_output, step_in_report


@pytest.mark.parametrize(
    "line",
    [
        "  Total optimization steps = 24",
        "  Gradient Accumulation steps = 1",
        "Num warmup steps: 500",
        "saves every 50 steps",
    ],
)
def test_a_number_of_steps_is_no_step(line: str) -> None:
    """Scripts print these at each start: taken for a step, such a number would never be taken back."""
    assert step_in_output(line) is None


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ("Steps: 12, loss 0.5", StepReport(step=12, loss=0.5)),
        ("steps 12/40", StepReport(step=12, steps=40)),
        (
            " 37%|███▋      | 148/400 [01:02<01:46,  2.36it/s, loss=0.0831]",
            StepReport(step=148, steps=400, loss=0.0831),
        ),
        (
            "Steps:  10%|█         | 40/400 [00:20<03:00, 2.0it/s, lr=0.0001, step_loss=0.2]",
            StepReport(step=40, steps=400, loss=0.2),
        ),
        (
            "steps:  25%|##5       | 100/400 [1:00:20<3:00:00, 36.2s/it, avr_loss=0.1]",
            StepReport(step=100, steps=400, loss=0.1),
        ),
        ("step 148/400  loss: 0.0831", StepReport(step=148, steps=400, loss=0.0831)),
        ("[2026-01-01] Step: 7, train_loss=1.5e-2", StepReport(step=7, loss=0.015)),
        ("global_step=12 loss nan", StepReport(step=12)),
        ("iteration 5 of 20", StepReport(step=5, steps=20)),
        ('{"step": 3, "loss": 0.5}', None),
        ("Downloading shards: 100%|██████████| 3/3 [00:00<?, ?it/s]", None),
        ("Map:  50%|█████     | 5/10 [?it/s]", None),
        ("Epoch 0:  37%|███▋      | 37/100 [00:10<00:20, 3.1it/s, v_num=0]", StepReport(step=37, steps=100)),
        ("the first step is the hardest", None),
        ("epoch 3", None),
        ("", None),
    ],
)
def test_a_line_of_output_is_about_a_step_or_not(line: str, report: StepReport | None) -> None:
    assert step_in_output(line) == report


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (b'{"step": 3, "loss": 0.5, "lr": 1e-4}\n', StepReport(step=3, loss=0.5, metrics={"lr": 1e-4})),
        (b'{"step": 3, "steps": 9, "note": "x", "on": true}', StepReport(step=3, steps=9)),
        (b'{"step": 3, "loss": NaN}', StepReport(step=3)),
        (b'{"step": -1}', None),
        (b'{"step": 3.5}', None),
        (b'{"step": true}', None),
        (b'{"loss": 1}', None),
        (b"[1, 2]", None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_a_line_of_its_own_report_is_read_or_left_alone(line: bytes, report: StepReport | None) -> None:
    assert step_in_report(line) == report


@given(st.text(), st.binary())
def test_anything_may_be_printed_and_reported(text: str, line: bytes) -> None:
    step_in_output(text)
    step_in_report(line)


def test_the_pace_is_that_of_the_last_minute_and_begins_anew_where_steps_do() -> None:
    pace = Pace()
    assert pace.saw(0, 1) is None
    assert pace.saw(10, 6) == 2.0
    assert [pace.saw(100 + second, 7 + second) for second in range(100)][-1] == 1.0
    assert pace.saw(300, 1) is None, "another epoch's bar"
