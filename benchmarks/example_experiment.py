"""The experiment of docs/experiments.md, for real: rank × learning rate × seeds on the example subject, on local nodes.

`python benchmarks/example_experiment.py --to docs/experiments` prints what `gangline experiments show` and `best` print, and writes the
sheet.

--nodes    start this many nodes (default: one for each core)
--steps    train each job for this many steps (default: those of the recipe)
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

from tests.inputs import SUBJECT

from gangline.cli.admin.box import Box
from gangline.posix import cores

ROOT = Path(__file__).parents[1]
HELD_OUT = "crying-cat.png"
VARIED = ("--vary", "rank=2,16", "--vary", "learning_rate=1e-4,1e-3,1e-2", "--seeds", "2")
PROMPTS = (
    "sks cat face, fluent emoji",
    "crying sks cat face, fluent emoji",
    "sks cat face with heart eyes, fluent emoji",
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    asked.add_argument("--nodes", type=int, default=cores())
    asked.add_argument("--steps", type=int)
    given = asked.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder, Box(Path(folder) / "box", lease_s=30, heartbeat_interval_s=5) as box:
        for number in range(given.nodes):
            box.start_node(f"node-{number + 1}")
        known = {"GANGLINE_SERVER": box.url, "GANGLINE_HOME": str(box.home / "server")}
        prompts = [word for prompt in PROMPTS for word in ("--sample-prompt", prompt)]
        steps = ["--steps", str(given.steps)] if given.steps else []
        train = [
            "train",
            str(SUBJECT),
            "--base",
            "assets/tiny-sdxl",
            "--recipe",
            "tiny_subject",
            "--hold-out",
            HELD_OUT,
        ]
        train += [
            "--held-out-every-steps",
            "50",
            *VARIED,
            *steps,
            "--experiment",
            "cat",
            *prompts,
            "--sample-seed",
            "1",
        ]
        gangline(known, *train)
        gangline(known, "experiments", "show", "cat")
        gangline(known, "experiments", "show", "cat", "--runs")
        gangline(known, "experiments", "best", "cat")
        gangline(known, "experiments", "sheet", "cat", "--wait", "--to", str(given.to / "sheet.webp"))


def gangline(known: dict[str, str], *words: str) -> None:
    sys.stdout.flush()
    subprocess.run([sys.executable, "-m", "gangline.cli.main", *words], env=os.environ | known, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
