"""What the process that stands by proves of its machine: with real processes and the real libraries, some of them hidden."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gangline.adapters.host.trainer import process as trainer_process
from gangline.adapters.host.trainer.process import ProcessTrainer
from gangline.core.runs.proof import Proof
from gangline.core.specs.kinds import KINDS
from gangline.train.proof.cards import burst
from tests.service.conftest import JOIN, OPERATOR, Service
from tests.service.served import serving
from tests.waiting import a_moment, until

HIDING = """
import sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hiding())
"""
NO_TORCH = "torch is not installed: pip install 'gangline[train]'"
NO_LANCE = "lance is not installed: pip install 'gangline[data]'"
Hide = Callable[..., None]


@pytest.fixture
def hide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hide:
    """Make libraries unknown to every Python that starts from here on."""

    def hiding(*names: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(HIDING.format(hidden=names))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return hiding


def proof_of(trainer: ProcessTrainer) -> Proof:
    """Look again and again, as the agent does; pytest's time-out ends it."""
    while (proof := trainer.prove()) is None:
        a_moment()
    return proof


def prove(**options: str) -> Proof:
    trainer = ProcessTrainer(**options)
    proof = proof_of(trainer)
    assert trainer._standby
    trainer._standby.kill()
    return proof


def test_a_machine_without_torch_has_no_kind_and_says_what_to_install(hide: Hide) -> None:
    hide("torch")
    assert prove() == Proof(kinds=(), problems=dict.fromkeys(KINDS, NO_TORCH))


def test_a_machine_without_what_reads_data_sets_has_the_other_kinds_and_a_card_that_torch_cannot_use_is_named(
    hide: Hide,
) -> None:
    """Both in one process: it loads all libraries."""
    if torch.cuda.is_available():
        pytest.skip("torch can use the card here")
    hide("lance", "pyarrow")
    proof = prove(card="NVIDIA H100")
    assert proof.kinds == ("lora", "command", "caption", "sample")
    assert proof.problems["scratch"] == NO_LANCE
    said = f"torch {torch.__version__} cannot use the NVIDIA H100 that nvidia-smi shows: "
    assert proof.problems["card"].startswith(said)


def test_a_library_that_is_there_but_does_not_load_is_named_with_its_error(tmp_path: Path, hide: Hide) -> None:
    hide()
    (tmp_path / "torch.py").write_text("raise OSError('libcuda.so.1: cannot open shared object file')")
    sentence = "its libraries do not load: OSError: libcuda.so.1: cannot open shared object file"
    assert prove() == Proof(kinds=(), problems=dict.fromkeys(KINDS, sentence))


def test_a_library_that_kills_whoever_loads_it_is_a_problem_of_its_kinds(
    tmp_path: Path, hide: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide()
    monkeypatch.setattr(trainer_process, "MODULES", {})
    (tmp_path / "torch.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    sentence = "loading its libraries ends the process (signal 11)"
    assert prove() == Proof(kinds=(), problems=dict.fromkeys(KINDS, sentence))


def test_a_process_that_dies_before_it_says_anything_is_a_problem_of_the_node(tmp_path: Path, hide: Hide) -> None:
    hide()
    (tmp_path / "torch.py").write_text("import os; os._exit(3)")
    assert prove() == Proof(kinds=(), problems={"probe": "the process that loads the libraries died"})


def test_a_process_that_says_nothing_for_long_is_a_problem_of_the_node(
    tmp_path: Path, hide: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide()
    (tmp_path / "torch.py").write_text("import threading; threading.Event().wait()")
    monkeypatch.setattr(trainer_process, "PROOF_S_MAX", 0.0)
    trainer = ProcessTrainer()
    proof = proof_of(trainer)
    assert proof == Proof(kinds=(), problems={"probe": "the libraries did not load in 0 min"})
    assert trainer._standby and trainer._standby.process.wait() == -9


def test_a_machine_with_all_libraries_has_every_kind_and_who_proved_it_takes_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its libraries are not loaded once more."""
    (tmp_path / "small_trainer.py").write_text("import sys; print('torch' in sys.modules, flush=True)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    trainer = ProcessTrainer()
    assert proof_of(trainer) == Proof()
    standby = trainer._standby
    trainer.prepare()
    assert trainer._standby is standby
    monkeypatch.setattr(trainer_process, "MODULES", {"small": "small_trainer"})
    run = trainer.start("small", tmp_path)
    until(lambda: run.exit_code() is not None)
    assert standby and run._process is standby.process
    assert run.printed(0, 100) == b"True\n"
    assert trainer.prove() == Proof(), "it is looked at once"


def test_a_sound_processor_multiplies_as_it_should() -> None:
    found = burst(torch.device("cpu"), size=256, repeats_s=0)
    assert found.problem == "" and found.tflops > 0 and found.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("fault", "said"),
    [(lambda made: made * 1.1, "is off by 1.0e-01"), (lambda made: made * float("nan"), "is off by nan")],
)
def test_a_device_that_multiplies_otherwise_is_found(
    fault: Callable[[torch.Tensor], torch.Tensor], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = torch.Tensor.__matmul__

    def faulty(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        made = real(left, right)
        return made if made.dtype == torch.float64 else fault(made)

    monkeypatch.setattr(torch.Tensor, "__matmul__", faulty)
    assert said in burst(torch.device("cpu"), size=64, repeats_s=0).problem


def test_a_device_that_gives_another_result_each_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = torch.Tensor.__matmul__, iter(range(10**6))

    def unsteady(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        made = real(left, right)
        return made if made.dtype == torch.float64 else made * (1 + 1e-4 * next(count))

    monkeypatch.setattr(torch.Tensor, "__matmul__", unsteady)
    assert "differs between repetitions" in burst(torch.device("cpu"), size=64, repeats_s=0).problem


def gangline(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gangline.cli.main", *words]
    wide = os.environ | {"COLUMNS": "250"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=wide, stdin=subprocess.DEVNULL)


def test_a_worker_without_torch_says_so_and_ends_and_the_operator_sees_it_and_no_job_is_spent(
    service: Service, tmp_path: Path, hide: Hide
) -> None:
    job = service.submit()
    hide("torch")
    with serving(service.app) as served:
        where = ("--server", served.url, "--token")
        ended = gangline("worker", *where, JOIN, "--name", "bare", "--home", str(tmp_path / "home"))
        listed = gangline("nodes", "ls", *where, OPERATOR)
    assert ended.returncode == 2, ended.stderr
    assert f"error: this node failed its probe: {NO_TORCH}" in ended.stderr and "hint: " in ended.stderr
    assert "quarantined" in listed.stdout and "failed its probe: torch is not installed" in listed.stdout
    assert service.state(job) == "queued"
    assert service.look("SELECT id FROM attempt") == []
