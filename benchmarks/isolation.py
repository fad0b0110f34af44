"""What isolation costs: `python benchmarks/isolation.py [--rounds 5] [--steps 40]`, for each level that works here, in turns.

start     seconds from the order to a process that stands by, its libraries loaded, until the trainer's first report
program   seconds from the start of `python -c pass` to its end, with the enclosure made and removed
step      seconds for each step of a LoRA after its first report; compared within a round

Of each its median, and what it is more than at `none`. The base is the tests' tiny one.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import mkdtemp
from threading import Event

from tests.inputs import BASE, SUBJECT, file_at

from gangline.adapters.host.host import LocalHost
from gangline.adapters.host.trainer.isolation import Isolation, find_isolation
from gangline.adapters.host.trainer.process import ProcessTrainer
from gangline.adapters.host.trainer.start import start_program
from gangline.core.errors import UserError
from gangline.core.parsing import to_json
from gangline.core.runs import contract
from gangline.core.server.isolation import LEVELS, IsolationLevel
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec

LOOK_EVERY_S = 0.0005


@dataclass
class Seen:
    """Seconds."""

    start: list[float] = field(default_factory=list)
    program: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--steps", type=int, default=40)
    chosen = options.parse_args()
    home = Path(mkdtemp(prefix="gangline-isolation-", dir="/var/tmp"))
    home.chmod(0o711)
    try:
        measure(home, chosen.rounds, chosen.steps)
    finally:
        shutil.rmtree(home)


def measure(home: Path, rounds: int, steps: int) -> None:
    host = LocalHost(home / "worker")
    levels = dict(working(host.runs))
    seen = {level: Seen() for level in levels}
    spec = spec_of(steps)
    for number in range(rounds):
        for level, isolation in levels.items():
            seen[level].program.append(of_program(host, f"program-{level}-{number}", isolation, spec))
            of_run(host, f"run-{level}-{number}", isolation, spec, seen[level])
    tell(seen)


def working(runs: Path) -> Iterator[tuple[IsolationLevel, Isolation]]:
    for level in LEVELS:
        try:
            yield level, find_isolation(runs, level)
        except UserError as error:
            print(f"{level}: {error.message}")


def spec_of(steps: int) -> LoraSpec:
    photos = sorted(SUBJECT.glob("*.png"))[:5]
    return LoraSpec(
        base=FilesBase(files=tuple(file_at(path, BASE) for path in sorted(BASE.rglob("*")) if path.is_file())),
        photos=tuple(file_at(path, SUBJECT) for path in photos),
        prompt="sks cat face, fluent emoji",
        steps=steps,
        resolution=256,
        sample_steps=2,
    )


def of_program(host: LocalHost, name: str, isolation: Isolation, spec: LoraSpec) -> float:
    directory = host.lay_out(name, to_json(spec))
    began = time.perf_counter()
    run = start_program([sys.executable, "-c", "pass"], directory, enclosure=isolation.make())
    while run.exit_code() is None:
        Event().wait(LOOK_EVERY_S)
    run.kill()
    took = time.perf_counter() - began
    assert run.exit_code() == 0, run.printed(0, 10_000)
    host.remove_run(run.directory)
    return took


def of_run(host: LocalHost, name: str, isolation: Isolation, spec: LoraSpec, seen: Seen) -> None:
    trainer = ProcessTrainer(isolation=isolation)
    while trainer.prove() is None:
        Event().wait(0.05)
    directory = host.lay_out(name, to_json(spec))
    shutil.copytree(BASE, host.input_path(directory, "base"))
    shutil.copytree(SUBJECT, host.input_path(directory, "photos"))
    began = time.perf_counter()
    run = trainer.start("lora", directory)
    progress = run.directory / contract.PROGRESS
    while run.exit_code() is None and not progress.exists():
        Event().wait(LOOK_EVERY_S)
    seen.start.append(time.perf_counter() - began)
    first: tuple[float, int] | None = None
    while run.exit_code() is None:
        step = run.progress().step
        if step and first is None:
            first = time.perf_counter(), step
        if step == spec.steps and first and len(seen.step) < len(seen.start):
            seen.step.append((time.perf_counter() - first[0]) / (step - first[1]))
        Event().wait(LOOK_EVERY_S * 10)
    run.kill()
    assert run.exit_code() == 0, run.printed(0, 10_000)
    host.remove_run(run.directory)


def tell(seen: dict[IsolationLevel, Seen]) -> None:
    bare = seen["none"]
    for level, found in seen.items():
        start, program, step = (statistics.median(each) for each in (found.start, found.program, found.step))
        more_start = 1000 * (start - statistics.median(bare.start))
        more_program = 1000 * (program - statistics.median(bare.program))
        ratios = [own / theirs for own, theirs in zip(found.step, bare.step, strict=True)]
        print(
            f"{level:8} start {1000 * start:6.0f} ms ({more_start:+5.0f})   program {1000 * program:5.0f} ms ({more_program:+5.0f})"
            f"   step {1000 * step:6.1f} ms ({100 * (statistics.median(ratios) - 1):+.2f} %)"
        )


if __name__ == "__main__":
    main()
