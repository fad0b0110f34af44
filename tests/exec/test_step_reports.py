"""What a command's job reports of its steps: bars of tqdm as diffusers' scripts draw them, lines, and checkpoints between them."""

import json
import os
from pathlib import Path

import pytest

from gangline.core.command.masking import Masking
from gangline.exec.job import contract_reports
from gangline.exec.job.command_job import reason_printed
from gangline.exec.job.contract_reports import StepReports

Said = tuple[int, float | None]


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepReports:
    monkeypatch.setattr(contract_reports, "REPORT_EVERY_S", 0.0)
    made = StepReports(tmp_path, list, 0)
    made.begin()
    return made


def said(tmp_path: Path) -> list[Said]:
    """Return the loss of each point, and None for each checkpoint, by their steps."""
    rows = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    return [(row["step"], row["metrics"].get("loss")) for row in rows if row["metrics"] or row["phase"] == "saving"]


def bar(step: int, steps: int, loss: float | None) -> bytes:
    shown = "" if loss is None else f", loss={loss}"
    return f"\rSteps:  4%|x   | {step}/{steps} [00:{step:02}<00:39,  1.74s/it{shown}]".encode()


def test_a_bar_that_shows_the_loss_of_the_step_before_at_first_is_read_right(
    reports: StepReports, tmp_path: Path
) -> None:
    """As diffusers' scripts do: the bar moves on, then they save, then they show the step's own loss."""
    losses = {0: None, 1: 1.0, 2: 0.5, 3: 0.25, 4: 0.125, 5: 0.0625, 6: 0.5}
    for step in range(1, 7):
        reports.printed(bar(step, 6, losses[step - 1]))
        if step == 4:
            reports.printed(b"\nConfiguration saved\n")
            reports.saved(4)
        reports.printed(bar(step, 6, losses[step]))
    reports.printed(b"\n")
    reports.finish()
    assert said(tmp_path) == [(1, 1.0), (2, 0.5), (3, 0.25), (4, None), (5, (0.125 + 0.0625) / 2), (6, 0.5)]


def test_a_line_that_is_whole_before_the_checkpoint_belongs_to_it(reports: StepReports, tmp_path: Path) -> None:
    for step in range(1, 5):
        reports.printed(f"step {step}/4 loss: {step / 4}\n".encode())
        if step == 2:
            reports.saved(2)
    reports.finish()
    assert said(tmp_path) == [(1, 0.25), (2, 0.5), (2, None), (3, 0.75), (4, 1.0)]


def test_lines_that_come_faster_than_reports_are_means(
    reports: StepReports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract_reports, "REPORT_EVERY_S", 3600.0)
    for step in range(1, 5):
        reports.printed(f"step {step}/4 loss: {step}\n".encode())
    reports.finish()
    assert said(tmp_path) == [(4, 2.5)]


def test_the_number_of_steps_that_it_prints_is_kept(reports: StepReports, tmp_path: Path) -> None:
    reports.printed(bar(3, 40, 0.5) + b"\nstep 4 loss 0.5\n")
    reports.saved(4)
    rows = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert {row["steps"] for row in rows[1:]} == {40}


def test_garbage_in_its_own_reports_is_left_alone(reports: StepReports, tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    reports._own = lambda: [own]
    huge = "1" + "0" * 400
    lines = [
        f'{{"step": 1, "loss": 1.7e308, "x": {huge}}}',
        '{"step": 2, "loss": 1.7e308}',
        "[" * 100_000,
        "x" * 3_000_000,
    ]
    own.write_text("\n".join([*lines, '{"step": 3, "loss": 1e999}', '{"step": 4, "loss": 0.5}', '{"step": 5}', ""]))
    reports.look()
    reports.finish()
    assert said(tmp_path)[-1] == (5, None) or said(tmp_path)[-1] == (4, 0.5)
    assert (4, 0.5) in said(tmp_path)


def test_a_pipe_in_the_place_of_its_own_reports_holds_nothing_up(reports: StepReports, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "own.jsonl")
    reports._own = lambda: [tmp_path / "own.jsonl"]
    reports.look()
    reports.printed(b"step 1/4 loss: 0.5\n")
    reports.finish()
    assert said(tmp_path) == [(1, 0.5)]


def test_a_secret_is_no_name_of_a_metric(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"step": 1, "hf_abcdefgh": 1.0, "lr": 0.5}\n')
    made = StepReports(tmp_path, lambda: [own], 0, Masking(["hf_abcdefgh"]).hides)
    made.begin()
    made.look()
    made.finish()
    text = (tmp_path / "progress.jsonl").read_text()
    assert '"lr"' in text and "hf_abcdefgh" not in text


def test_the_reason_of_a_failure_is_the_exception_and_not_what_its_launcher_says_of_it() -> None:
    lines = [
        "Traceback (most recent call last):",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "Traceback (most recent call last):",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
    ]
    assert reason_printed(lines) == lines[1]
    assert reason_printed(["an exception of no launcher", "ValueError: no"]) == "ValueError: no"
    assert reason_printed([lines[3]]) == lines[3]
    assert reason_printed([]) == "nothing"


def test_an_exception_on_standard_error_is_the_reason_though_standard_output_was_read_after_it(tmp_path: Path) -> None:
    made = StepReports(tmp_path, list, 0)
    made.printed(b"x" * 5000)
    made.printed(b"Traceback (most recent call last):\nOSError: [Errno 28] No space left", 2)
    made.printed(b"x" * 5000 + b"\n")
    made.printed(b" on device\n", 2)
    assert reason_printed(made.last_lines, made.last_errors) == "OSError: [Errno 28] No space left on device"
    made.printed(b"\r100%|####| 24/24\n", 2)
    made.printed(b"error: the learning rate is no number\n")
    assert reason_printed(made.last_lines, made.last_errors) == "error: the learning rate is no number"
