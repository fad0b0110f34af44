"""Lay out a contact sheet of an experiment: which job's picture is in which cell. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.experiments.comparison import grid_settings, ranked_groups, ranked_runs
from gangline.core.experiments.terms import Measure
from gangline.core.experiments.views import ExperimentRunView
from gangline.core.runs.contract import LORA, SAMPLES

RESULT = re.compile(rf"{SAMPLES}/prompt-(\d+)-{LORA}-seed-(\d+)\.png")
OF_STEP = re.compile(rf"{SAMPLES}/step-(\d+)/prompt-(\d+)-seed-(\d+)\.png")


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetPlace:
    """A cell: the job and the number of the prompt whose picture it shows. None: no job has these settings."""

    run: ExperimentRunView | None
    prompt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetLayout:
    """The cells of a sheet by rows. `rows` has the settings that each row shares, `columns` those of each column: of a sheet by prompts
    they are empty, and `prompts` has the number of each column's prompt."""

    rows: tuple[Mapping[str, Any], ...]
    columns: tuple[Mapping[str, Any], ...]
    prompts: tuple[int, ...]
    cells: tuple[tuple[SheetPlace, ...], ...]


def final_pictures(paths: Iterable[str]) -> dict[int, str]:
    """Return the last picture of each prompt by its number: that of the result if it is there, else of the last step; of several seeds, the
    least."""
    found = dict[int, tuple[tuple[int, int, int], str]]()
    for path in paths:
        if result := RESULT.fullmatch(path):
            prompt, rank = int(result[1]), (1, 0, -int(result[2]))
        elif step := OF_STEP.fullmatch(path):
            prompt, rank = int(step[2]), (0, int(step[1]), -int(step[3]))
        else:
            continue
        found[prompt] = max(found.get(prompt, (rank, path)), (rank, path))
    return {prompt: path for prompt, (_, path) in sorted(found.items())}


def lay_out(
    runs: Sequence[ExperimentRunView], settings: Sequence[str], measure: Measure, prompts: Sequence[int]
) -> SheetLayout:
    """Return the cells of a sheet: two varied settings as rows and columns if there is one prompt, else a row for each combination, the
    best first, and a column for each prompt. Of the jobs of one combination, the best is shown."""
    ranked = ranked_runs(runs, measure)
    axes = grid_settings(runs, settings) if len(prompts) == 1 else None
    if axes:
        return _grid(ranked, axes, prompts[0])
    shown = tuple(group[0] for group in ranked_groups(runs, measure)) if settings else ranked
    return SheetLayout(
        rows=tuple(run.settings for run in shown),
        columns=tuple({} for _ in prompts),
        prompts=tuple(prompts),
        cells=tuple(tuple(SheetPlace(run=run, prompt=prompt) for prompt in prompts) for run in shown),
    )


def _grid(ranked: Sequence[ExperimentRunView], axes: tuple[str, str], prompt: int) -> SheetLayout:
    down, across = (_values(ranked, name) for name in axes)
    best = {
        (canonical_json(run.settings.get(axes[0])), canonical_json(run.settings.get(axes[1]))): run
        for run in reversed(ranked)
    }
    places = tuple(
        tuple(
            SheetPlace(run=best.get((canonical_json(row), canonical_json(column))), prompt=prompt) for column in across
        )
        for row in down
    )
    return SheetLayout(
        rows=tuple({axes[0]: value} for value in down),
        columns=tuple({axes[1]: value} for value in across),
        prompts=(prompt,) * len(across),
        cells=places,
    )


def _values(runs: Sequence[ExperimentRunView], name: str) -> list[Any]:
    """Return the values of a setting, numbers by their size, others in the order in which they were given."""
    in_order = sorted(runs, key=lambda run: run.number)
    found = list({canonical_json(run.settings.get(name)): run.settings.get(name) for run in in_order}.values())
    return sorted(found) if all(type(value) in (int, float) for value in found) else found
