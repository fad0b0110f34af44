"""A command as a job: what `gangline exec` promises of a command holds on nodes that vanish, too."""

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Event

import pytest

from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_STOPPED
from gangline.exec.job.packing import REST, pack_rest
from tests.exec.as_job import CommandLine
from tests.exec.chain import state_after
from tests.exec.conftest import GANGLINE
from tests.exec.habits import picture_of
from tests.exec.test_habits import EVERY_HABIT
from tests.processes import is_running

HERE = Path(__file__).parent
CODE = (HERE / "chain.py", HERE / "habits.py")
OWN_REPORT = """
import pathlib
pathlib.Path("progress.jsonl").write_text('{"step": 7, "loss": 0.25, "lr": 1e-4}\\n')
time.sleep(1)
"""
Make = Callable[..., CommandLine]


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Make]:
    made: list[CommandLine] = []

    def make(*command: object, **spec: object) -> CommandLine:
        made.append(CommandLine(tmp_path, {"command": ["python", *map(str, command)]} | spec, CODE))
        return made[-1]

    yield make
    for each in made:
        for started in each.started:
            started.kill()


def chain(*options: object) -> tuple[object, ...]:
    return ("chain.py", "output", *options)


def habit(name: str, steps: int, **options: object) -> tuple[object, ...]:
    words = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
    return ("habits.py", name, "output", steps, *words)


def test_what_was_killed_goes_on_at_another_node_and_ends_as_if_nothing_had_been(line: Make) -> None:
    job = line(*chain(60, "--every", 10, "--step-s", 0.05))
    first = job.start()
    first.until_saved(2)
    first.kill()
    second = job.start()
    second.until_saved(2)
    second.kill()
    third = job.start()
    assert third.succeed() == {"result.txt": state_after(60).encode()}
    assert "from 20\n" in second.text and "run 3 resumes from checkpoint-" in third.text
    steps = [step for each in job.started for step in each.shipped]
    assert steps == sorted(set(steps)) and steps[-1] == 60


@pytest.mark.tenths
@pytest.mark.parametrize("name", EVERY_HABIT)
def test_each_habit_is_known_by_itself_and_goes_on_at_another_node(line: Make, name: str) -> None:
    job = line(*habit(name, 100, every=20, step_s=0.15, between_s=1.5 if name == "late" else 0.3))
    first = job.start()
    first.until_saved(3 if name == "late" else 2)
    first.kill()
    second = job.start()
    results = second.succeed()
    assert results["result.txt"] == state_after(100).encode(), first.text + second.text
    assert "from 0\n" not in second.text


@pytest.mark.tenths
def test_the_whole_folder_is_taken_when_nothing_is_open(line: Make) -> None:
    job = line(*habit("odd", 100, every=20, step_s=0.15, between_s=0.3), layout="folder")
    first = job.start()
    first.until_saved(2)
    first.kill()
    assert job.start().succeed()["checkpoint/result.txt"] == state_after(100).encode()


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(17))
def test_however_it_is_killed_it_ends_as_if_nothing_had_been(line: Make, seed: int) -> None:
    rng = Random(seed)
    name = [*EVERY_HABIT, "odd"][seed % (len(EVERY_HABIT) + 1)]
    layout = {"layout": "folder"} if name == "odd" else {}
    job = line(*habit(name, 100, every=10, step_s=0.1, between_s=rng.choice((0.0, 0.3, 1.3))), **layout)
    for number in range(3):
        started = job.start()
        times = 2 if name == "late" and number == 0 else 1
        started.until_saved(times) if number % 2 == 0 else started.until_said("saves ")
        started.run_for(rng.uniform(0, 2.0))
        started.kill()
    results = job.start().succeed()
    assert results["checkpoint/" * (name == "odd") + "result.txt"] == state_after(100).encode()
    pictures = {path: content for path, content in results.items() if path.startswith("pictures/")}
    assert pictures == {path: picture_of(int(Path(path).stem)).encode() for path in pictures}
    assert len(pictures) == 10, "results of all attempts are there: each checkpoint has those before it"
    assert not any(word in each.text for each in job.started for word in ("TORN", "cannot resume", "no ema.pt"))


LARGE = 20_000_000
WRITES = f"""
import pathlib
pathlib.Path("output").mkdir(exist_ok=True)
pathlib.Path("output/model.bin").write_bytes(bytes({LARGE}))
"""


def test_a_result_takes_its_size_on_the_disk_once(line: Make) -> None:
    started = line("-c", WRITES).start()
    assert len(started.succeed()["model.bin"]) == LARGE
    files = {path.stat().st_ino: path.stat().st_size for path in started.run.directory.rglob("*") if path.is_file()}
    assert LARGE <= sum(files.values()) < 1.1 * LARGE


def test_on_sigterm_it_saves_and_another_node_goes_on_from_there(line: Make) -> None:
    job = line(*chain(2000, "--every", 1000, "--step-s", 0.02, "--save-on-term"))
    first = job.start()
    first.until_said("from 0")
    Event().wait(0.3)
    first.run.ask_to_stop()
    assert first.end() == EXIT_STOPPED, first.text
    assert len(first.shipped) == 1
    second = job.start()
    second.until_said(f"from {first.shipped[0]}\n")
    second.kill()


def test_a_command_that_does_not_stop_is_killed_after_its_grace(line: Make) -> None:
    stays = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(600)"
    )
    started = line("-c", stays, grace_s=0.5).start()
    started.until_said("here")
    started.run.ask_to_stop()
    assert started.end() == EXIT_STOPPED, started.text


@pytest.mark.parametrize(
    ("script", "because"),
    [
        ("print('so far'); raise SystemExit(3)", "the command ended with exit code 3; its last output: so far"),
        ("import os; os.kill(os.getpid(), 11)", "the command ended with exit code 139; its last output: nothing"),
        ("raise SystemExit(75)", "the command ended with exit code 75; its last output: nothing"),
    ],
)
def test_a_command_that_fails_is_a_failure_with_its_last_words(line: Make, script: str, because: str) -> None:
    started = line("-c", script).start()
    assert started.end() == EXIT_FAILED
    assert started.failure == because


def test_a_program_that_is_not_there_is_bad_input(line: Make) -> None:
    job = line()
    job.spec["command"] = ["no-such-program", "train.py"]
    started = job.start()
    assert started.end() == EXIT_BAD_INPUT
    assert started.failure == "the command no-such-program was not found (check that it is installed, and in PATH)"


def test_python_is_the_interpreter_that_the_job_names_and_programs_beside_it_come_first(
    line: Make, tmp_path: Path
) -> None:
    beside = tmp_path / "another place"
    beside.mkdir()
    for name, says in {"snake3.12": "another interpreter", "launch": "its launcher"}.items():
        (beside / name).write_text(f'#!/bin/sh\necho {says}: "$@"\n')
        (beside / name).chmod(0o755)
    python = str(beside / "snake3.12")
    job = line(python=python)
    job.spec["command"] = ["sh", "-c", "python a b; python3 c; launch"]
    job = job.start()
    assert job.end() == EXIT_DONE
    assert "another interpreter: a b\nanother interpreter: c\nits launcher:" in job.text


def test_an_interpreter_that_is_not_there_is_bad_input(line: Make) -> None:
    job = line("-c", "pass", python="/nowhere/python3.12").start()
    assert job.end() == EXIT_BAD_INPUT
    assert job.failure == "there is no /nowhere/python3.12 that a run of this node can start (--python)"


def test_one_that_wants_the_network_without_saying_so_is_told_how(line: Make) -> None:
    script = "raise SystemExit('[Errno -3] Temporary failure in name resolution')"
    started = line("-c", script).start()
    assert started.end() == EXIT_FAILED
    assert "it may have wanted the network, which it has only where it was submitted with --network" in started.failure
    asked = line("-c", script, network=True)
    asked.started = [*asked.started, started]  # its own directory
    again = asked.start()
    assert again.end() == EXIT_FAILED and "--network" not in again.failure


def test_one_that_gives_no_sign_of_life_is_ended(line: Make) -> None:
    started = line("-c", "import time; time.sleep(600)", silent_s=0.5, grace_s=0.1).start()
    assert started.end() == EXIT_FAILED
    assert started.failure == "the command has neither printed nor saved anything for 0 min: it hangs"


def test_nothing_that_it_started_outlives_it(line: Make, tmp_path: Path) -> None:
    forks = """
import os, pathlib, time
if os.fork() == 0:
    os.setsid()
    pathlib.Path("../child").write_text(str(os.getpid()))
    time.sleep(600)
while not pathlib.Path("../child").exists():
    time.sleep(0.01)
"""
    started = line("-c", forks).start()
    assert started.succeed() == {"finished.txt": b"The command ended with exit code 0 and left no files.\n"}
    child = int((started.run.directory / "child").read_text())
    assert not is_running(child)


def test_a_checkpoint_that_the_script_deletes_at_once_is_not_missed(line: Make) -> None:
    job = line(*chain(30, "--every", 10, "--step-s", 0.05, "--keep", 1))
    first = job.start()
    first.until_saved(2)
    first.kill()
    assert job.start().succeed()["result.txt"] == state_after(30).encode()


def test_the_path_of_the_checkpoint_stands_where_the_command_says(line: Make) -> None:
    script = """
import pathlib, sys, time
print("resume:", sys.argv[1:], flush=True)
for step in (1, 2):
    pathlib.Path("output/model_%d.pt.tmp" % step).write_bytes(b"")
"""
    job = line("-c", script, "--resume", "{checkpoint}")
    started = job.start()
    started.succeed()
    assert "resume: []" in started.text


@pytest.mark.tenths
def test_results_of_all_attempts_and_those_elsewhere_are_there(line: Make) -> None:
    script = """
import pathlib, sys, time, json, zipfile
steps = sorted(int(p.name.split("-")[1]) for p in pathlib.Path("output").glob("checkpoint-*")) if pathlib.Path("output").exists() else []
begin = steps[-1] if steps else 0
pathlib.Path("elsewhere").mkdir(exist_ok=True)
for step in range(begin + 1, 5):
    pathlib.Path("output").mkdir(exist_ok=True)
    pathlib.Path(f"output/epoch-{step}.txt").write_text(f"made after {begin}")
    pathlib.Path(f"elsewhere/{step}.log").write_text(f"made after {begin}")
    time.sleep(1.5)
    place = pathlib.Path(f"output/checkpoint-{step}")
    place.mkdir()
    for name in ("pytorch_model.bin", "optimizer.bin"):
        with zipfile.ZipFile(place / name, "w") as file:
            file.writestr("state", str(step))
    (place / "random_states_0.pkl").write_bytes(b"\\x80state.")
    print("step", step, flush=True)
    time.sleep(1.0)
"""
    job = line("-c", script, results=["elsewhere"])
    first = job.start()
    first.until_saved(2)
    first.kill()
    results = job.start().succeed()
    assert {path for path in results if path.startswith("epoch")} == {f"epoch-{step}.txt" for step in range(1, 5)}
    assert results["epoch-1.txt"] == b"made after 0" and results["epoch-4.txt"] == b"made after 2"
    assert {f"elsewhere/{step}.log" for step in range(1, 5)} <= results.keys()


def test_of_many_results_the_smallest_are_packed(line: Make) -> None:
    script = """
import pathlib
for number in range(1005):
    place = pathlib.Path("output", str(number % 7), f"{number}.txt")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("x" * number)
"""
    started = line("-c", script).start()
    results = started.succeed()
    assert len(results) == 1000
    with tarfile.open(fileobj=io.BytesIO(results.pop("other_files.tar"))) as archive:
        packed = {each.name: archive.extractfile(each) for each in archive}
        assert sorted(packed) == [f"{number}/{number}.txt" for number in range(6)]
        assert [len(file.read()) for file in packed.values() if file] == list(range(6))
    assert len(results.keys() | packed.keys()) == 1005
    assert "gangline: 6 of its results are in other_files.tar: a job may have 1,000 files" in started.text


def test_a_result_that_has_the_archives_name_stays_beside_it(tmp_path: Path) -> None:
    for name in ("a", "b", "c", REST):
        (tmp_path / "output").mkdir(exist_ok=True)
        (tmp_path / "output" / name).write_text("x" * 9 if name == REST else "x")
    assert pack_rest(tmp_path / "output", 2) == (3, "other_files_2.tar")
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == [REST, "other_files_2.tar"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output"]


def test_a_secret_in_pieces_is_masked_although_the_other_stream_writes_between(line: Make) -> None:
    """As the agent does, the values are on standard input."""
    script = """
import os, sys, time
value = os.environ["HF_TOKEN"]
for piece, stream in ((value[:9], sys.stdout), (" 37%|bar", sys.stderr), (value[9:], sys.stdout)):
    print(piece, end="", file=stream, flush=True)
    time.sleep(0.3)
print(flush=True)
"""
    job = line("-c", script, secrets=["HF_TOKEN"])
    job.told = {"secrets": {"HF_TOKEN": "hf_SECRET1234abcdef"}}
    started = job.start()
    started.succeed()
    assert "***" in started.text and "SECRET" not in started.text and "1234" not in started.text


def test_where_the_checkpoint_is_all_that_it_left_it_is_the_result(line: Make) -> None:
    job = line(*chain(10, "--every", 10))
    job.spec["command"] = ["sh", "-c", "python chain.py output 10 --every 10 && rm output/result.txt"]
    results = job.start().succeed()
    assert {path.split("/")[0] for path in results} == {"checkpoint"}


@pytest.mark.parametrize(
    ("prints", "step", "loss"),
    [
        ("print('\\r 37%|███▋      | 148/400 [01:02<01:46,  2.36it/s, loss=0.0831]', flush=True)", 148, 0.0831),
        ("print('step 12/40  loss: 0.5', flush=True)", 12, 0.5),
        (
            OWN_REPORT,
            7,
            0.25,
        ),
    ],
)
def test_its_steps_are_found_in_what_it_prints_or_reports(line: Make, prints: str, step: int, loss: float) -> None:
    started = line("-c", f"import time\n{prints}\ntime.sleep(0.5)").start()
    started.succeed()
    progress = started.run.progress()
    assert (progress.step, progress.loss) == (step, loss)


def test_its_environment_is_the_nodes_own_with_what_the_job_sets(line: Make) -> None:
    script = (
        "import os, sys, json; print(json.dumps([os.environ.get('LR'), os.getcwd(), os.environ.get('HF_HUB_OFFLINE')]))"
    )
    started = line("-c", script, environment=["LR=1e-4"]).start()
    started.succeed()
    (said,) = [json.loads(each) for each in started.text.splitlines() if each.startswith("[")]
    assert said == ["1e-4", str(started.run.directory / "work"), None]


def test_a_signal_to_save_or_to_render_ends_no_command(line: Make) -> None:
    job = line(*chain(20, "--every", 10, "--step-s", 0.05))
    started = job.start()
    started.until_said("from 0")
    started.run.ask_to_save()
    started.run.ask_to_render()
    assert started.succeed()["result.txt"] == state_after(20).encode()


@pytest.mark.tenths
def test_pictures_that_it_leaves_are_shown_once_each_while_it_runs_and_are_results(line: Make) -> None:
    script = """
import pathlib, time
pathlib.Path("output/samples").mkdir(parents=True)
for step in (1, 2):
    pathlib.Path(f"output/samples/{step}.png").write_bytes(b"a picture of step %d" % step)
    print("step", step, flush=True)
    time.sleep(14)
"""
    started = line("-c", script).start()
    started.until(lambda: len(started.run.pictures()) > 0)
    assert started.run.exit_code() is None
    (first,) = started.run.pictures()
    assert {file.path.split("/", 1)[1] for file in first.files} == {"samples/1.png", "samples.json"}
    results = started.succeed()
    assert results == {f"samples/{step}.png": b"a picture of step %d" % step for step in (1, 2)}
    shown = [file.path.split("/", 1)[1] for each in started.run.pictures() for file in each.files]
    assert sorted(shown) == ["samples.json", "samples.json", "samples/1.png", "samples/2.png"]


@pytest.mark.tenths
def test_verify_resume_interrupts_a_commands_job_and_leaves_what_it_was_given(tmp_path: Path) -> None:
    code = tmp_path / "inputs" / "code"
    code.mkdir(parents=True)
    shutil.copy(HERE / "chain.py", code)
    command = ["python", "chain.py", "output", "60", "--every", "5", "--step-s", "0.05"]
    (tmp_path / "spec.json").write_text(json.dumps({"kind": "command", "command": command}))
    done = subprocess.run(
        [*GANGLINE, "verify-resume", "--spec", str(tmp_path / "spec.json"), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["equal"] and all(each["resumed_from"] > 0 for each in found["outcomes"])
    assert [path.name for path in code.iterdir()] == ["chain.py"]
