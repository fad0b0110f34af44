"""What each setting does to the example's subject and to a style: `python benchmarks/choosing.py --to docs/choosing`.

Each sheet varies one setting of the recipe `tiny_subject`, with one photo held out, and shows a row for each prompt and a column for
each value, beside the base, all with the same seed. A Markdown table has the loss of the held-out photo before and after. Equal jobs are
trained once.

The style is made here: line drawings, white on blue, of emoji from examples/emoji.

--only      draw these sheets alone
--processes train this many jobs at once, on one core each
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import io
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet
from benchmarks.adapters import HELD_OUT, SEED, run
from PIL import Image, ImageFilter, ImageOps
from tests.inputs import BASE, ROOT, SUBJECT, file_at

from gangline.core.canonical import digest
from gangline.core.parsing import to_json
from gangline.core.runs.contract import BASE as OF_BASE
from gangline.core.runs.contract import LORA, picture_name
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.spec import SampleSpec
from gangline.data.images.grid import GridRow, draw_grid, strip

RECIPE = tomllib.loads((ROOT / "recipes" / "tiny_subject.toml").read_text())
CLASS = "cat face, noto emoji"
STYLE = "sks blueprint"
DRAWN = (
    "avocado",
    "bagel",
    "bear",
    "banana",
    "carrot",
    "chicken",
    "cow face",
    "dolphin",
    "eggplant",
    "frog",
    "hamster",
)
DRAWN += ("koala", "lion", "mushroom", "octopus", "panda")
STYLE_HELD_OUT = "octopus.png"


@dataclass(frozen=True, kw_only=True)
class ChoosingSheet:
    title: str
    columns: Mapping[str, Mapping[str, Any]]
    """Settings that differ from the recipe's, by the heading of their column."""
    prompts: Sequence[str] = (
        "sks cat face, fluent emoji",
        "crying sks cat face, fluent emoji",
        CLASS,
        "dog face, fluent emoji",
    )
    style: bool = False


SHEETS = {
    "steps": ChoosingSheet(
        title="steps", columns={"75 steps": {"steps": 75}, "300 steps": {}, "1200 steps": {"steps": 1200}}
    ),
    "rate": ChoosingSheet(
        title="learning rate",
        columns={
            "1e-4": {"learning_rate": 1e-4, "text_encoder_learning_rate": 5e-5},
            "1e-3": {},
            "1e-2": {"learning_rate": 1e-2, "text_encoder_learning_rate": 5e-3},
        },
    ),
    "rank": ChoosingSheet(
        title="rank",
        columns={"rank 2": {"rank": 2, "alpha": 2}, "rank 16": {"alpha": 16}, "rank 64": {"rank": 64, "alpha": 64}},
    ),
    "class": ChoosingSheet(
        title="text encoders and class",
        columns={
            "U-Net alone": {"train_text_encoder": False},
            "text encoders too": {},
            "class preserved": {"class_prompt": CLASS, "class_images": 24},
        },
    ),
    "style": ChoosingSheet(
        title="captions of a style",
        columns={"one prompt": {"prompt": STYLE}, "captions": {"prompt": STYLE, "captioned": True}},
        prompts=(f"fox, {STYLE}", f"pizza, {STYLE}", "fox, noto emoji", "pizza, noto emoji"),
        style=True,
    ),
}
"""Style and captions: the U-Net alone is trained, as the preset `style` does."""


def draw_style(to: Path) -> None:
    """Write the pictures of the style, each with its caption."""
    table = pyarrow.parquet.read_table(ROOT / "examples" / "emoji" / "emoji64.parquet").to_pylist()
    known = {row["caption"]: row["image"] for row in table}
    for name in DRAWN:
        image = known[f"{name}, noto emoji"]
        picture = Image.open(io.BytesIO(image["bytes"] if isinstance(image, dict) else image)).convert("RGBA")
        white = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("L")
        lines = ImageOps.autocontrast(white.resize((256, 256)).filter(ImageFilter.FIND_EDGES).crop((2, 2, 254, 254)))
        file = to / f"{name.replace(' ', '-')}.png"
        ImageOps.colorize(lines.filter(ImageFilter.MaxFilter(3)), "#1f4e9c", "white").save(file)
        file.with_suffix(".txt").write_text(f"{name}, {STYLE}")


def spec_of(sheet: ChoosingSheet, settings: Mapping[str, Any], photos: Path) -> LoraSpec:
    held_out = STYLE_HELD_OUT if sheet.style else HELD_OUT
    given = dict(settings)
    captioned = given.pop("captioned", False)
    of = [asdict(file_at(path, photos)) for path in sorted(photos.glob("*.png"))]
    known = {
        "kind": "lora",
        "base": {"files": [asdict(file_at(path, BASE)) for path in sorted(BASE.rglob("*")) if path.is_file()]},
        "photos": [photo for photo in of if photo["path"] != held_out],
        "held_out": [photo for photo in of if photo["path"] == held_out],
        "captions": [asdict(file_at(path, photos)) for path in sorted(photos.glob("*.txt"))] if captioned else [],
        "sample_prompts": list(sheet.prompts),
        "sample_seeds": [SEED],
        "seed": 7,
    }
    style = {"train_text_encoder": False, "text_encoder_learning_rate": None} if sheet.style else {}
    return parse_lora({**RECIPE, **known, **style, **_without_rate_of_encoders(given)})


def _without_rate_of_encoders(given: dict[str, Any]) -> dict[str, Any]:
    alone = given.get("train_text_encoder") is False
    return given | ({"text_encoder_learning_rate": None} if alone else {})


@dataclass(frozen=True, kw_only=True)
class ChoosingResult:
    loss_before: float
    loss_after: float
    pictures: Path


def train(spec: LoraSpec, photos: Path, folder: Path) -> ChoosingResult:
    """Train and render, in this folder."""
    run(folder, to_json(spec), "lora", photos=photos)
    output, pictures = folder / "output", folder.with_name(f"{folder.name}-pictures")
    run(pictures, to_json(SampleSpec(of=spec, job=folder.name, checkpoint=None, step=spec.steps)), "sample", output)
    (photo,) = json.loads((output / "report.json").read_text())["held_out"]
    return ChoosingResult(
        loss_before=photo["loss_before"],
        loss_after=photo["loss_after"],
        pictures=pictures / "output",
    )


def draw(sheet: ChoosingSheet, shown: Mapping[str, ChoosingResult], photos: Iterable[Path]) -> Image.Image:
    rows = []
    for number, prompt in enumerate(sheet.prompts):
        base = next(iter(shown.values())).pictures / picture_name(number, SEED, OF_BASE)
        files = [base, *(each.pictures / picture_name(number, SEED, LORA) for each in shown.values())]
        rows.append(GridRow(prompt, [Image.open(file) for file in files]))
    return draw_grid(rows, ["the base", *shown], strip(Image.open(photo) for photo in list(photos)[:7]))


def rows_of(sheet: ChoosingSheet, shown: Mapping[str, ChoosingResult]) -> Iterable[str]:
    yield f"| {sheet.title} | held-out loss before | after |\n|---|---|---|"
    for name, each in shown.items():
        yield f"| {name.removesuffix(' steps')} | {each.loss_before:.3f} | {each.loss_after:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="the folder of the sheets")
    parser.add_argument("--only", nargs="*", choices=SHEETS, default=list(SHEETS))
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place, ThreadPoolExecutor(asked.processes) as pool:
        style = Path(place) / "style"
        style.mkdir()
        draw_style(style)
        jobs: dict[str, Any] = {}
        keys: dict[tuple[str, str], str] = {}
        for name in asked.only:
            photos = style if SHEETS[name].style else SUBJECT
            for column, settings in SHEETS[name].columns.items():
                spec = spec_of(SHEETS[name], settings, photos)
                keys[name, column] = key = digest(to_json(spec))
                if key not in jobs:
                    jobs[key] = pool.submit(train, spec, photos, Path(place) / re.sub(r"\W", "-", f"{name}-{column}"))
        for name in asked.only:
            sheet = SHEETS[name]
            shown = {column: jobs[keys[name, column]].result() for column in sheet.columns}
            print("\n".join(rows_of(sheet, shown)), flush=True)
            photos = sorted((style if sheet.style else SUBJECT).glob("*.png"))
            held_out = STYLE_HELD_OUT if sheet.style else HELD_OUT
            draw(sheet, shown, [photo for photo in photos if photo.name != held_out]).save(
                asked.to / f"{name}.webp", quality=70, method=6
            )


if __name__ == "__main__":
    main()
