"""A checkpoint that a library has written is complete; one of which any byte lacks is not."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.host.script.command import KeptCommand
from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.core.command.candidate import CheckpointCandidate, SeenFile
from gangline.core.command.layout import (
    LAYOUTS,
    Rules,
    is_candidate,
    is_result,
    lacks,
    layout_of,
    script_of,
)
from gangline.core.command.step import step_of
from gangline.core.command.version import MAY_COME, UNTOUCHED
from gangline.core.errors import Damaged
from tests.exec.conftest import results_in
from tests.exec.written import WRITERS

FAR_S = 1e9


@pytest.fixture(scope="module", params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, Path]:
    """The layout, the step and the place of a checkpoint."""
    layout, step, write = WRITERS[request.param]
    folder = tmp_path_factory.mktemp("written")
    return layout, step, folder / write(folder)


def look(place: Path, *, settled: bool = True) -> CheckpointCandidate:
    """As it is on the disk; settled or just now."""
    workspace = LocalWorkspace(place.parent, Rules())
    try:
        (found,) = [each for each in workspace.look(0.0, ended=settled) if each.name == place.name]
    finally:
        workspace.close()
    return found


def test_it_is_complete_and_tells_its_layout_and_its_step(written: tuple[str, int, Path]) -> None:
    layout, step, place = written
    candidate = look(place)
    for rules in (Rules(), Rules(layout=layout)):  # type: ignore[arg-type]
        assert is_candidate(rules, place.name, folder=place.is_dir())
        assert (lacks(rules, candidate), layout_of(rules, candidate), step_of(candidate)) == ("", layout, step)


def in_order(place: Path) -> list[Path]:
    paths = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else [place]
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def moments(place: Path) -> Iterator[dict[str, bytes]]:
    """What lies there while it is written: whole files, and one that was cut."""
    here = dict[str, bytes]()
    for path in in_order(place):
        name, content = path.relative_to(place.parent).as_posix(), path.read_bytes()
        for cut in sorted({0, 1, len(content) // 2, len(content.rstrip()) - 1}):
            yield here | {name: content[:cut]}
        here[name] = content
        yield dict(here)


def as_candidate(place: Path, here: dict[str, bytes], below: Path, *, settled: bool) -> CheckpointCandidate:
    shutil.rmtree(below, ignore_errors=True)
    for name, content in here.items():
        (below / name).parent.mkdir(parents=True, exist_ok=True)
        (below / name).write_bytes(content)
    return look(below / place.name, settled=settled)


@pytest.mark.parametrize("settled", [False, True])
def test_at_no_moment_of_its_writing_is_it_complete_but_at_the_end(
    written: tuple[str, int, Path], tmp_path: Path, settled: bool
) -> None:
    """Where the script may add objects of its own after the library's files, only a folder that is left alone is complete."""
    layout, _, place = written
    *before, last = moments(place)
    below = tmp_path / "written"
    said = [lacks(Rules(), as_candidate(place, here, below, settled=settled)) for here in before]
    added = [here for here in before if settled and random_states(place) in here and here.keys() != last.keys()]
    early = [here.keys() for here, lack in zip(before, said, strict=True) if not lack and here not in added]
    assert early == []
    assert bool(lacks(Rules(), as_candidate(place, last, below, settled=settled))) == (
        not settled and layout in ("accelerate", "kohya")
    )


def random_states(place: Path) -> str:
    return f"{place.name}/random_states_0.pkl"


def test_no_file_of_it_can_lack_that_it_cannot_be_resumed_without(
    written: tuple[str, int, Path], tmp_path: Path
) -> None:
    """Deleted one at a time: what may lack is what no library promises."""
    layout, _, place = written
    here = {path.relative_to(place.parent).as_posix(): path.read_bytes() for path in in_order(place)}
    needless = set[str]()
    for name in here if len(here) > 1 else ():
        without = {other: content for other, content in here.items() if other != name}
        if not lacks(Rules(layout=layout), as_candidate(place, without, tmp_path / "written", settled=True)):  # type: ignore[arg-type]
            needless.add(name.removeprefix(f"{place.name}/"))
    assert not needless & {
        "random_states_0.pkl",
        "trainer_state.json",
        "rng_state.pth",
        "manifest.json",
        "optimizer.pt",
    }
    assert not any(
        "-of-" in name or name.endswith("optimizer.bin") for name in needless if "optimizer_1.bin" not in needless
    )


def test_a_file_that_somebody_writes_is_not_sound_however_whole_it_looks(tmp_path: Path) -> None:
    place = tmp_path / "out" / WRITERS["diffusers, LoRA"][2](tmp_path / "out")
    with (place / "optimizer.bin").open("ab"):
        assert "optimizer.bin is not completely written" in lacks(Rules(), look(place))
    assert lacks(Rules(), look(place)) == ""


@pytest.mark.parametrize("leases", [True, False])
def test_a_writer_is_found_with_and_without_leases(tmp_path: Path, leases: bool) -> None:
    workspace = LocalWorkspace(tmp_path / "out", Rules(complete_when="*.txt"))
    assert workspace._leases
    workspace._leases = leases
    writing = "import sys, time\nfile = open(sys.argv[1], 'w')\nprint('open', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", writing, str(tmp_path / "out" / "a.txt")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout and writer.stdout.readline()
        (candidate,) = workspace.look(0.0)
        assert not candidate.files[""].sound
    (candidate,) = workspace.look(FAR_S)
    assert candidate.files[""].sound


# Several processes


def test_of_several_processes_each_has_its_file(tmp_path: Path) -> None:
    """Two of them by torchrun, whose environment tells how many there are."""
    script = Path(__file__).parent / "saved_by_two.py"
    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    printed = list[bytes]()
    command = KeptCommand(
        [sys.executable, *launch, str(script), str(tmp_path / "out")],
        lambda stream, content: printed.append(content),
    )
    processes = 1
    while command.code is None:
        command.wait(0.2)
        processes = max(processes, command.processes)
    command.close()
    assert command.code == 0, b"".join(printed).decode()[-2000:]
    assert processes == 2
    place = tmp_path / "out" / "checkpoint-1"
    rules = Rules(processes=processes)
    assert lacks(rules, look(place)) == ""
    for number in (0, 1):
        shutil.copytree(place, tmp_path / f"without-{number}" / place.name)
        (tmp_path / f"without-{number}" / place.name / f"random_states_{number}.pkl").unlink()
        lacking = lacks(rules, look(tmp_path / f"without-{number}" / place.name))
        assert lacking == f"random_states_{number}.pkl is missing"


def files(*names: str) -> dict[str, SeenFile]:
    return {name: SeenFile(bytes=1, sound=True) for name in names}


def test_the_trainer_of_transformers_has_a_file_of_each_process_too() -> None:
    names = ("model.safetensors", "optimizer.pt", "trainer_state.json", "rng_state_0.pth")
    candidate = CheckpointCandidate(name="checkpoint-9", folder=True, files=files(*names))
    assert lacks(Rules(processes=2), candidate) == "rng_state_1.pth is missing"
    assert (
        lacks(Rules(), CheckpointCandidate(name="checkpoint-9", folder=True, files=files(*names, "rng_state_1.pth")))
        == ""
    )


@pytest.mark.parametrize(
    ("names", "lack"),
    [
        (("pytorch_model_fsdp_0/__0_0.distcp", "random_states_0.pkl"), "pytorch_model_fsdp_0/.metadata is missing"),
        (("pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/.metadata", "random_states_0.pkl"), ""),
        (("model.safetensors", "random_states_0.pkl"), "the optimiser's state is missing"),
        (("optimizer.bin", "random_states_0.pkl"), "weights are missing"),
    ],
)
def test_shards_have_an_end_of_their_own(names: tuple[str, ...], lack: str) -> None:
    candidate = CheckpointCandidate(name="checkpoint-1", folder=True, files=files(*names), settled=True)
    assert lacks(Rules(layout="accelerate"), candidate) == lack


def test_lightnings_shards_are_a_folder() -> None:
    sharded = CheckpointCandidate(name="a.ckpt", folder=True, files=files(".metadata", "__0_0.distcp", "meta.pt"))
    assert lacks(Rules(), sharded) == ""
    assert "meta.pt" in lacks(
        Rules(), CheckpointCandidate(name="a.ckpt", folder=True, files=files(".metadata", "__0_0.distcp"))
    )


# Rules of one's own


@pytest.mark.parametrize(
    ("pattern", "name", "inside", "complete"),
    [
        ("step_*/done", "step_5", ("weights.bin", "done"), True),
        ("step_*/done", "step_5", ("weights.bin",), False),
        ("step_*/done", "step_5", ("weights.bin", "deeper/done"), False),
        ("step_*/*/done", "step_5", ("weights.bin", "deeper/done"), True),
        ("model_*.pt", "model_5.pt", ("",), True),
    ],
)
def test_a_pattern_of_ones_own_says_when(pattern: str, name: str, inside: tuple[str, ...], complete: bool) -> None:
    rules = Rules(complete_when=pattern)
    candidate = CheckpointCandidate(name=name, folder=inside != ("",), files=files(*inside))
    assert is_candidate(rules, name, folder=candidate.folder)
    assert (not lacks(rules, candidate)) == complete
    assert not is_candidate(rules, "other", folder=candidate.folder)


# What is written over, deleted, and what is none


def of_accelerate(*, fresh: frozenset[str] | None) -> CheckpointCandidate:
    names = ("model.safetensors", "optimizer.bin", "random_states_0.pkl")
    before = None if fresh is None else dict.fromkeys(names, 1)
    return CheckpointCandidate(
        name="checkpoint-1", folder=True, files=files(*names), settled=True, before=before, fresh=fresh
    )


def test_what_is_written_over_in_its_place_is_complete_again_once_its_last_file_is() -> None:
    assert lacks(Rules(), of_accelerate(fresh=None)) == ""
    assert "random_states_0.pkl is still from the previous version" in lacks(
        Rules(), of_accelerate(fresh=frozenset({"model.safetensors"}))
    )
    assert lacks(Rules(), of_accelerate(fresh=frozenset({"model.safetensors", "random_states_0.pkl"}))) == ""


def test_a_checkpoint_that_gets_one_file_more_is_sent_again_once_it_has_settled(tmp_path: Path) -> None:
    workspace, name = known(tmp_path)
    (tmp_path / "out" / name / "ema.pt").write_text("the average")
    (candidate,) = workspace.look(FAR_S)
    assert lacks(Rules(), candidate) == MAY_COME
    (candidate,) = workspace.look(FAR_S + 11)
    assert lacks(Rules(), candidate) == ""
    taken = workspace.take(candidate)
    assert taken and taken.adds and f"{name}/ema.pt" in taken.files


def test_a_note_that_grows_in_a_checkpoint_does_not_make_it_another_one(tmp_path: Path) -> None:
    place = tmp_path / "out" / WRITERS["diffusers, LoRA"][2](tmp_path / "out")
    (place / "log.txt").write_text("loss 1")
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    (candidate,) = workspace.look(0.0, ended=True)
    assert workspace.take(candidate)
    (place / "log.txt").write_text("loss 1, 2")
    (candidate,) = workspace.look(FAR_S, ended=True)
    assert lacks(Rules(), candidate) == UNTOUCHED


def test_weights_that_were_written_after_the_last_file_are_of_another_version() -> None:
    """Nobody looked in between: all files changed, and their order tells it."""
    names = ("model.safetensors", "optimizer.bin", "random_states_0.pkl")
    before = {name: number for number, name in enumerate(names)}

    def at(*written_ns: int) -> CheckpointCandidate:
        seen = {name: SeenFile(bytes=1, sound=True, written_ns=ns) for name, ns in zip(names, written_ns, strict=True)}
        return CheckpointCandidate(
            name="last-state", folder=True, files=seen, settled=True, before=before, fresh=frozenset(names)
        )

    assert lacks(Rules(), at(10, 11, 12)) == ""
    assert lacks(Rules(), at(20, 11, 12)) == "model.safetensors was written again after random_states_0.pkl"


def known(folder: Path) -> tuple[LocalWorkspace, str]:
    """A checkpoint that was taken already."""
    name = WRITERS["diffusers, LoRA"][2](folder / "out")
    workspace = LocalWorkspace(folder / "out", Rules())
    (candidate,) = workspace.look(0.0, ended=True)
    assert workspace.take(candidate)
    assert workspace.look(1.0) == []
    return workspace, name


def test_a_checkpoint_that_is_being_deleted_is_not_another_one(tmp_path: Path) -> None:
    workspace, name = known(tmp_path)
    for path in sorted((tmp_path / "out" / name).iterdir()):
        path.unlink()
        assert not any(not lacks(Rules(), each) for each in workspace.look(FAR_S))
    (tmp_path / "out" / name).rmdir()
    assert workspace.look(FAR_S) == []


def test_one_that_is_deleted_before_it_was_sent_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    name = WRITERS["accelerate, registered objects"][2](tmp_path / "out")
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    (candidate,) = workspace.look(0.0)
    assert lacks(Rules(), candidate)  # it has not settled
    everything = set(candidate.files)
    for path in sorted((tmp_path / "out" / name).iterdir()):
        path.unlink()
        assert workspace.look(0.5) == []
    (tmp_path / "out" / name).rmdir()
    (gone,) = workspace.look(0.6)
    assert lacks(Rules(), gone) == "" and set(gone.files) == everything
    taken = workspace.take(gone)
    assert taken and len(workspace.describe(taken)) == len(everything)
    assert workspace.look(0.7) == []


def test_what_is_written_over_while_it_waits_is_not_sent(tmp_path: Path) -> None:
    name = WRITERS["diffusers, LoRA"][2](tmp_path / "out")
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    (candidate,) = workspace.look(0.0, ended=True)
    taken = workspace.take(candidate)
    assert taken
    (tmp_path / "out" / name / "optimizer.bin").write_bytes(b"half")
    with pytest.raises(Damaged, match=r"optimizer\.bin was overwritten"):
        workspace.describe(taken)


def test_one_file_is_copied_so_that_it_may_be_written_over(tmp_path: Path) -> None:
    name = WRITERS["lightning"][2](tmp_path)
    workspace = LocalWorkspace(tmp_path, Rules())
    (candidate,) = workspace.look(0.0)
    taken = workspace.take(candidate)
    assert taken
    before = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"half")
    workspace.describe(taken)
    assert taken.files[name].read_bytes() == before


def test_models_of_kohya_are_no_checkpoints_of_lightning(tmp_path: Path) -> None:
    import torch

    torch.save({"state_dict": {"w": torch.zeros(2)}}, tmp_path / "timber.ckpt")
    assert "nothing shows" in lacks(Rules(), look(tmp_path / "timber.ckpt"))


def test_folders_of_pictures_are_results_and_stay_where_they_are(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    for name in ("100", "samples-step-100"):
        (tmp_path / "out" / name).mkdir()
        (tmp_path / "out" / name / "a prompt: dog?.png").write_bytes(b"png")
    assert all(is_result(Rules(), each) for each in workspace.look(0.0, ended=True))
    assert results_in(workspace).keys() == {
        "100/a prompt%3A dog%3F.png",
        "samples-step-100/a prompt%3A dog%3F.png",
    }


def test_half_of_a_checkpoint_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "out" / "checkpoint-5").mkdir(parents=True)
    (tmp_path / "out" / "checkpoint-5" / "model.safetensors").write_bytes(b"half")
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    (candidate,) = workspace.look(0.0, ended=True)
    assert not is_result(Rules(), candidate) and results_in(workspace) == {}


def test_a_folder_is_looked_at_as_soon_as_something_appears(tmp_path: Path) -> None:
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    (tmp_path / "out" / "checkpoint-5").mkdir()
    workspace.wait(1e6)  # the test's time-out ends it


@pytest.mark.parametrize("name", ["unet", "samples", "logs", ".cache", "tmp-checkpoint-5", "checkpoint-5.tmp"])
def test_what_does_not_look_like_a_checkpoint_is_left_alone(name: str) -> None:
    assert not is_candidate(Rules(), name, folder=True)


def test_every_layout_has_a_rule() -> None:
    for layout in LAYOUTS:
        empty = CheckpointCandidate(name="checkpoint-1.ckpt", folder=True, files=files("notes.txt"))
        assert lacks(Rules(layout=layout), empty)


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("accelerate launch --num_processes 2 examples/train_lora.py --lr 1e-4", "train_lora.py"),
        ("python -m accelerate.commands.launch train.py", "train.py"),
        ("torchrun --nproc_per_node 2 -m my.trainer --x 1", "my.trainer"),
        ("/usr/local/bin/trainer --steps 5", "trainer"),
        ("bash run.sh", "bash"),
    ],
)
def test_a_command_line_is_known_by_its_script(words: str, script: str) -> None:
    assert script_of(words.split()) == script


def test_a_script_that_writes_a_file_again_after_the_last_is_waited_for(tmp_path: Path) -> None:
    """In a folder that no other checkpoint has: it is complete as it is once it has settled."""
    place = tmp_path / "out" / WRITERS["diffusers, LoRA"][2](tmp_path / "out")
    workspace = LocalWorkspace(tmp_path / "out", Rules())
    for number in (1, 2):
        (candidate,) = workspace.look(float(number))
        assert lacks(Rules(), candidate) == MAY_COME
        weights = next(place.glob("*.safetensors"))
        weights.write_bytes(weights.read_bytes())
    workspace.look(3.0)
    (candidate,) = workspace.look(5.0)
    assert lacks(Rules(), candidate) == ""
