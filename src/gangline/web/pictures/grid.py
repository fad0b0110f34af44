"""Lay out the pictures of a job as a grid: a row for each prompt, a column for each step, in it one for each seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gangline.core.pictures.names import PictureKind
from gangline.core.pictures.views import PictureView, StoredWeights
from gangline.core.words import counted, listed

SHOWN_MAX = 2_000
"""Pictures of a grid, of the first prompts: more of them make a browser slow."""
WEIGHTS = {"none": "no weights", "checkpoint": "checkpoint", "file": "LoRA", "result": "result"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureColumn:
    """A step of the grid, and whether its weights are stored. The column of the base has none."""

    step: int
    of: PictureKind
    weights: StoredWeights
    pinned: bool
    winner: bool

    @property
    def name(self) -> str:
        return "base" if self.of == "base" else "result" if self.of == "result" else f"{self.step:,}"

    @property
    def state(self) -> str:
        """Return in a word or two what is stored of the step's weights; of the result, which has them, at which step it was."""
        return f"step {self.step:,}" if self.of == self._stored == "result" else self._stored

    @property
    def _stored(self) -> str:
        if self.of == "base":
            return "untrained"
        return "pinned" if self.pinned and self.weights == "checkpoint" else WEIGHTS[self.weights]

    @property
    def told(self) -> str:
        """Return the same as a sentence."""
        return {
            "no weights": "The weights of this step are not stored.",
            "checkpoint": "The checkpoint of this step is stored, until it expires.",
            "pinned": "The checkpoint of this step is pinned: it stays.",
            "LoRA": "The LoRA of this step is stored.",
            "result": "These are the weights of the result.",
        }.get(self._stored, "What the base draws without training.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRow:
    """A prompt of the grid, with a picture or None for each column and seed. `seeds` are those of its pictures."""

    prompt: int
    text: str
    seeds: tuple[int, ...]
    cells: tuple[PictureView | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureGrid:
    """`seeds` is the number of places that each column has, `left_out` that of the pictures that are not shown."""

    columns: tuple[PictureColumn, ...]
    rows: tuple[PictureRow, ...]
    seeds: int
    left_out: int = 0

    @property
    def pictures(self) -> int:
        return sum(cell is not None for row in self.rows for cell in row.cells)

    @property
    def columns_told(self) -> str:
        """Return in words which columns there are, such as `3 steps, the base and the result`."""
        of = {column.of for column in self.columns}
        steps = sum(column.of not in ("base", "result") for column in self.columns)
        told = [counted(steps, "step")] if steps else []
        return listed([*told, *(f"the {name}" for name in ("base", "result") if name in of)])

    def id_of(self, row: PictureRow, at: int) -> str:
        """Return the id of a cell's element, which stays when columns come in behind it."""
        column = self.columns[at // self.seeds]
        return f"cell-{row.prompt}-{column.of}-{column.step}-{at % self.seeds}"

    def places_after(self, before: "PictureGrid") -> range | None:
        """Return the places of the cells that are new in each row, if they are all behind those of the grid as it was `before`; None if
        anything else is at another place than it was."""
        shape, was = ([(row.prompt, row.seeds) for row in grid.rows] for grid in (self, before))
        columns, known = ([(each.step, each.of) for each in grid.columns] for grid in (self, before))
        if shape != was or self.seeds != before.seeds or columns[: len(known)] != known:
            return None
        return range(len(known) * self.seeds, len(columns) * self.seeds)


def picture_grid(pictures: Sequence[PictureView]) -> PictureGrid:
    """Return the grid of these pictures, which are in the order of `pictures_of_job`: the base first, the result last."""
    shown = pictures[:SHOWN_MAX]
    columns = _columns(shown)
    places: dict[tuple[int, PictureKind], int] = {
        (column.step, column.of): number for number, column in enumerate(columns)
    }
    by_prompt = [list(of_one) for _, of_one in groupby(shown, lambda each: each.prompt)]
    seeds = max((len({each.seed for each in of_one}) for of_one in by_prompt), default=1)
    rows = tuple(_row(of_one, places, seeds) for of_one in by_prompt)
    return PictureGrid(columns=columns, rows=rows, seeds=seeds, left_out=len(pictures) - len(shown))


def _columns(pictures: Sequence[PictureView]) -> tuple[PictureColumn, ...]:
    found = {(each.step, each.of == "result", each.of): each for each in pictures}
    in_order = sorted(found, key=lambda key: (key[2] != "base", *key[:2]))
    return tuple(
        PictureColumn(
            step=found[key].step,
            of=found[key].of,
            weights=found[key].weights,
            pinned=found[key].pinned,
            winner=found[key].winner,
        )
        for key in in_order
    )


def _row(pictures: Sequence[PictureView], places: dict[tuple[int, PictureKind], int], seeds: int) -> PictureRow:
    known = tuple(sorted({each.seed for each in pictures}))
    cells: list[PictureView | None] = [None] * (len(places) * seeds)
    for each in pictures:
        cells[places[each.step, each.of] * seeds + known.index(each.seed)] = each
    first = pictures[0]
    return PictureRow(prompt=first.prompt, text=first.text, seeds=known, cells=tuple(cells))
