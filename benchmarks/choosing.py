"""What each setting does to the example's subject: `python benchmarks/choosing.py --to docs/choosing`.

Each sheet varies one setting of the recipe `tiny_subject`, with one photo held out, and shows a row for each prompt and a column for
each value, beside the base, all with the same seed. A Markdown table has the loss of the held-out photo before and after. Equal jobs are
trained once.

--only      draw these sheets alone
--processes train this many jobs at once, on one core each
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.adapters import HELD_OUT, SEED, run, spec_of
from PIL import Image
from tests.inputs import SUBJECT

from gangline.core.canonical import digest
from gangline.core.parsing import to_json
from gangline.core.runs.contract import BASE as OF_BASE
from gangline.core.runs.contract import LORA, picture_name
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import SampleSpec
from gangline.data.images.grid import GridRow, draw_grid, strip

CLASS = "cat face, noto emoji"
PROMPTS = ("sks cat face, fluent emoji", "crying sks cat face, fluent emoji", CLASS, "dog face, fluent emoji")
"""The subject, the subject doing something, its class as the base draws it, and something else."""

SHEETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "steps": {"75 steps": {"steps": 75}, "300 steps": {}, "1200 steps": {"steps": 1200}},
    "rate": {
        "1e-4": {"learning_rate": 1e-4, "text_encoder_learning_rate": 5e-5},
        "1e-3": {},
        "1e-2": {"learning_rate": 1e-2, "text_encoder_learning_rate": 5e-3},
    },
    "rank": {
        "rank 2": {"rank": 2, "alpha": 2},
        "rank 16": {"rank": 16, "alpha": 16},
        "rank 64": {"rank": 64, "alpha": 64},
    },
    "class": {
        "U-Net alone": {"train_text_encoder": False, "text_encoder_learning_rate": None},
        "text encoders too": {},
        "class preserved": {"class_prompt": CLASS, "class_images": 24},
    },
}
"""Settings that differ from the recipe's, by the heading of their column."""


@dataclass(frozen=True, kw_only=True)
class ChoosingResult:
    loss_before: float
    loss_after: float
    pictures: Path


def train(spec: LoraSpec, folder: Path) -> ChoosingResult:
    """Train and render, in this folder."""
    run(folder, to_json(spec), "lora")
    output, pictures = folder / "output", folder.with_name(f"{folder.name}-pictures")
    run(pictures, to_json(SampleSpec(of=spec, job=folder.name, checkpoint=None, step=spec.steps)), "sample", output)
    return read_result(output, pictures)


def read_result(output: Path, pictures: Path) -> ChoosingResult:
    (photo,) = json.loads((output / "report.json").read_text())["held_out"]
    return ChoosingResult(
        loss_before=photo["loss_before"], loss_after=photo["loss_after"], pictures=pictures / "output"
    )


def draw(shown: Mapping[str, ChoosingResult]) -> Image.Image:
    rows = []
    for number, prompt in enumerate(PROMPTS):
        base = next(iter(shown.values())).pictures / picture_name(number, SEED, OF_BASE)
        files = [base, *(each.pictures / picture_name(number, SEED, LORA) for each in shown.values())]
        rows.append(GridRow(prompt, [Image.open(file) for file in files]))
    photos = [photo for photo in sorted(SUBJECT.glob("*.png")) if photo.name != HELD_OUT]
    return draw_grid(rows, ["the base", *shown], strip(Image.open(photo) for photo in photos))


def rows_of(name: str, shown: Mapping[str, ChoosingResult]) -> Iterable[str]:
    yield f"| {name} | held-out loss before | after |\n|---|---|---|"
    for column, each in shown.items():
        yield f"| {column.removesuffix(' steps')} | {each.loss_before:.3f} | {each.loss_after:.3f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="the folder of the sheets")
    parser.add_argument("--only", nargs="*", choices=SHEETS, default=list(SHEETS))
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place, ThreadPoolExecutor(asked.processes) as pool:
        jobs: dict[str, Future[ChoosingResult]] = {}
        shown: dict[str, dict[str, Future[ChoosingResult]]] = {name: {} for name in asked.only}
        for name in asked.only:
            for column, settings in SHEETS[name].items():
                spec = spec_of(**{"sample_prompts": list(PROMPTS)} | settings)
                key = digest(to_json(spec))
                if key not in jobs:
                    jobs[key] = pool.submit(train, spec, Path(place) / re.sub(r"\W", "-", f"{name}-{column}"))
                shown[name][column] = jobs[key]
        for name, found in shown.items():
            results = {column: job.result() for column, job in found.items()}
            print("\n".join(rows_of(name, results)), flush=True)
            draw(results).save(asked.to / f"{name}.webp", quality=70, method=6)


if __name__ == "__main__":
    main()
