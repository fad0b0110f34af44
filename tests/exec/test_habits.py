"""Scripts with habits of their own (tests.exec.habits), killed at the worst moment: what is torn is never gone on from."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from threading import Event

import pytest

from gangline.adapters.objects.s3 import S3Objects
from tests.exec.chain import state_after
from tests.exec.conftest import GANGLINE, Line
from tests.exec.habits import picture_of, read
from tests.exec.test_exec import records

HABITS = Path(__file__).parent / "habits.py"


def command(habit: str, steps: int, **options: object) -> tuple[str, ...]:
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return (sys.executable, str(HABITS), habit, "out", str(steps), *words)


def wait_for(path: Path, words: bytes) -> None:
    """Until they stand in a file; the test's time-out ends the wait."""
    while not path.exists() or words not in path.read_bytes():
        Event().wait(0.01)


def states_of(place: S3Objects, record: str) -> dict[str, str]:
    """What each file of a checkpoint in the store says of its step."""
    files = [file["path"] for file in json.loads(place.read(record))["manifest"]["files"]]
    return {path: read(path, place.read(f"{record.removesuffix('.json')}/{path}")) for path in files}


def test_a_torn_checkpoint_on_the_same_disk_is_not_gone_on_from(line: Line) -> None:
    """A folder is written over in its place, and everything is killed between weights and optimiser."""
    first = line.start("a", command=command("inplace", 40, step_s=0.2, between_s=1.5))
    first.until("last-state is safe")
    wait_for(line.root / "a/out/last-state/model.safetensors", b"20 ")
    first.kill()
    second = line.start("a", command=command("inplace", 40))
    assert second.end()[0] == 0, second.text
    assert "half-written" in second.text and "resumes from last-state in" in second.text
    assert line.result("a") == state_after(40)


@pytest.mark.tenths
def test_a_save_that_begins_before_the_last_one_settled_is_not_mixed_with_it(line: Line, place: S3Objects) -> None:
    """The next weights are there 0.2 s after the last file, and then nothing changes for longer than a checkpoint takes to settle."""
    running = line.start("a", command=command("inplace", 40, between_s=1.5), options=("--keep", 9))
    assert running.end()[0] == 0
    for record in records(place):
        assert len(set(states_of(place, record).values())) == 1, running.text


def fetched(line: Line, folder: str) -> dict[str, str]:
    """What `gangline fetch` brings of a folder, by its name."""
    to = line.root / "fetched"
    subprocess.run([*GANGLINE, "fetch", line.to, str(to)], env=line.environment, check=True, capture_output=True)
    return {path.name: path.read_text() for path in (to / folder).iterdir()}


EVERY_HABIT = ("late", "pairs", "toolkit", "plain", "latest", "shards", "trainer", "inplace")


@pytest.mark.tenths
@pytest.mark.parametrize("habit", EVERY_HABIT)
def test_each_habit_is_known_by_itself_and_goes_on_on_another_machine(line: Line, place: S3Objects, habit: str) -> None:
    words = command(habit, 100, every=20, step_s=0.15, between_s=1.5 if habit == "late" else 0.3)
    first = line.start("a", command=words)
    first.until("is safe", times=3 if habit == "late" else 2)  # the first one goes up again, with what came late
    first.kill()
    second = line.start("b", command=words)
    code, told = second.end()
    assert (code, line.result("b")) == (0, state_after(100)), first.text + second.text
    assert "from 0\n" not in f"{second.text}\n"
    steps = {each: json.loads(place.read(each))["step"] for each in records(place)}
    assert told["step"] in (100, None) and sorted(filter(None, steps.values())) in ([80, 100], [])
    for record in steps:
        assert len(set(states_of(place, record).values())) == 1


@pytest.mark.tenths
def test_the_whole_folder_is_taken_when_nothing_is_open(line: Line) -> None:
    words, options = command("odd", 100, every=20, step_s=0.15, between_s=0.3), ("--layout", "folder")
    first = line.start("a", command=words, options=options)
    first.until("is safe", times=2)
    first.kill()
    second = line.start("b", command=words, options=options)
    assert second.end()[0] == 0 and "from 0\n" not in f"{second.text}\n"
    assert line.result("b") == state_after(100)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(17))
def test_however_a_habit_is_killed_it_ends_as_if_nothing_had_been(line: Line, seed: int) -> None:
    """Seventeen runs with three kills each, by turns on the same machine and on another, wherever in a save."""
    rng = Random(seed)
    habit = [*EVERY_HABIT, "odd"][seed % (len(EVERY_HABIT) + 1)]
    options, nodes = ("--layout", "folder") if habit == "odd" else (), ["node-0"]
    words = command(habit, 100, every=10, step_s=0.1, between_s=rng.choice((0.0, 0.3, 1.3)))
    for number in range(3):
        running = line.start(nodes[-1], command=words, options=options)
        times = 2 if habit == "late" and number == 0 else 1  # of the very first nobody knows that something follows
        running.until("is safe" if number % 2 == 0 else "saves ", times=times)
        Event().wait(rng.uniform(0, 2.0))
        running.kill()
        nodes.append(rng.choice((nodes[-1], f"node-{number + 1}")))
    last = line.start(nodes[-1], command=words, options=options)
    assert last.end()[0] == 0, last.text
    assert line.result(nodes[-1]) == state_after(100)
    pictures = fetched(line, "pictures")
    assert all(content == picture_of(int(Path(name).stem)) for name, content in pictures.items())
    if len(set(nodes)) == 1:  # a machine that vanishes may take the last seconds' with it
        assert len(pictures) == 10
    assert not any(word in each.text for each in line.started for word in ("TORN", "cannot resume", "no ema.pt"))


def test_a_training_whose_state_nobody_knows_is_told_so_within_seconds_and_at_the_next_start(line: Line) -> None:
    words = command("odd", 400, every=10, step_s=0.05)
    first = line.start("a", command=words)
    assert "--complete-when 'net/state.pkl'" in first.until("net/state.pkl looks like training state")
    first.signal(signal.SIGTERM)
    code, told = first.end()
    assert code == 75 and told["checkpoints"] == 0
    for node in ("a", "b"):  # on that disk, and where only what went up at the stop is known
        second = line.start(node, command=words)
        assert "--layout folder" in second.until("left no recognised checkpoint, but it left net/state.pkl")
        second.signal(signal.SIGTERM)
        second.end()
