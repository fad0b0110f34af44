"""The script of examples/stock_script, which knows nothing of Gangline, over a real S3 server: killed twice, then finished."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from gangline.adapters.objects.s3 import S3Objects
from gangline.posix import descendants
from tests.conftest import BASE, ROOT, SUBJECT
from tests.exec.conftest import Line, Running
from tests.processes import words_of

STEPS = 80
SCRIPT = ROOT / "examples" / "stock_script" / "train.py"
OPTIONS = "--output_dir out --checkpointing_steps 10 --train_batch_size 4 --resume_from_checkpoint latest"
WHAT = ("--base", BASE, "--photos", SUBJECT, "--prompt", "sks cat face, fluent emoji", "--max_train_steps", STEPS)
WORDS = [sys.executable, str(SCRIPT), *map(str, WHAT), *OPTIONS.split()]


def losses(said: list[str]) -> dict[int, float]:
    found = (json.loads(line) for line in said if line.startswith('{"step"'))
    return {each["step"]: each["loss"] for each in found}


def program_of(running: Running) -> int:
    for pid in descendants(running.process.pid):
        if SCRIPT.name in words_of(pid) and "keeper" not in words_of(pid):
            return pid
    raise AssertionError("it does not run")


@pytest.mark.tenths
@pytest.mark.timeout(300)
def test_its_losses_continue_where_they_stopped(line: Line, place: S3Objects, tmp_path: Path) -> None:
    command = tuple(WORDS)
    first = line.start("a", command=command)
    first.until("checkpoint-10 is safe")
    first.kill()
    second = line.start("b", command=command)
    second.until("checkpoint-40 is safe")
    os.kill(program_of(second), signal.SIGKILL)
    assert second.end()[0] == 137
    third = line.start("c", command=command)
    code, told = third.end()
    assert (code, told["runs"]) == (0, 3), third.text
    seen = [losses(running.said) for running in (first, second, third)]
    begins = [min(each) for each in seen]
    assert begins[0] == 1 and begins[1] >= 11 and begins[2] >= 41
    assert all((begin - 1) % 10 == 0 for begin in begins)

    alone = tmp_path / "alone"
    alone.mkdir()
    quiet = subprocess.run(WORDS, cwd=alone, check=True, capture_output=True, text=True)
    uninterrupted = losses(quiet.stdout.splitlines())
    assert len(uninterrupted) == STEPS
    for each in seen:
        assert each == {step: pytest.approx(uninterrupted[step], abs=2e-5) for step in each}
    ours = load_file(line.root / "c" / "out" / "pytorch_lora_weights.safetensors")
    theirs = load_file(alone / "out" / "pytorch_lora_weights.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(abs(ours[name] - theirs[name]).max() < 1e-5 for name in ours)
    assert "runs/000003/output/pytorch_lora_weights.safetensors" in set(place.list("runs/000003/output"))
