"""Several ranks as one trainer: signals reach them, and the exit code is theirs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
import torch

from gangline.core.errors import BadInput
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_STOPPED
from gangline.core.specs.fields import Needs
from gangline.core.specs.phases import TrainingPhase
from gangline.train.checkpoints.manifest import read_manifest
from gangline.train.run.contract import RunDirectory
from gangline.train.run.ranks import Ranks
from tests.conftest import ROOT
from tests.train.bases import save_tiny
from tests.train.sets import data_set, lay_out, lines, needs_a_card_each, scratch_spec

LAUNCH = [sys.executable, "-m", "gangline.train.scratch.launch"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "gangline.train.scratch"]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """That goes on for longer than any test waits."""
    needs_a_card_each(2)
    base = save_tiny(tmp_path / "sd2", "sd2")
    phases = (TrainingPhase(steps=100_000, resolution=16, batch_size=2),)
    spec = scratch_spec(base, data_set(tmp_path), phases=phases, checkpoint_every_steps=None, needs=Needs(slots=2))
    return lay_out(tmp_path / "run", spec, base)


def wait_for_step(run: RunDirectory, process: "subprocess.Popen[bytes]", step: int) -> None:
    while not ((run.path / "progress.jsonl").exists() and lines(run)[-1]["step"] >= step):
        assert process.poll() is None
        Event().wait(0.02)


@pytest.mark.parametrize("code", [0, 1, EXIT_STOPPED])
def test_a_rank_that_has_done_its_work_ends_with_its_own_code_whatever_its_libraries_do_at_the_end(code: int) -> None:
    """A thread of gloo once aborted a rank whose result was complete."""
    program = f"""
import atexit, os
from gangline.train.run.ranks import exit_process
atexit.register(os.abort)
print("done")
exit_process({code})
"""
    several = os.environ | {"RANK": "0", "WORLD_SIZE": "2"}
    ended = subprocess.run([sys.executable, "-c", program], env=several, stdout=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, "done\n")


@pytest.mark.tenths
def test_a_signal_to_it_stops_all_ranks_after_one_step_and_the_exit_code_says_so(run: RunDirectory) -> None:
    process = subprocess.Popen([*LAUNCH, str(run.path)])
    wait_for_step(run, process, 1)
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == EXIT_STOPPED
    newest = max(run.checkpoints.iterdir())
    assert read_manifest(newest).fingerprint["ranks"] == "2"
    assert {"weights-00000.safetensors", "weights-00001.safetensors"} <= {path.name for path in newest.iterdir()}


def ranks_of(process: "subprocess.Popen[bytes]") -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.tenths
def test_a_notice_that_comes_before_any_rank_has_begun_stops_all_of_them(run: RunDirectory) -> None:
    process = subprocess.Popen([*LAUNCH, str(run.path)])
    while len(ranks_of(process)) < 2:
        assert process.poll() is None
        Event().wait(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == EXIT_STOPPED
    assert [path.name for path in run.checkpoints.iterdir()] == ["000001"]


def test_when_a_rank_is_killed_those_that_wait_for_it_are_ended_within_seconds_and_nobody_else_is_blamed(
    run: RunDirectory,
) -> None:
    process = subprocess.Popen([*LAUNCH, str(run.path)])
    wait_for_step(run, process, 1)
    first, second = ranks_of(process)
    os.kill(first, signal.SIGSTOP)  # as one that hangs in a collective
    os.kill(second, signal.SIGKILL)
    assert process.wait(10) == 128 + signal.SIGKILL
    assert not [line for line in lines(run) if "failure" in line]


OF_PATIENT_RANKS = """
import signal, sys, threading
from pathlib import Path
from gangline.train.scratch import launch

folder, launch.TRAINER = Path(sys.argv[1]), "tests.train.scratch.patient_rank"
launcher = launch.Launcher(folder, 2)

def tell():
    while len(list(folder.glob("rank-*"))) < 2:
        threading.Event().wait(0.01)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=tell).start()
sys.exit(launcher.run())
"""


def test_a_signal_that_does_not_interrupt_its_sleep_is_heard_all_the_same(tmp_path: Path) -> None:
    """One that another thread receives leaves the sleep as it is, as one does that comes in the moment before it."""
    process = subprocess.Popen([sys.executable, "-c", OF_PATIENT_RANKS, str(tmp_path)], cwd=ROOT)
    try:
        assert process.wait(60) == EXIT_STOPPED
    finally:
        process.kill()


def test_children_that_it_did_not_start_are_none_of_its_ranks(tmp_path: Path) -> None:
    inherited = f'sh -c "exit 3" & exec {sys.executable} -c "$0" "$1"'
    process = subprocess.Popen(["/bin/sh", "-c", inherited, OF_PATIENT_RANKS, str(tmp_path)], cwd=ROOT)
    try:
        assert process.wait(60) == EXIT_STOPPED
    finally:
        process.kill()


@pytest.mark.nightly
def test_what_is_wrong_with_the_input_is_said_with_its_exit_code(run: RunDirectory) -> None:
    spec = run.path / "spec.json"
    value = json.loads(spec.read_text())
    value["data"][0]["id"] = "another"
    spec.write_text(json.dumps(value))
    done = subprocess.run([*LAUNCH, str(run.path)], capture_output=True, timeout=120, check=False)
    assert done.returncode == EXIT_BAD_INPUT
    assert lines(run)[-1]["failure"]["kind"] == "bad data"
    assert "is another data set than before" in lines(run)[-1]["failure"]["because"]


def test_more_ranks_than_gpus_are_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(BadInput, match=r"this run needs 8 GPUs \(needs.slots\), but this machine has 1"):
        Ranks(rank=1, count=8, local=1).device()


@pytest.mark.nightly
def test_torchrun_starts_it_too(tmp_path: Path) -> None:
    base = save_tiny(tmp_path / "sd2", "sd2")
    spec = scratch_spec(base, data_set(tmp_path), phases=(TrainingPhase(steps=3, resolution=16, batch_size=2),))
    run = lay_out(tmp_path / "run", spec, base)
    subprocess.run([*TORCHRUN, str(run.path)], check=True, timeout=240)
    assert (run.output / "unet" / "diffusion_pytorch_model.safetensors").exists()
