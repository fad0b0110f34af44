"""What a card does, in one command without a network: `python benchmarks/card.py [PART …] --results FOLDER`.

exact      train, kill, resume: equal bits in each precision; which attention kernels repeat themselves to the bit; what determinism costs
step       a LoRA of SDXL at 1024²: seconds a step, images a second, share of the peak that a matrix product reaches here, memory; by batch,
           with and without gradient checkpointing; beside a plain loop that keeps latents
beside     the same beside the scripts that --peer names, which may be given again
scratch    Stable Diffusion 2's U-Net on latents, beside the published 137.5 and 36.3 images a second of an A100
render     pictures of SDXL at 1024², 50 steps with guidance, beside diffusers' pipeline
encode     latents of 256² and 512² and text embeddings of Stable Diffusion 2, images a second, beside the models alone
profile    the ten dearest kernels of a LoRA's step, and the ten dearest gaps between them
quantised  memory and speed with the base in 8 and 4 bits
compiled, compiled-scratch
           steps by torch.compile

All bases have random weights. Before anything else the wheels that this machine lacks are listed with their sizes, and for which parts; the
other parts are run all the same. Bring them in a folder and name it with --wheels: nothing is installed.

Each part is a process of its own that ends within eight minutes. FOLDER gets card.jsonl, a line as each case ends, and card.md, the table:
given the same folder again, only what is lacking or failed is run. With --tiny, or without a card, the bases are tiny: that shows that the
parts work, and no figure of it means anything.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0:1] = [str(ROOT / "src"), str(ROOT)]
# isort: split

import argparse
import importlib.metadata
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from benchmarks.on_card import wheels
from benchmarks.on_card.part import Part
from benchmarks.on_card.parts import parts
from benchmarks.on_card.results import Results, rows_of, table_of
from benchmarks.on_card.running import run_cases, run_part
from benchmarks.on_card.scale import Scale

PART_S = 480.0
TABLE_S = 5.0
"""What is left of --budget-s for the table."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="which, in this order (default: all)")
    parser.add_argument("--results", type=Path, default=Path("card"), help="where figures stay (default: ./card)")
    parser.add_argument(
        "--work", type=Path, help="where bases and runs are, some 30 GB (default: below the temporary folder)"
    )
    parser.add_argument("--wheels", type=Path, help="a folder of wheels, from which is taken what is lacking here")
    parser.add_argument("--lacking", action="store_true", help="list the wheels that are lacking here, and run nothing")
    parser.add_argument("--peer", type=Path, action="append", default=[], help="a script to run beside ours")
    parser.add_argument("--rounds", type=int, default=2, help="of ours and the peers, in turns (default: 2)")
    parser.add_argument("--tiny", action="store_true", help="tiny bases, as without a card")
    parser.add_argument(
        "--part-s", type=float, default=PART_S, help="cut a part off after this many seconds (default: 480)"
    )
    parser.add_argument(
        "--budget-s",
        type=float,
        default=float("inf"),
        help="end within this many seconds and show what was not run",
    )
    parser.add_argument("--cases", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--on", help=argparse.SUPPRESS)
    given = parser.parse_args()
    known = parts(given.peer, given.rounds)
    if unknown := [name for name in given.parts if name not in known]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(known)} (and beside, with --peer)")
    given.work = (given.work or Path(tempfile.gettempdir()) / f"gangline-card-{os.getuid()}").resolve()
    given.results, given.peer = given.results.resolve(), [peer.resolve() for peer in given.peer]
    return given


def described(given: argparse.Namespace) -> tuple[bool, str]:
    """Whether bases are tiny, and what figures are of."""
    import torch

    tiny = given.tiny or not torch.cuda.is_available()
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "no card"
    packages = ("torch", "diffusers", "transformers")
    versions = (f"{name} {importlib.metadata.version(name)}" for name in packages)
    bases = ["tiny bases: no figure means anything"] * tiny
    return tiny, ", ".join((card, f"Python {sys.version.split()[0]}", *versions, *bases))


def prepare_environment(given: argparse.Namespace) -> None:
    """For the processes that this one starts: this checkout and the wheels that were brought come before what is installed."""
    packages = [given.work / "packages"] * bool(given.wheels)
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (*packages, ROOT / "src", ROOT, *inherited)))
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    os.environ["PYTHONUNBUFFERED"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def scale_of(given: argparse.Namespace) -> Scale:
    return Scale(given.tiny, given.work / ("tiny" if given.tiny else "full"))


def run_inside(given: argparse.Namespace, part: Part) -> None:
    """What another process of this command started for one part."""
    scale = scale_of(given)
    shutil.rmtree(scale.folder / "runs", ignore_errors=True)  # of a process that was killed
    scale.folder.mkdir(parents=True, exist_ok=True)
    run_cases(part, given.cases, scale, Results(given.results, given.on))


def run_all(given: argparse.Namespace, wanted: Mapping[str, Part], left: dict[str, str], until_s: float) -> None:
    """Run what can be run, each part at most as long as it may, and show all that was found, also where a signal ends it early."""
    results, scale = Results(given.results, given.on), scale_of(given)
    command = [sys.executable, __file__, "--results", given.results, "--work", given.work, "--on", given.on]
    command += ["--rounds", given.rounds, *["--tiny"] * given.tiny]
    command += [word for peer in given.peer for word in ("--peer", peer)]
    with suppress(KeyboardInterrupt):
        for name, part in wanted.items():
            if name not in left:
                ends_s = min(until_s, time.monotonic() + given.part_s)
                left[name] = run_part(part, scale, results, ends_s, list(map(str, command)))
                write_table(wanted, scale, results, left)
    print("", write_table(wanted, scale, results, left), sep="\n")


def write_table(wanted: Mapping[str, Part], scale: Scale, results: Results, left: Mapping[str, str]) -> str:
    text = "\n".join(shown(wanted, scale, results, left))
    results.table.write_text(text + "\n")
    return text


def shown(wanted: Mapping[str, Part], scale: Scale, results: Results, left: Mapping[str, str]) -> Iterator[str]:
    yield results.on
    for name, part in wanted.items():
        cases = [case.name for case in part.cases(scale)]
        rows = rows_of(cases, results.of(name), left.get(name) or "this was ended before")
        yield from ("", f"## {name}", "")
        if rows:
            yield from table_of(rows)
        if more := part.sum_up(rows):
            yield from ("", *table_of(more))
        if not rows:
            yield "on a card alone"


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    begun_s = time.monotonic()
    given = arguments()
    known = parts(given.peer, given.rounds)
    if given.cases:
        run_inside(given, known[given.parts[0]])
        return
    wanted = {name: known[name] for name in given.parts or known}
    prepare_environment(given)
    if given.wheels:
        wheels.unpack(given.wheels, given.work / "packages", wanted.values())
    lacking = wheels.lacking_by_part(wanted.values())
    print(*wheels.listed(lacking), sep="\n", flush=True)
    if given.lacking:
        return
    left = {name: f"lacking here: {', '.join(found)}" for name, found in lacking.items() if found}
    if left.keys() == wanted.keys():
        sys.exit("so no part can be run here")
    given.tiny, given.on = described(given)
    print(given.on, flush=True)
    given.results.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, interrupt)
    run_all(given, wanted, left, begun_s + given.budget_s - TABLE_S)


if __name__ == "__main__":
    main()
