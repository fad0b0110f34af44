"""The pictures of an experiment as a matrix: settings down and across, all of the same step, the best job of each cell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.core.canonical import canonical_json
from gangline.core.experiments.comparison import differing_settings, ranked_runs
from gangline.core.experiments.views import ExperimentRunView, ExperimentView
from gangline.service.pictures.together import PlacedPicture
from gangline.web.experiments.compared import sort_key

SIDE_MAX = 20
"""Rows and columns of a matrix: more of them are smaller than what they show."""
SEED, PROMPT, JOB = "the seed", "the prompt", "the job"
BASE, LAST = "base", "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixAsked:
    """What is looked at: what differs `down` and `across` ("": as it fits), the number of the `prompt`, and the place on the slider, `stop`
    of `stops`; the last place shows the last picture of each job, whatever came since."""

    down: str = ""
    across: str = ""
    prompt: int = 0
    stop: int = -1
    stops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCell:
    """A cell: the best of `jobs` with its two values, None if there is none, and its picture, None if it has none of this step."""

    run: ExperimentRunView | None
    picture: PlacedPicture | None
    jobs: int
    is_best: bool

    @property
    def word(self) -> str:
        """Return what stands where there is no picture."""
        if self.run is None:
            return "no such job"
        if self.picture is not None:
            return "soon"  # the server is making its small copy
        if self.run.state == "succeeded":
            return "no picture"
        return f"{self.run.state} at step {self.run.step:,}" if self.run.step else self.run.state


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureMatrix:
    """`axes` are what can be chosen, `stops` the places of the slider, each a step, `BASE` or `LAST`. `left_out`: not all values of an axis
    are shown."""

    down: str
    across: str
    axes: Sequence[str]
    rows: Sequence[Any]
    columns: Sequence[Any]
    cells: Sequence[Sequence[MatrixCell]]
    stops: Sequence[str]
    stop: int
    prompt: int
    left_out: bool

    @property
    def said(self) -> str:
        """Return which pictures are shown."""
        shown = self.stops[self.stop]
        return {BASE: "the base", LAST: "the last of each"}.get(shown, f"step {shown}")

    @property
    def has_pictures(self) -> bool:
        return any(cell.picture for row in self.cells for cell in row)


def picture_matrix(
    found: ExperimentView,
    runs: Sequence[ExperimentRunView],
    asked: MatrixAsked,
    pictures: Iterable[PlacedPicture],
    prompts: int,
) -> PictureMatrix:
    """Return the matrix of these jobs and their pictures; `prompts` is the number of prompts of their spec."""
    ranked = ranked_runs(runs, found.measure)
    axes = axes_of(runs, found.settings, prompts)
    down, across = _chosen(asked, axes)
    by_job = dict[str, list[PlacedPicture]]()
    for each in pictures:
        by_job.setdefault(each.job, []).append(each)
    stops = _stops(each for of_one in by_job.values() for each in of_one)
    stop = asked.stop if 0 <= asked.stop < min(asked.stops - 1, len(stops) - 1) else len(stops) - 1
    rows, columns = _values(runs, down, prompts), _values(runs, across, prompts)
    cells = [
        [
            _cell(found, ranked, {down: row, across: column}, by_job, stops[stop], asked.prompt)
            for column in columns[:SIDE_MAX]
        ]
        for row in rows[:SIDE_MAX]
    ]
    return PictureMatrix(
        down=down,
        across=across,
        axes=axes,
        rows=rows[:SIDE_MAX],
        columns=columns[:SIDE_MAX],
        cells=cells,
        stops=stops,
        stop=stop,
        prompt=asked.prompt,
        left_out=max(len(rows), len(columns)) > SIDE_MAX,
    )


def axes_of(runs: Sequence[ExperimentRunView], settings: Sequence[str], prompts: int) -> list[str]:
    """Return what a matrix of these jobs can have down and across; at least two."""
    differing = [
        name for name in differing_settings(runs, settings) if len({repr(run.settings.get(name)) for run in runs}) > 1
    ]
    seeds = [SEED] if len({run.seed for run in runs}) > 1 else []
    found = [*differing, *seeds, *([PROMPT] if prompts > 1 else [])]
    return found if len(found) > 1 else [*found, PROMPT, JOB][: len(found) + 2]


def _chosen(asked: MatrixAsked, axes: Sequence[str]) -> tuple[str, str]:
    down = asked.down if asked.down in axes else axes[0]
    across = (
        asked.across if asked.across in axes and asked.across != down else next(each for each in axes if each != down)
    )
    return down, across


def shows_all_prompts(asked: MatrixAsked, axes: Sequence[str]) -> bool:
    """Return whether the prompt is one of the two that differ."""
    return PROMPT in _chosen(asked, axes)


def _value(run: ExperimentRunView, axis: str) -> Any:
    return run.seed if axis == SEED else run.name if axis == JOB else run.settings.get(axis)


def _values(runs: Sequence[ExperimentRunView], axis: str, prompts: int) -> list[Any]:
    if axis == PROMPT:
        return list(range(max(1, prompts)))
    found = {canonical_json(_value(run, axis)): _value(run, axis) for run in sorted(runs, key=lambda run: run.number)}
    values = list(found.values())
    return sorted(values, key=sort_key) if all(isinstance(value, int | float) for value in values) else values


def _stops(pictures: Iterable[PlacedPicture]) -> list[str]:
    places = [each.place for each in pictures]
    steps = sorted({place.step for place in places if place.of != "base"})
    return [*([BASE] if any(place.of == "base" for place in places) else []), *map(str, steps), LAST]


def _cell(
    found: ExperimentView,
    ranked: Sequence[ExperimentRunView],
    values: Mapping[str, Any],
    by_job: Mapping[str, Sequence[PlacedPicture]],
    stop: str,
    prompt: int,
) -> MatrixCell:
    wanted = [(axis, value) for axis, value in values.items() if axis != PROMPT]
    runs = [run for run in ranked if all(_value(run, axis) == value for axis, value in wanted)]
    run = runs[0] if runs else None
    of_run = by_job.get(run.job, ()) if run else ()
    return MatrixCell(
        run=run,
        picture=_picture(of_run, stop, values.get(PROMPT, prompt)),
        jobs=len(runs),
        is_best=run is not None and found.best is not None and run.job == found.best.job,
    )


def _picture(pictures: Sequence[PlacedPicture], stop: str, prompt: int) -> PlacedPicture | None:
    """Return the picture of a step, that of the least seed; of the result rather than on the way to it."""
    of_prompt = [
        each for each in pictures if each.place.prompt == prompt and (each.place.of == "base") == (stop == BASE)
    ]
    shown = [each for each in of_prompt if stop in (BASE, LAST) or str(each.place.step) == stop]
    return max(shown, key=lambda each: (each.place.step, each.place.of == "result", -each.place.seed), default=None)
