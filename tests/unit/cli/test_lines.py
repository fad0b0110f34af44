"""A list is one line a row at any width, and shows first what matters most."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gangline.cli.jobs.follow import progress_words
from gangline.cli.jobs.lists.ls import COLUMNS, as_lines
from gangline.cli.lines import GAP, TableColumn, print_one_line_each, widths
from gangline.cli.output import PlainConsole
from gangline.core.views import JobSummary


def summary(**changed: object) -> JobSummary:
    known = {
        "id": "job-1a2091e587d3d81267e",
        "name": "a photo of sks dog",
        "kind": "lora",
        "state": "running",
        "because": "on local-3",
        "steps": 1200,
        "step": 114,
        "committed_step": 100,
        "phase": "training",
        "node_name": "local-3",
        "loss": 0.17,
        "seconds_per_step": 0.5,
        "eta_s": 543.0,
        "attempts": 1,
        "interruptions": 0,
        "cost_usd": 0.0123,
        "submitted_ms": 1,
        "ended_ms": None,
    }
    return JobSummary(**(known | changed))  # type: ignore[arg-type]


JOBS = [
    summary(),
    summary(name="猫" * 80, state="queued", phase=None, because="no node can take it: " + "it needs more " * 20),
    summary(state="succeeded", phase=None, step=1200, eta_s=None, name="[/b] :dog: \x1b[2J"),
]


def shown(width: int, *, ids_whole: bool = False) -> list[str]:
    console = PlainConsole(width=width, force_terminal=True, color_system=None, highlight=False)
    with console.capture() as printed:
        console.print(as_lines(JOBS, width, ids_whole=ids_whole))
    return printed.get().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_job_is_one_line_that_fits(width: int) -> None:
    lines = shown(width)
    assert len(lines) == 1 + len(JOBS)
    assert all(cell_len(line) <= width for line in lines)
    for line, job in zip(lines[1:], JOBS, strict=True):
        assert line.startswith("3d81267e")
        assert f"{job.step}/{job.steps}" in line and (job.phase or job.state) in line


def test_a_narrow_terminal_shows_what_matters_and_a_wide_one_why() -> None:
    assert "why" in shown(80)[0] and "no node can tak" in shown(80)[2]
    assert "why" not in shown(60)[0] and "$0.01" in shown(60)[1]


def test_programs_get_whole_ids() -> None:
    assert all(line.startswith("job-1a2091e587d3d81267e") for line in shown(200, ids_whole=True)[1:])


CELLS = st.lists(st.text("aé猫 ", max_size=60), min_size=len(COLUMNS), max_size=len(COLUMNS))


@given(st.lists(CELLS, max_size=6), st.integers(10, 250))
def test_widths_fit_wherever_the_columns_that_never_go_do(rows: list[list[str]], width: int) -> None:
    found = widths(COLUMNS, rows, width)
    staying = [number for number, column in enumerate(COLUMNS) if not column.goes]
    assert set(staying) <= found.keys()
    if sum(found.values()) + GAP * (len(found) - 1) > width:
        assert list(found) == staying


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_line_of_progress_is_whole_at_any_width(width: int) -> None:
    for job in JOBS:
        words = progress_words(job, width)
        assert cell_len(words) <= width
        assert f"{job.step}/{job.steps}" in words


def test_eighty_columns_show_step_time_safety_and_money() -> None:
    assert progress_words(summary(), 80) == (
        "training  114/1200  ━━──────────────  9:03 left  safe 100  $0.01 ($0.00011/step)"
    )
    assert progress_words(summary(), 120) == (
        "training on local-3  114/1200  ━━──────────────────────  9:03 left  safe 100  $0.01 ($0.00011/step)  loss 0.1700"
    )


def test_a_job_that_waits_has_no_time_left_to_show() -> None:
    assert "left" not in progress_words(summary(state="queued", phase=None, eta_s=None, step=0), 80)


def test_in_a_file_nothing_of_a_line_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (TableColumn(header="pool", shrinks_to=3), TableColumn(header="why", shrinks_to=3))
    row = ["a-pool-of-a-long-name", "its provider did not answer: " + "no " * 200 + "more"]
    print_one_line_each(columns, [row])
    assert row == [cell.strip() for cell in capsys.readouterr().out.splitlines()[1].split("  ")]
