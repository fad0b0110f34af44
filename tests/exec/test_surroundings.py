"""What a command finds around it, and where `gangline exec` says that it cannot work."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from gangline.core.command.lineage import Begun
from gangline.core.command.surroundings import one_of_several, unsupported_system, wandb_settings
from tests.exec.conftest import GANGLINE, Line

ASK_WANDB = """
import sys, wandb
run = wandb.init(mode="offline", project="x", settings=wandb.Settings(silent=True))
print("wandb", run.id, run.settings.resume, flush=True)
run.finish()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path, str(tmp_path / "store"), dict(os.environ))


def told_by_wandb(line: Line, node: str, code: int) -> list[str]:
    running = line.start(node, command=(sys.executable, "-c", ASK_WANDB, str(code)))
    told = running.until("wandb ").split()[1:]
    running.end()
    return told


def test_all_runs_of_a_prefix_are_one_run_in_wandb(line: Line) -> None:
    first = told_by_wandb(line, "a", 1)
    assert first[1] == "allow"
    assert told_by_wandb(line, "b", 2) == first
    line.to += "-other"
    assert told_by_wandb(line, "c", 1) != first


def test_what_the_user_has_set_for_wandb_stays(line: Line) -> None:
    line.environment["WANDB_RUN_ID"] = "mine"
    assert told_by_wandb(line, "a", 1) == ["mine", "None"]


def test_a_sweep_and_a_resume_mode_of_the_users_own_stay() -> None:
    begun = {"000001": Begun(run="000001", origin=None, at_ms=5)}
    assert wandb_settings(begun, {"WANDB_SWEEP_ID": "s"}) == {}
    assert wandb_settings(begun, {"WANDB_RESUME": "never"}).keys() == {"WANDB_RUN_ID"}
    later = begun | {"000002": Begun(run="000002", origin=None, at_ms=9)}
    assert wandb_settings(begun, {}) == wandb_settings(later, {})


def test_words_of_a_command_that_are_no_utf_8_name_a_run_too() -> None:
    """What a checkpoint's record says of its command is made in the same way."""
    ids = {
        wandb_settings({"000001": Begun(run="000001", origin=None, command=("train", word))}, {})["WANDB_RUN_ID"]
        for word in ("\udcff", "\udcfe")
    }
    assert len(ids) == 2


TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "0"}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, ""),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ""),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "RANK": "0", "LOCAL_RANK": "0"}, "WORLD_SIZE=8"),
        (TORCHRUN, "WORLD_SIZE=16"),
        ({"LOCAL_RANK": "3"}, "LOCAL_RANK=3"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "WORLD_SIZE=2"),
        ({"NODE_RANK": "0"}, ""),
        ({"NODE_RANK": "1"}, "NODE_RANK=1"),
        ({"NNODES": "2", "NODE_RANK": "0"}, "NNODES=2"),
        ({"PET_NNODES": "4"}, "PET_NNODES=4"),
        ({"PET_NNODES": "1"}, ""),
        ({"SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0"}, ""),
        ({"SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "0"}, "SLURM_STEP_NUM_NODES=2"),
        ({"SLURM_JOB_NUM_NODES": "2"}, ""),
        ({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}, "SLURM_STEP_NUM_TASKS=4"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE=2"),
        ({"WORLD_SIZE": "8"}, ""),
        ({"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "0"}, "SKYPILOT_NUM_NODES=2"),
        ({"WORLD_SIZE": "many", "RANK": "²"}, ""),
    ],
)
def test_one_of_several_machines_or_processes_is_known_by_its_environment(
    environment: Mapping[str, str], said: str
) -> None:
    assert one_of_several(environment) == said


@pytest.mark.parametrize("node", ["0", "1"])
def test_several_machines_on_one_prefix_are_refused_before_anything_is_done(line: Line, node: str) -> None:
    line.environment |= {"NNODES": "2", "NODE_RANK": node}
    running = line.start("a", chain=(20,))
    assert running.end()[0] == 2
    assert (
        "gangline exec must be started once, on one machine, but NNODES=2 says that this is one of several"
        in running.text
    )
    assert "hint: " in running.text and "unset NNODES" in running.text
    assert not (line.root / "store").exists() and not (line.root / "a" / "out").exists()


@pytest.mark.parametrize(("platform", "named"), [("darwin", "macOS"), ("win32", "Windows"), ("freebsd14", "freebsd14")])
def test_a_system_that_lacks_what_exec_needs_is_named(platform: str, named: str) -> None:
    assert unsupported_system("linux") == "" and unsupported_system(platform) == named


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_on_another_system_a_sentence_comes_before_any_import_that_fails_there(tmp_path: Path, platform: str) -> None:
    """Without the modules and functions that this system has not, as far as Python can take them away."""
    program = f"""
import signal, sys, zoneinfo  # the libraries ask for the system when they are imported: it is another one after that
import pydantic.fields, rich.console, typer._adapters
from gangline.cli.main import main
sys.platform = {platform!r}
lacking = {{"fcntl", "termios", "pty", "resource"}} if {platform!r} == "win32" else set()

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name in lacking:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in lacking:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Lacking())
if lacking:
    del signal.SIGHUP
sys.argv = ["gangline", *sys.argv[1:]]
main()
"""
    words = ("exec", "--checkpoints", "out", "--to", "store", "--", "true")
    ran = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert "error: gangline exec needs Linux" in ran.stderr and "hint: " in ran.stderr and "Traceback" not in ran.stderr
    assert list(tmp_path.iterdir()) == []
    for words in (("--help",), ("exec", "--help"), ("exec", "ls", "nowhere")):
        ran = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in ran.stderr, ran.stderr


@pytest.mark.parametrize(
    ("address", "named"),
    [("gs://b/p", "Google Cloud Storage"), ("az://c/p", "Azure Blob Storage"), ("abfss://c@a/p", "Azure Blob Storage")],
)
@pytest.mark.parametrize("option", ["--to", "--data", "ls"])
def test_other_clouds_buckets_are_refused_by_name(line: Line, address: str, named: str, option: str) -> None:
    to, data = (address, ()) if option == "--to" else (line.to, ("--data", f"{address}:images"))
    words = ("ls", address) if option == "ls" else ("--checkpoints", "out", "--to", to, *data, "--", "true")
    ran = subprocess.run(
        [*GANGLINE, "exec", *words], cwd=line.root, env=line.environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert f"{address}" in ran.stderr and f"{named} is not supported" in ran.stderr and "hint: " in ran.stderr
