"""LoRA, LoKr and DoRA beside each other on the example's subject: `python benchmarks/adapters.py --to adapters.jpg`.

Each is trained with the recipe `tiny_subject` on one core, but for one photo that is held out, and by a process of its own. The picture
has a row for each prompt of the recipe, and a column for the base and for each of them, all with the same seed. The table has their
trained weights, the size of the file, the seconds of a step, and the loss of the held-out photo before and after.

--rounds    train each this often, in turns; a step's time is the least of the rounds' medians
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import json
import os
import statistics
import subprocess
import tomllib
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image
from rich.console import Console
from rich.table import Table
from safetensors import safe_open
from tests.inputs import BASE, ROOT, SUBJECT, file_at

from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.parsing import to_json
from gangline.core.runs.contract import BASE as OF_BASE
from gangline.core.runs.contract import LORA, picture_name
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.lora import LoraSpec, parse_lora
from gangline.core.specs.spec import SampleSpec
from gangline.data.images.grid import GridRow, draw_grid, strip

HELD_OUT = "cat-with-wry-smile.png"
SEED = 1
KINDS_OF_ADAPTER: dict[str, dict[str, Any]] = {"LoRA": {}, "LoKr": {"algorithm": "lokr"}, "DoRA": {"dora": True}}


def spec_of(**settings: Any) -> LoraSpec:
    recipe = tomllib.loads((ROOT / "recipes" / "tiny_subject.toml").read_text())
    photos = [file_at(path, SUBJECT) for path in sorted(SUBJECT.glob("*.png"))]
    given = {
        "base": {"files": [asdict(file_at(path, BASE)) for path in sorted(BASE.rglob("*")) if path.is_file()]},
        "photos": [asdict(photo) for photo in photos if photo.path != HELD_OUT],
        "held_out": [asdict(photo) for photo in photos if photo.path == HELD_OUT],
        "sample_seeds": [SEED],
        "seed": 7,
    }
    return parse_lora({"kind": "lora"} | recipe | given | settings)


def run(folder: Path, spec: dict[str, Any], kind: str, result: Path | None = None) -> None:
    """Train, or render the pictures of a `result`. Raise `CalledProcessError` if that fails."""
    (folder / "inputs").mkdir(parents=True)
    (folder / "inputs" / "base").symlink_to(BASE)
    (folder / "inputs" / "photos").symlink_to(SUBJECT)
    (folder / "inputs" / "held_out").symlink_to(SUBJECT)
    if result:
        (folder / "inputs" / "result").symlink_to(result)
    (folder / "spec.json").write_text(json.dumps(spec))
    alone = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with (folder / "log").open("wb") as log:
        command = [sys.executable, "-m", KINDS[kind].program, str(folder)]
        subprocess.run(command, env=os.environ | alone, stdout=log, stderr=log, check=True)


def step_s(folder: Path) -> float:
    reports = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    return statistics.median(found for each in reports if (found := each.get("seconds_per_step")))


def trained_weights(file: Path) -> int:
    with safe_open(file, framework="pt") as found:
        return sum(found.get_tensor(name).numel() for name in found.keys())  # noqa: SIM118 - it is no dict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="the picture")
    parser.add_argument("--rounds", type=int, default=1)
    asked = parser.parse_args()
    specs = {name: spec_of(**settings) for name, settings in KINDS_OF_ADAPTER.items()}
    seconds: dict[str, list[float]] = {name: [] for name in specs}
    with TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in specs}
        for number in range(asked.rounds):
            for name, spec in specs.items():
                folder = folders[name] / f"round-{number}"
                print(f"{name}, round {number + 1} of {asked.rounds}", file=sys.stderr, flush=True)
                run(folder, to_json(spec), "lora")
                seconds[name].append(step_s(folder))
        table = Table("", "trained weights", "file, kB", "s/step", "held-out loss before", "after")
        shown: dict[str, Path] = {}
        for name, spec in specs.items():
            output = folders[name] / "round-0" / "output"
            shown[name] = folders[name] / "pictures" / "output"
            run(
                shown[name].parent,
                to_json(SampleSpec(of=spec, job=name, checkpoint=None, step=spec.steps)),
                "sample",
                output,
            )
            (photo,) = json.loads((output / "report.json").read_text())["held_out"]
            file = output / DIFFUSERS_FILE
            figures = (f"{file.stat().st_size / 1000:,.0f}", f"{min(seconds[name]):.3f}")
            losses = (f"{photo['loss_before']:.4f}", f"{photo['loss_after']:.4f}")
            table.add_row(name, f"{trained_weights(file):,}", *figures, *losses)
        draw(specs["LoRA"], shown).save(asked.to)
    Console(width=120).print(table)


def draw(spec: LoraSpec, shown: dict[str, Path]) -> Image.Image:
    rows = []
    for number, prompt in enumerate(spec.sample_prompts):
        base = next(iter(shown.values())) / picture_name(number, SEED, OF_BASE)
        files = [base, *(folder / picture_name(number, SEED, LORA) for folder in shown.values())]
        rows.append(GridRow(str(prompt), [Image.open(file) for file in files]))
    photos = strip(Image.open(SUBJECT / photo.path) for photo in spec.photos)
    return draw_grid(rows, ["the base", *shown], photos)


if __name__ == "__main__":
    main()
