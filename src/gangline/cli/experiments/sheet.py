"""`gangline experiments sheet`: the last pictures of all jobs of an experiment on one sheet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.experiments.show import setting_in_words
from gangline.cli.experiments.which import ExperimentArgument, client_and_experiment
from gangline.cli.jobs.follow import wait_for_rendering
from gangline.cli.jobs.submitting.experiment import follow_experiment, watching_experiment
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, check_place, print_json, say
from gangline.core.errors import BadInput, NotFound
from gangline.core.experiments.comparison import NOT_COMPARED, differing_settings, mean_over_seeds, value_of_run
from gangline.core.experiments.sheet import SheetLayout, SheetPlace, final_pictures, lay_out
from gangline.core.experiments.terms import MEASURES
from gangline.core.experiments.views import ExperimentRunView, ExperimentView
from gangline.core.views import ArtifactView
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.data.images.contact_sheet import SheetCell, SheetRow

HOW = "submit it with --sample-prompt, or without --no-sample-result; pictures of the result are rendered once a job has succeeded"
_Pictures = Mapping[tuple[str, int], ArtifactView]
"""The last picture of a job and a prompt."""
LOOKED_AT_MAX = 20
"""At most this many jobs that succeeded are asked whether their pictures are on their way."""
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")


def sheet_command(
    experiment: ExperimentArgument,
    to: Annotated[
        Path, typer.Option("--to", help="Write the sheet into this file: .png, .jpg or .webp.", show_default=False)
    ],
    prompt: Annotated[
        int | None,
        typer.Option(
            "--prompt",
            min=1,
            help="Show the pictures of this prompt alone, by its number from 1 (default: a column for each prompt).",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all jobs have ended and all their pictures have arrived.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Draw a contact sheet of the jobs' last sample pictures: a row for each combination of settings, a column for each prompt.

    If two settings differ and there is one prompt, their values are the rows and the columns.
    """
    _check_file(to)
    client, experiment = client_and_experiment(server, token, experiment)
    if wait:
        with watching_experiment(experiment):
            _wait_for_all(client, experiment)
    found, runs = client.experiments.get(experiment), tuple(client.experiments.runs(experiment))
    pictures = _pictures_of(client, runs)
    prompts = sorted({number for _, number in pictures})
    if not prompts:
        raise _no_pictures(client, found, runs)
    if prompt is not None:
        if prompt - 1 not in prompts:
            known = ", ".join(str(number + 1) for number in prompts)
            raise BadInput(f"no job has pictures of prompt {prompt}", hint=f"there are some of these: {known}")
        prompts = [prompt - 1]
    sheet = _bounded(lay_out(runs, found.settings, found.measure, prompts))
    wanted = [(place.run, place.prompt) for row in sheet.cells for place in row if place.run]
    missing = [run for run, number in wanted if (run.job, number) not in pictures]
    if len(missing) == len(wanted):  # others than the best of each combination have pictures, and are not shown
        raise _no_pictures(client, found, missing, "on the sheet of")
    _save(client, _Shown(found, runs, pictures), sheet, to)
    if missing:
        say(f"{_are_missing(len(missing), len(wanted))}: {_why_missing(client, missing)}")
    if output is Output.json:
        cells = [[_cell_in_json(place, pictures) for place in row] for row in sheet.cells]
        print_json(
            {"experiment": found.id, "file": str(to), "rows": sheet.rows, "columns": sheet.columns, "cells": cells}
        )
        return
    say(f"{to} shows {counted(len(sheet.cells), 'row')} of {counted(len(sheet.prompts), 'picture')}")


def _wait_for_all(client: "Client", experiment: str) -> None:
    follow_experiment(client, experiment)
    wait_for_rendering(client, [run.job for run in client.experiments.runs(experiment) if run.state == "succeeded"])


def _are_missing(missing: int, of: int) -> str:
    return f"{missing} of {counted(of, 'picture')} {'is' if missing == 1 else 'are'} missing"


def _why_missing(client: "Client", runs: Sequence[ExperimentRunView]) -> str:
    """Return why jobs that are shown have no pictures, and whether waiting helps."""
    if _are_rendered(client, runs):
        return "some are still rendered; --wait waits for them"
    if any(run.state not in NOT_COMPARED and run.state != "succeeded" for run in runs):
        return "some jobs have not ended; --wait waits for them"
    return "no more are on their way"


def _are_rendered(client: "Client", runs: Sequence[ExperimentRunView]) -> bool:
    """Return whether pictures of some of these jobs are on their way."""
    done = list(dict.fromkeys(run.job for run in runs if run.state == "succeeded"))[:LOOKED_AT_MAX]
    return any(client.jobs.get(job).samples.waiting for job in done)


def _no_pictures(
    client: "Client", found: ExperimentView, runs: Sequence[ExperimentRunView], where: str = "of"
) -> NotFound:
    """Return the error that says why there is no sheet of these jobs: pictures may still be on their way."""
    who = f"no job {where} {found.name}"
    if _are_rendered(client, runs):
        return NotFound(
            f"{who} has sample pictures yet: those of the results wait for a node that has nothing to train",
            hint="try again in a while, or pass --wait",
        )
    running = f" yet: {found.because}" if found.state == "running" else ""
    return NotFound(f"{who} has sample pictures{running}", hint=HOW)


def _check_file(file: Path) -> None:
    """Raise `BadInput` if no picture can be written there."""
    if file.suffix.lower() not in ENDINGS:
        raise BadInput(f"{file} is not the name of a picture", hint=f"end it with one of {', '.join(ENDINGS)}")
    check_place(file, "--to")


@dataclass(frozen=True, slots=True)
class _Shown:
    """An experiment with its jobs and their last pictures."""

    experiment: ExperimentView
    runs: Sequence[ExperimentRunView]
    pictures: _Pictures


def _pictures_of(client: "Client", runs: Sequence[ExperimentRunView]) -> _Pictures:
    found = dict[tuple[str, int], ArtifactView]()
    for run in runs:
        if run.step == 0 and run.state != "succeeded":
            continue  # it has not trained, so it has no pictures
        by_path = {artifact.path: artifact for artifact in client.artifacts.list(run.job)}
        found |= {(run.job, prompt): by_path[path] for prompt, path in final_pictures(by_path).items()}
    return found


def _bounded(sheet: SheetLayout) -> SheetLayout:
    """Return what fits into the largest sheet, and say what is left out."""
    from gangline.data.images.contact_sheet import most_columns, most_rows

    rows, columns = most_rows(), most_columns()
    left_out = max(0, len(sheet.cells) - rows), max(0, len(sheet.prompts) - columns)
    for count, what in zip(left_out, ("row", "column"), strict=True):
        if count:
            say(f"note: the last {counted(count, what)} left out: no more fit on one sheet")
    return SheetLayout(
        rows=sheet.rows[:rows],
        columns=sheet.columns[:columns],
        prompts=sheet.prompts[:columns],
        cells=tuple(row[:columns] for row in sheet.cells[:rows]),
    )


def _save(client: "Client", shown: _Shown, sheet: SheetLayout, to: Path) -> None:
    from gangline.data.images.contact_sheet import draw_contact_sheet

    with TemporaryDirectory() as folder:
        drawn = [[_cell(client, shown, place, Path(folder)) for place in row] for row in sheet.cells]
        words = {number: cell[1] for row in drawn for number, cell in enumerate(row) if cell[1]}
        headings = [
            _label(column, [*column])[0] if column else words.get(number, f"prompt {sheet.prompts[number] + 1}")
            for number, column in enumerate(sheet.columns)
        ]
        rows = [_row(shown, sheet, number, [cell for cell, _ in cells]) for number, cells in enumerate(drawn)]
        title = f"{shown.experiment.name}: {words.get(0, '')}" if any(sheet.columns) else shown.experiment.name
        draw_contact_sheet(title, headings, rows).save(to)


def _row(shown: _Shown, sheet: SheetLayout, number: int, cells: "list[SheetCell]") -> "SheetRow":
    from gangline.data.images.contact_sheet import SheetRow

    row, run = sheet.rows[number], sheet.cells[number][0].run
    if any(sheet.columns):
        return SheetRow(label=_label(row, [*row]), cells=cells)
    assert run is not None, "a row of a sheet by prompts is a job"
    settings = differing_settings(shown.runs, shown.experiment.settings)
    seed = [f"seed {run.seed}"] if not settings else []
    return SheetRow(label=[*seed, *_label(row, settings), *_result(shown, run)], cells=cells)


def _result(shown: _Shown, run: ExperimentRunView) -> list[str]:
    """Return what a job came to, and the mean over its seeds, by which the rows are in order."""
    measure = shown.experiment.measure
    value = value_of_run(run, measure)
    if value is None:
        return []
    mean = mean_over_seeds(run, shown.runs, measure) if shown.experiment.settings else None
    return [f"{MEASURES[measure]} {value:.4f}" + ("" if mean is None else f", mean {mean:.4f}")]


def _label(settings: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{name} = {setting_in_words(settings, name)}" for name in names]


def _cell(client: "Client", shown: _Shown, place: SheetPlace, folder: Path) -> "tuple[SheetCell, str]":
    """Return a cell, and the prompt of its picture as the picture says it."""
    from PIL import Image

    from gangline.data.images.contact_sheet import SheetCell, as_tile

    run = place.run
    if run is None:
        return SheetCell(word="no such job"), ""
    artifact = shown.pictures.get((run.job, place.prompt))
    if artifact is None:
        return SheetCell(word="no picture" if run.state == "succeeded" else run.state), ""
    (path,) = client.files.download_all([artifact], folder / run.job)
    with Image.open(path) as picture:
        return SheetCell(picture=as_tile(picture)), str(picture.info.get("prompt", ""))


def _cell_in_json(place: SheetPlace, pictures: _Pictures) -> dict[str, Any]:
    if place.run is None:
        return {"job": None, "prompt": place.prompt + 1, "path": None}
    artifact = pictures.get((place.run.job, place.prompt))
    return {"job": place.run.job, "prompt": place.prompt + 1, "path": artifact.path if artifact else None}
