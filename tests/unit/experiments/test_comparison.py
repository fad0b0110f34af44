"""Jobs of an experiment are compared: the best first, jobs of the same settings together, and laid out on a sheet."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.experiments.best import best_so_far
from gangline.core.experiments.comparison import (
    grid_settings,
    mean_over_seeds,
    ranked_combinations,
    ranked_groups,
    ranked_runs,
)
from gangline.core.experiments.runs import ExperimentRun, Measurements
from gangline.core.experiments.sheet import final_pictures, lay_out
from gangline.core.experiments.views import ExperimentRunView
from tests.unit.experiments.many import run


def view(number: int, **given: Any) -> ExperimentRunView:
    known: dict[str, Any] = {
        "number": number,
        "job": f"job-{number}",
        "name": f"e-{number}",
        "settings": {"rank": number},
        "seed": 0,
        "state": "succeeded",
        "because": "",
        "step": 100,
        "steps": 100,
        "held_out_loss": None,
        "best_held_out_loss": None,
        "best_step": 0,
        "loss": None,
        "training_s": 10.0,
        "cost_usd": 0.5,
        "rung": 0,
    }
    return ExperimentRunView(**(known | given))


def test_the_best_job_is_first_and_jobs_without_a_result_are_last_by_their_numbers() -> None:
    runs = [
        view(1, state="held"),
        view(2, best_held_out_loss=0.3, loss=0.1),
        view(3, best_held_out_loss=0.2, loss=0.9),
        view(4, best_held_out_loss=0.1, state="failed"),
        view(5, best_held_out_loss=0.2),
    ]
    assert [run.number for run in ranked_runs(runs, "held_out_loss")] == [3, 5, 2, 1, 4]
    assert [run.number for run in ranked_runs(runs, "loss")] == [2, 3, 1, 4, 5]


def test_seeds_of_one_combination_are_one_row_with_means_of_those_that_have_a_result() -> None:
    runs = [
        view(1, settings={"rank": 8}, seed=0, loss=0.2),
        view(2, settings={"rank": 8}, seed=1, loss=0.4),
        view(3, settings={"rank": 16}, seed=0, loss=0.1, state="failed", cost_usd=0.25, cost_lacks=("node time",)),
        view(4, settings={"rank": 16}, seed=1, loss=0.25),
    ]
    best, second = ranked_combinations(runs, "loss")
    assert (best.settings, best.loss, best.compared, best.jobs) == ({"rank": 16}, 0.25, 1, 2)
    assert (best.cost_usd, best.cost_lacks, best.numbers) == (0.75, ("node time",), (4, 3))
    assert (second.loss, second.compared, second.training_s) == (pytest.approx(0.3), 2, 20.0)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.sampled_from(["succeeded", "running", "failed", "queued"]),
            st.integers(0, 1),
            st.none() | st.integers(1, 4),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_first_combination_is_that_of_the_best_job_so_far(jobs: list[tuple[int, Any, int, int | None]]) -> None:
    seen, decided = list[ExperimentRunView](), list[ExperimentRun]()
    for number, (rank, state, step, loss) in enumerate(jobs, 1):
        known: dict[str, Any] = {"settings": {"rank": rank}, "state": state, "step": step}
        seen.append(view(number, **known, loss=loss))
        decided.append(run(number, **known, held=False, measured=Measurements(loss=loss)))
    best = best_so_far(decided, "loss", ended=False)
    first = ranked_groups(seen, "loss")[0]
    assert best is None or (first[0].job, first[0].settings) == (best.job, best.settings)
    assert lay_out(seen, ("rank",), "loss", [0, 1]).cells[0][0].run == first[0]


def test_a_job_is_shown_with_the_mean_over_those_seeds_that_are_compared() -> None:
    settings = {"rank": 4}
    runs = [
        view(1, settings=settings, state="succeeded", step=10, best_held_out_loss=0.2),
        view(2, settings=settings, state="succeeded", step=10, best_held_out_loss=0.4),
        view(3, settings=settings, state="failed", step=10, best_held_out_loss=0.9),
        view(4, settings={"rank": 8}, state="succeeded", step=10, best_held_out_loss=0.1),
    ]
    assert mean_over_seeds(runs[0], runs, "held_out_loss") == pytest.approx(0.3)
    assert mean_over_seeds(runs[3], runs, "held_out_loss") is None, "it is alone"


def test_two_settings_that_differ_are_the_sides_of_a_sheet_of_one_prompt() -> None:
    runs = [
        view(number, settings={"rank": rank, "schedule": schedule, "flip": True}, loss=loss)
        for number, (rank, schedule, loss) in enumerate(
            [(16, "constant", 0.1), (8, "constant", 0.2), (16, "cosine", 0.3), (8, "constant", 0.05)], 1
        )
    ]
    assert grid_settings(runs, ("rank", "schedule", "flip")) == ("rank", "schedule")
    sheet = lay_out(runs, ("rank", "schedule", "flip"), "loss", [3])
    assert sheet.rows == ({"rank": 8}, {"rank": 16})
    assert sheet.columns == ({"schedule": "constant"}, {"schedule": "cosine"})
    numbers = [[place.run.number if place.run else None for place in row] for row in sheet.cells]
    assert numbers == [[4, None], [1, 3]]  # of two jobs of one combination the better one
    assert sheet.prompts == (3, 3)


def test_several_prompts_are_columns_and_each_combination_is_a_row_the_best_first() -> None:
    runs = [
        view(1, settings={"rank": 8, "seed": 1}, loss=0.4),
        view(2, settings={"rank": 8, "seed": 1}, loss=0.3),
        view(3, settings={"rank": 16, "seed": 2}, loss=0.1),
    ]
    sheet = lay_out(runs, ("rank", "seed"), "loss", [0, 1])
    assert [[place.run.number for place in row if place.run] for row in sheet.cells] == [[3, 3], [2, 2]]
    assert [place.prompt for place in sheet.cells[0]] == [0, 1]


def test_jobs_that_differ_in_their_seeds_alone_are_a_row_each() -> None:
    runs = [view(number, settings={}, seed=number, loss=1.0) for number in (1, 2, 3)]
    assert len(lay_out(runs, (), "loss", [0]).cells) == 3


def test_the_last_picture_of_a_prompt_is_that_of_the_result_or_else_of_the_last_step() -> None:
    steps = [
        f"samples/step-{step:06d}/prompt-{prompt:02d}-seed-0.png" for step in (100, 2000, 300) for prompt in (0, 1)
    ]
    others = ["samples/photos.png", "samples/grid.png", "samples/prompt-00-base-seed-0.png", "weights.safetensors"]
    assert final_pictures(steps + others) == {
        0: "samples/step-002000/prompt-00-seed-0.png",
        1: "samples/step-002000/prompt-01-seed-0.png",
    }
    result = [f"samples/prompt-01-lora-seed-{seed}.png" for seed in (7, 3)]
    assert final_pictures(steps + others + result)[1] == "samples/prompt-01-lora-seed-3.png"
