"""Folders of checkpoints and results that `gangline exec` knows, as a command's job finds them."""

from pathlib import Path

import pytest

from tests.exec.epochs import model_of, picture_of
from tests.exec.habits import read
from tests.exec.test_command_job import HERE, Make, habit, line

__all__ = ["line"]
EPOCHS = 6
TWO_NAMES = """
import shutil, sys, time
from pathlib import Path
from threading import Event
from chain import save
Path("output").mkdir(exist_ok=True)
print("has", sorted(path.name for path in Path("output").iterdir()), flush=True)
if len(sys.argv) > 1:
    sys.exit()
save(Path("output/checkpoint-5"), 5, "five", 50_000, Event())
shutil.copytree("output/checkpoint-5", "output/coming")
Path("output/coming").rename("output/latest")
time.sleep(60)
"""


@pytest.mark.tenths
def test_a_save_that_begins_before_the_last_one_settled_is_not_mixed_with_it(line: Make) -> None:
    """The next weights are there 0.2 s after the last file, and then nothing changes for longer than a checkpoint takes to settle."""
    started = line(*habit("inplace", 40, between_s=1.5)).start()
    started.succeed()
    assert started.shipped
    for step in started.arrived.iterdir():
        files = [path for path in step.rglob("last-state/*") if path.is_file()]
        assert files and len({read(path.name, path.read_bytes()) for path in files}) == 1, started.text


def test_a_script_that_saves_each_state_under_two_names_goes_on_from_the_second(line: Make) -> None:
    job = line("-c", TWO_NAMES)
    first = job.start()
    records = "*/store/runs/*/checkpoints/*.json"  # the second one refers to the bytes of the first
    first.until(lambda: any('"latest' in path.read_text() for path in first.arrived.glob(records)))
    first.kill()
    job.spec["command"] = [*job.spec["command"], "again"]
    second = job.start()
    second.succeed()
    assert "has ['latest']" in second.text


def test_models_and_pictures_of_all_nodes_are_in_the_result(line: Make) -> None:
    job = line("epochs.py", "output", EPOCHS, "--pause-at", 3, "--resume", "{checkpoint}")
    job.code = (HERE / "epochs.py",)
    first = job.start()
    first.until_said("paused")
    first.until(lambda: any(path.name == "timber-000003-state" for path in first.arrived.rglob("*")))
    first.kill()
    job.spec["command"] = ["python", "epochs.py", "output", str(EPOCHS), "--resume", "{checkpoint}"]
    second = job.start()
    found = second.succeed()
    assert "from epoch 3" in second.text
    known = {name: content for name, content in found.items() if not name.startswith("events.")}
    models = {f"timber-{epoch:06d}.safetensors": model_of(epoch) for epoch in range(1, EPOCHS + 1)}
    pictures = {f"sample/{epoch:06d}.png": picture_of(epoch) for epoch in range(1, EPOCHS + 1)}
    assert known == models | pictures
    assert sorted(content for name, content in found.items() if name not in known)[-1].endswith(b"epoch 6\n")


def test_a_training_whose_state_nobody_knows_is_told_so(line: Make) -> None:
    started = line(*habit("odd", 400, every=10, step_s=0.05)).start()
    started.until_said("net/state.pkl looks like training state")
    assert "--complete-when 'net/state.pkl'" in started.text or "--layout folder" in started.text
    assert not Path(started.arrived).exists()
