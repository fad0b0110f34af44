"""The sheet of `gangline samples --to`: a row for each preview and seed, whatever its size, and a column for each step."""

from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gangline.cli.jobs.samples import save_grid
from gangline.data.images import grid


def picture(folder: Path, step: int, number: int, size: tuple[int, int] = (32, 32), **text: object) -> Path:
    path = folder / f"step-{step:06d}" / f"prompt-{number:02d}-seed-1.png"
    path.parent.mkdir(exist_ok=True)
    told = PngInfo()
    known = {
        "step": step,
        "prompt": "sks cat",
        "seed": 1,
        "sampler": "ddim",
        "sampler_steps": 30,
        "guidance_scale": 5.0,
    }
    for name, value in (known | text).items():
        told.add_text(name, str(value))
    Image.new("RGB", size, "red").save(path, pnginfo=told)
    return path


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[grid.GridRow]:
    """Keeps the rows that are drawn, which are then drawn as ever."""
    found, draw = list[grid.GridRow](), grid.draw_grid

    def kept(rows: list[grid.GridRow], columns: list[str], photos: Image.Image | None) -> Image.Image:
        found.extend(rows)
        return draw(rows, columns, photos)

    monkeypatch.setattr(grid, "draw_grid", kept)
    return found


def test_previews_of_one_prompt_and_seed_have_rows_of_their_own_that_say_what_differs(
    tmp_path: Path, rows: list[grid.GridRow]
) -> None:
    files = [
        picture(tmp_path, step, number, **each)
        for step in (0, 10)
        for number, each in enumerate(
            (
                {},
                {"negative_prompt": "blurry"},
                {"size": (64, 32)},
                {"prompt": "sks dog"},
            )
        )
    ]
    save_grid(files, tmp_path / "grid.png")
    assert [row.label for row in rows] == [
        "sks cat  (seed 1, negative prompt none, size 32 × 32)",
        "sks cat  (seed 1, negative prompt blurry, size 32 × 32)",
        "sks cat  (seed 1, negative prompt none, size 64 × 32)",
        "sks dog  (seed 1)",
    ]
    assert all(len([each for each in row.pictures if each]) == 2 for row in rows)
    assert Image.open(tmp_path / "grid.png").width == 2 * grid.MARGIN + 2 * grid.TILE + grid.GAP
