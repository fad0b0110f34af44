"""How often sixty jobs on one data set prepare it: `python benchmarks/sixty.py [--nodes N] [--steps N]`, with the real trainer.

The example subject becomes a data set, and an experiment of 5 ranks × 4 rates × 3 seeds trains on it, on local nodes. The `prepared`
facts say which jobs made latents and embeddings. The start of those jobs, from a node's claim to the first step, stands beside that of
the others.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

from benchmarks.example_experiment import gangline
from tests.inputs import SUBJECT

from gangline.cli.admin.box import Box
from gangline.posix import cores

VARIED = (
    "--vary",
    "rank=1,2,4,8,16",
    "--vary",
    "learning_rate=1e-4,3e-4,1e-3,3e-3",
    "--seeds",
    "3",
)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--nodes", type=int, default=cores())
    asked.add_argument("--steps", type=int, default=4)
    given = asked.parse_args()
    with TemporaryDirectory() as folder, Box(Path(folder) / "box", lease_s=30, heartbeat_interval_s=5) as box:
        known = {"GANGLINE_SERVER": box.url, "GANGLINE_HOME": str(box.home / "server")}
        for number in range(given.nodes):
            box.start_node(f"node-{number + 1}")
        gangline(known, "datasets", "push", str(SUBJECT), "--name", "cats")
        gangline(
            known,
            "train",
            "cats@1",
            "--base",
            "assets/tiny-sdxl",
            "--recipe",
            "tiny_subject",
            "--steps",
            str(given.steps),
            "--no-sample-result",
            "--experiment",
            "sixty",
            "--label",
            "sweep=sixty",
            *VARIED,
        )
        show(box, given.nodes)


def show(box: Box, nodes: int) -> None:
    report = box.client.jobs.report(label=["sweep=sixty"], include=["jobs"])
    made = Counter(fact.job for fact in box.client.facts.list() if fact.kind == "prepared")
    names = {line.id: line.name for line in report.lines}
    starts = {line.id: line.download_s for line in report.lines}
    others = [seconds for job, seconds in starts.items() if job not in made]
    print(f"\n{json.dumps(report.jobs)} on {nodes} nodes")
    for job, count in made.items():
        print(f"prepared by {names[job]}: {count} files; its start took {starts[job]:.1f} s")
    print(
        f"prepared by the other {len(others)}: none; their start took {median(others):.1f} s (median), {max(others):.1f} s at most"
    )


if __name__ == "__main__":
    main()
