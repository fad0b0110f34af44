"""Where memory runs out: what is computed then is what was to be computed, on any number of ranks, and nobody hangs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gangline.core.runs.contract import EXIT_FAILED, EXIT_STOPPED
from gangline.core.specs.fields import Needs
from gangline.core.specs.phases import TrainingPhase
from gangline.data.dataset import DataSet
from gangline.train.checkpoints.limits import NOTE
from gangline.train.run.contract import RunDirectory
from tests.train.bases import save_tiny
from tests.train.sets import data_set, lay_out, lines, report_of, run_at, scratch_spec

LAUNCH = [sys.executable, "-m", "gangline.train.scratch.launch"]
FAULTS = Path(__file__).parent / "faults"
FITS = 2
"""So many samples at a time do; each of two ranks has four of a step."""
STEPS = 4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "sd2", "sd2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSet:
    return data_set(tmp_path_factory.mktemp("data"))


def laid_out(
    folder: Path, base: Path, data: DataSet, *, microbatch: int | None = None, **settings: Any
) -> RunDirectory:
    phases = (TrainingPhase(steps=STEPS, resolution=16, batch_size=8, microbatch=microbatch),)
    values = {"checkpoint_every_steps": 1, "needs": Needs(slots=2)} | settings
    return lay_out(folder, scratch_spec(base, data, phases=phases, **values), base)


@pytest.fixture(scope="module")
def peaceful(tmp_path_factory: pytest.TempPathFactory, base: Path, data: DataSet) -> dict[str, RunDirectory]:
    """Two ranks that were told how many samples fit."""
    found = {}
    for parallel in ("ddp", "fsdp"):
        folder = tmp_path_factory.mktemp(parallel) / "run"
        found[parallel] = run_at(laid_out(folder, base, data, microbatch=FITS, parallel=parallel), ranks=2)
    return found


def faulty(command: list[str], **fault: Any) -> "subprocess.Popen[str]":
    """Started, with a made-up fault in its processes."""
    told = {"kind": "memory", "where": "forward", "ranks": [0, 1], "samples": FITS, "passes": 0} | fault
    environment = os.environ | {"PYTHONPATH": str(FAULTS), "GANGLINE_FAULT": json.dumps(told)}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Its exit code, and what it said."""
    _, said = process.communicate(timeout=180)
    return process.returncode, said


def launched(run: RunDirectory, **fault: Any) -> tuple[int, str]:
    """By the real launcher, in real processes."""
    return ended(faulty([*LAUNCH, str(run.path)], **fault))


def failures(run: RunDirectory) -> list[dict[str, str]]:
    return [line["failure"] for line in lines(run) if "failure" in line]


def norms(run: RunDirectory) -> dict[int, float]:
    """Of each step, as it was computed last."""
    return {line["step"]: line["metrics"]["gradient_norm"] for line in lines(run) if line.get("metrics")}


BOTH, ONE = [0, 1], [1]


@pytest.mark.tenths
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
@pytest.mark.parametrize("ranks", [BOTH, ONE])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_ranks_without_memory_for_a_microbatch_learn_what_they_would_have_with_the_one_that_fits(
    tmp_path: Path,
    base: Path,
    data: DataSet,
    peaceful: dict[str, RunDirectory],
    where: str,
    ranks: list[int],
    parallel: str,
) -> None:
    run = laid_out(tmp_path / "run", base, data, parallel=parallel)
    code, said = launched(run, where=where, ranks=ranks)
    assert code == 0, said[-3000:]
    assert report_of(run) == report_of(peaceful[parallel])
    assert report_of(run)["exact"] is True and report_of(run)["fingerprint"]["microbatch"] == str(FITS)
    assert norms(run) == norms(peaceful[parallel])
    assert list(norms(run)) == list(range(1, STEPS + 1)) and all(norms(run).values())
    assert "restarting with 2 samples at a time in phases.0\n" in said
    assert not failures(run)


@pytest.mark.tenths
def test_ranks_whose_memory_runs_out_later_go_on_from_the_newest_checkpoint_and_say_that_the_bits_are_others(
    tmp_path: Path, base: Path, data: DataSet, peaceful: dict[str, RunDirectory]
) -> None:
    run = laid_out(tmp_path / "run", base, data)
    passes_before = 3  # one is to find whether they fit, then come two steps; the second saves once the first is saved
    code, said = launched(run, where="backward", ranks=ONE, passes=passes_before)
    assert code == 0, said[-3000:]
    assert "no longer exact to the bit: microbatch 4 → 2" in said
    steps = [line["step"] for line in lines(run) if line.get("metrics")]
    assert steps in ([1, 2, 3, 4], [1, 2, 2, 3, 4])
    assert report_of(run)["exact"] is False and report_of(run)["fingerprint"]["microbatch"] == str(FITS)
    assert norms(run) == pytest.approx(norms(peaceful["ddp"]), rel=1e-3)


def test_a_notice_that_comes_while_ranks_are_started_again_is_not_lost(
    tmp_path: Path, base: Path, data: DataSet
) -> None:
    run = laid_out(tmp_path / "run", base, data)
    process = faulty([*LAUNCH, str(run.path)])
    while not (run.path / NOTE).exists():
        assert process.poll() is None
        Event().wait(0.005)
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == EXIT_STOPPED, said[-3000:]
    assert not failures(run)


@pytest.mark.nightly
def test_ranks_without_memory_for_one_sample_say_what_to_do(tmp_path: Path, base: Path, data: DataSet) -> None:
    run = laid_out(tmp_path / "run", base, data)
    code, said = launched(run, samples=0, ranks=ONE)
    assert code == EXIT_FAILED
    assert [words for words in said.splitlines() if "restarting" in words] == [
        f"out of memory: restarting with {count} samples at a time in phases.0" for count in (2, 1)
    ]
    (failure,) = failures(run)
    assert failure["kind"] == "out of memory"
    assert failure["because"].startswith(
        "one sample of 16 pixels at a time does not fit into this GPU's memory: set grad"
    )


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.nightly)])
def test_what_ends_one_rank_is_the_failure_of_the_run_and_not_that_another_one_ended(
    tmp_path: Path, base: Path, data: DataSet, rank: int
) -> None:
    run = laid_out(tmp_path / "run", base, data)
    code, said = launched(run, kind="other", ranks=[rank], passes=2)
    assert code == EXIT_FAILED
    assert failures(run) == [{"kind": "crashed", "because": "this fault was made up"}]
    assert "restarting" not in said


@pytest.mark.nightly
def test_torchrun_starts_ranks_again_where_it_is_told_to(
    tmp_path: Path, base: Path, data: DataSet, peaceful: dict[str, RunDirectory]
) -> None:
    run = laid_out(tmp_path / "run", base, data)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=1"]
    code, said = ended(faulty([*torchrun, "-m", "gangline.train.scratch", str(run.path)], where="backward", ranks=ONE))
    assert code == 0, said[-3000:]
    assert report_of(run) == report_of(peaceful["ddp"])
