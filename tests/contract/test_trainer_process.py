"""A trainer as a subprocess: what it gets to see, and that it never outlives its agent."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.trainer import process as trainer_process
from gangline.adapters.host.trainer.beneath import files_beneath, mark_beneath, open_of_runs
from gangline.adapters.host.trainer.process import ProcessTrainer
from gangline.adapters.host.trainer.run import ProcessRun
from gangline.core.errors import Damaged
from gangline.core.files import File
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_STOPPED, SHOW_NOW, Progress
from gangline.core.runs.metrics import Point, Reading
from gangline.posix import remove_tree
from tests.processes import is_running
from tests.waiting import until

PROGRAM = """
import json, os, pathlib, signal, subprocess, sys, threading
if __name__ != "__main__":
    here = pathlib.Path(__file__).parent
    half = here / f"half-{os.getpid()}"  # a trainer and a process that stands by may load at once
    half.write_text(json.dumps(dict(os.environ)))
    half.rename(here / "loading")
    if (here / "slowly").exists():
        threading.Event().wait()
    raise ImportError("loaded, as far as this program goes")
run = pathlib.Path(sys.argv[1])
spec = json.loads((run / "spec.json").read_text())
(run / "environment.json").write_text(json.dumps(dict(os.environ)))
print("hello", flush=True)
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
signal.signal(signal.SIGUSR1, lambda *_: (run / "saved").touch())
child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
(run / "child").write_text(str(child.pid))
with (run / "progress.jsonl").open("a") as progress:
    progress.write(json.dumps({"phase": "training", "step": 3, "steps": 9, "loss": 0.5, "seconds_per_step": 0.1}) + "\\n")
    progress.write('{"phase": "tra')
if spec.get("exit") is not None:
    sys.exit(spec["exit"])
(run / "ready").touch()
stop.wait()
sys.exit(75)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory for a small program of this test's own, which any trainer could be."""
    (tmp_path / "small_trainer.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("GANGLINE_TOKEN", "a secret")
    monkeypatch.setattr(trainer_process, "MODULES", {"small": "small_trainer"})
    run = tmp_path / "run"
    run.mkdir()
    (run / "spec.json").write_text("{}")
    return run


@pytest.fixture
def run(directory: Path) -> Iterator[ProcessRun]:
    started = ProcessTrainer().start("small", directory)
    until((directory / "ready").exists)
    yield started
    started.kill()


def test_it_does_not_see_the_agents_secrets(run: ProcessRun) -> None:
    environment = json.loads((run.directory / "environment.json").read_text())
    assert "GANGLINE_TOKEN" not in environment
    assert environment["HOME"] == str(run.directory)


def test_reports_are_read_line_by_line_and_half_a_line_waits(run: ProcessRun) -> None:
    assert run.progress() == Progress(phase="training", step=3, steps=9, loss=0.5, seconds_per_step=0.1)


def test_what_it_measures_is_told_once_and_only_what_is_a_number(run: ProcessRun) -> None:
    line = {
        "step": 4,
        "steps": 9,
        "loss": 0.4,
        "seconds_per_step": 0.1,
        "metrics": {"loss": 0.4, "own/name": 2, "x": None},
    }
    with (run.directory / "progress.jsonl").open("a") as progress:
        progress.write('ining", ' + json.dumps(line)[1:] + "\n")  # the half line that was waiting
        progress.write(
            json.dumps({"phase": "saving", "step": 4, "steps": 9, "loss": None, "seconds_per_step": None}) + "\n"
        )
    measured = Reading(point=Point(step=4, values={"loss": 0.4, "own/name": 2.0}))
    assert run.take_readings() == [measured, Reading(point=Point(step=4, values={}), saved=True)]
    assert run.take_readings() == []


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[1]",
        b'{"phase": "sleeping", "step": 1, "steps": 2, "loss": null, "seconds_per_step": null}',
        b'{"phase": "training", "step": "1", "steps": 2, "loss": null, "seconds_per_step": null}',
        b'{"phase": "training", "step": 1e300, "steps": 2, "loss": null, "seconds_per_step": null}',
        b'{"phase": "training", "step": -1, "steps": 2, "loss": null, "seconds_per_step": null}',
        b'{"phase": "training", "step": 1, "steps": 2, "loss": [], "seconds_per_step": null}',
        b'{"failure": {"kind": "unheard of", "because": "so"}}',
        b'{"failure": 7}',
        b"x" * (5 * 2**20),
    ],
    ids=range(12),
)
def test_what_is_no_report_is_told_if_the_run_fails_and_what_comes_after_it_is_read(
    run: ProcessRun, line: bytes
) -> None:
    good = json.dumps({"phase": "training", "step": 5, "steps": 9, "loss": 0.1, "seconds_per_step": 0.1}).encode()
    with (run.directory / "progress.jsonl").open("ab") as progress:
        progress.write(b"\n" + line + b"\n" + good + b"\n")
    until(lambda: run.progress().step == 5)
    failure = run.failure()
    assert failure and failure.kind == "crashed" and failure.because.startswith("progress.jsonl: ")


@pytest.mark.parametrize("text", [b"not JSON", b"[]", b'{"step": 1}', b'{"step": -1, "pictures": []}', b"[" * 100_000])
def test_a_description_that_is_none_shows_no_pictures(run: ProcessRun, text: bytes) -> None:
    folder = run.directory / "samples" / "step-000001"
    folder.mkdir(parents=True)
    (folder / "samples.json").write_bytes(text)
    assert run.pictures() == []


def test_what_it_prints_can_be_read_from_any_byte(run: ProcessRun) -> None:
    assert run.printed(0, 100) == b"hello\n"
    assert run.printed(2, 2) == b"ll"


def test_what_it_left_is_told_once_it_has_been_hashed(run: ProcessRun) -> None:
    for folder in ("output", "samples"):
        (run.directory / folder / "below").mkdir(parents=True)
        (run.directory / folder / "below" / "file").write_bytes(folder.encode())
    until(lambda: run.result() is not None)
    told = run.result()
    assert told and [told.output, told.samples] == [
        (File(path="below/file", bytes=len(folder), sha256=hashlib.sha256(folder.encode()).hexdigest()),)
        for folder in ("output", "samples")
    ]


def test_asked_to_save_it_saves_and_goes_on(run: ProcessRun) -> None:
    run.ask_to_save()
    until((run.directory / "saved").exists)
    assert run.exit_code() is None
    run.kill()
    run.ask_to_save()


def test_a_mark_for_pictures_of_now_is_left_before_the_signal_and_follows_no_link(
    run: ProcessRun, tmp_path: Path
) -> None:
    mark, elsewhere = run.directory / SHOW_NOW, tmp_path / "elsewhere"
    mark.symlink_to(elsewhere)
    mark_beneath(run.directory, SHOW_NOW)
    assert not elsewhere.exists()
    mark.unlink()
    for _ in range(2):
        mark_beneath(run.directory, SHOW_NOW)
        assert mark.read_bytes() == b""


def test_asked_to_stop_it_exits_as_resumable(run: ProcessRun) -> None:
    run.ask_to_stop()
    until(lambda: run.exit_code() is not None)
    assert run.exit_code() == EXIT_STOPPED
    run.ask_to_stop()


def test_killed_it_is_gone_with_all_that_it_started(run: ProcessRun) -> None:
    child = int((run.directory / "child").read_text())
    run.kill()
    run.kill()
    until(lambda: not is_running(child))
    assert run.exit_code() == -9


def test_its_exit_code_is_told(directory: Path) -> None:
    (directory / "spec.json").write_text('{"exit": 65}')
    run = ProcessTrainer().start("small", directory)
    until(lambda: run.exit_code() is not None)
    assert run.exit_code() == EXIT_BAD_INPUT
    run.kill()


def test_it_dies_with_its_agent(directory: Path) -> None:
    agent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, threading; from pathlib import Path\n"
            "from gangline.adapters.host.trainer import process as trainer_process\n"
            "trainer_process.MODULES = {'small': 'small_trainer'}\n"
            "trainer = trainer_process.ProcessTrainer()\n"
            "run = trainer.start('small', Path(sys.argv[1]))\n"
            "trainer.prepare()\n"
            "print(run._process.pid, trainer._standby.process.pid, flush=True); threading.Event().wait()",
            str(directory),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert agent.stdout is not None
    trainer, standby = map(int, agent.stdout.readline().split())
    until((directory / "ready").exists)
    child = int((directory / "child").read_text())
    agent.kill()
    agent.communicate()
    until(lambda: not is_running(trainer) and not is_running(standby))
    os.kill(child, 9)


def standing_by(directory: Path) -> ProcessTrainer:
    """One that has loaded what it can."""
    trainer = ProcessTrainer()
    trainer.prepare()
    until((directory.parent / "loading").exists)
    return trainer


def test_a_trainer_that_stands_by_takes_the_next_run_with_its_libraries_loaded(directory: Path) -> None:
    trainer = standing_by(directory)
    standby = trainer._standby
    (directory.parent / "loading").unlink()
    trainer.prepare()
    run = trainer.start("small", directory)
    assert standby is not None and run._process is standby.process
    until((directory / "ready").exists)
    assert run.printed(0, 100) == b"hello\n"
    assert not (directory.parent / "loading").exists(), "loaded once"
    assert trainer._standby is None, "one for each run, and none beside a run"
    run.kill()


def test_who_stands_by_knows_no_secret_and_no_job(directory: Path) -> None:
    trainer = standing_by(directory)
    environment = json.loads((directory.parent / "loading").read_text())
    assert "GANGLINE_TOKEN" not in environment and str(directory) not in environment.values()
    assert environment["HOME"] == "/nonexistent"
    trainer.start("small", directory).kill()


def test_one_that_died_while_it_stood_by_is_replaced(directory: Path) -> None:
    trainer = standing_by(directory)
    assert trainer._standby
    trainer._standby.kill()
    run = trainer.start("small", directory)
    until((directory / "ready").exists)
    run.kill()


def test_told_to_stop_while_it_still_loads_it_ends_as_resumable(directory: Path) -> None:
    (directory.parent / "slowly").touch()
    run = ProcessTrainer().start("small", directory)
    until((directory.parent / "loading").exists)
    run.ask_to_stop()
    until(lambda: run.exit_code() is not None)
    assert run.exit_code() == EXIT_STOPPED


def seen_by(trainer: ProcessTrainer, directory: Path, slots: tuple[int, ...]) -> tuple[str | None, str | None]:
    """Return what the environment of a run on these slots says of cards and cores."""
    run = trainer.start("small", directory, slots)
    until((directory / "ready").exists)
    run.kill()
    environment = json.loads((directory / "environment.json").read_text())
    return environment.get("CUDA_VISIBLE_DEVICES"), environment.get("GANGLINE_CORES")


def test_a_run_sees_the_cards_of_its_slots_and_its_share_of_the_cores(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_process, "cores", lambda: 16)
    trainer = ProcessTrainer(cards=["GPU-a", "GPU-b", "GPU-c", "GPU-d"], slots=4)
    trainer.prepare()
    assert seen_by(trainer, directory, (1, 3)) == ("GPU-b,GPU-d", "8")


def test_a_run_on_a_machine_without_cards_and_with_one_slot_is_told_of_neither(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert seen_by(ProcessTrainer(), directory, (0,)) == (None, None)


@pytest.mark.parametrize("value", ["1" + "0" * 400, "1e999", "NaN"])
def test_a_number_that_no_float_can_be_ends_no_agent(run: ProcessRun, value: str) -> None:
    """A command may write into its run's directory."""
    with (run.directory / "progress.jsonl").open("a") as file:
        file.write(f'{{"phase": "training", "step": 4, "steps": 9, "loss": {value}, "seconds_per_step": {value}}}\n')
        file.write(
            f'{{"phase": "training", "step": 5, "steps": 9, "loss": 0.5, "metrics": {{"a": {value}, "b": 1}}}}\n'
        )
    run.progress()
    readings = run.take_readings()
    assert all(reading.point.values.get("a") is None for reading in readings)


def test_folders_however_deep_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    handle = os.open(tmp_path / "run", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    with pytest.raises(Damaged, match="too deep"):
        files_beneath(tmp_path / "run")
    remove_tree(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_uploaded_of_a_run_lies_below_it_and_behind_no_link(tmp_path: Path) -> None:
    runs, outside = tmp_path / "runs", tmp_path / "outside"
    (runs / "run").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_bytes(b"a secret of the node")
    (runs / "run" / "weights").write_bytes(b"weights")
    with open_of_runs([runs], runs / "run" / "weights") as file:
        assert file.read() == b"weights"
    (runs / "run" / "link").symlink_to(outside / "secret")
    (runs / "run" / "folder").symlink_to(outside)
    for path in ("link", "folder/secret", "gone"):
        with pytest.raises(Damaged, match="cannot be read"), open_of_runs([runs], runs / "run" / path):
            pass
