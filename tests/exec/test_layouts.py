"""A checkpoint that a library has written is complete; one of which any byte lacks is not."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.adapters.command import KeptCommand
from gangline.adapters.workspace import LocalWorkspace
from gangline.core.layout import LAYOUTS, Candidate, Rules, Seen, is_candidate, lacks, layout_of, script_of, step_of
from gangline.core.whole import is_whole
from tests.exec.written import WRITERS

FAR_S = 1e9


@pytest.fixture(scope="module", params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int, Path]:
    """The layout, the step and the place of a checkpoint."""
    layout, step, write = WRITERS[request.param]
    folder = tmp_path_factory.mktemp("written")
    return layout, step, folder / write(folder)


def look(place: Path, *, ended: bool = False) -> Candidate:
    workspace = LocalWorkspace(place.parent, Rules())
    try:
        (found,) = [each for each in workspace.look(FAR_S, ended=ended) if each.name == place.name]
    finally:
        workspace.close()
    return found


def test_it_is_complete_and_tells_its_layout_and_its_step(written: tuple[str, int, Path]) -> None:
    layout, step, place = written
    candidate = look(place, ended=True)
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
        name, content = path.relative_to(place).as_posix(), path.read_bytes()
        for cut in sorted({0, 1, len(content) // 2, len(content.rstrip()) - 1}):
            yield here | {name.removeprefix("."): content[:cut]}
        here[name.removeprefix(".")] = content
        yield dict(here)


def as_candidate(place: Path, here: dict[str, bytes], *, settled: bool) -> Candidate:
    import json

    def seen(name: str, content: bytes) -> Seen:
        whole = is_whole(name or place.name, len(content), lambda at, count: content[at : at + count])
        told = json.loads(content) if whole and name.endswith(".json") else None
        return Seen(bytes=len(content), sound=whole, told=told)

    files = {name: seen(name, content) for name, content in here.items()}
    return Candidate(name=place.name, folder=place.is_dir(), files=files, settled=settled)


@pytest.mark.parametrize("settled", [False, True])
def test_at_no_moment_of_its_writing_is_it_complete_but_at_the_end(
    written: tuple[str, int, Path], settled: bool
) -> None:
    """Where the script may add objects of its own after the library's files, only a folder that is left alone is complete."""
    layout, _, place = written
    *before, last = moments(place)
    said = [lacks(Rules(), as_candidate(place, here, settled=settled)) for here in before]
    added = [here for here in before if settled and "random_states_0.pkl" in here and here.keys() != last.keys()]
    early = [here.keys() for here, lack in zip(before, said, strict=True) if not lack and here not in added]
    assert early == []
    assert bool(lacks(Rules(), as_candidate(place, last, settled=settled))) == (
        not settled and layout in ("accelerate", "kohya")
    )


def test_no_file_of_it_can_lack_that_it_cannot_be_resumed_without(written: tuple[str, int, Path]) -> None:
    """Deleted one at a time: what may lack is what no library promises."""
    layout, _, place = written
    here = {path.relative_to(place).as_posix().removeprefix("."): path.read_bytes() for path in in_order(place)}
    needless = {
        name
        for name in here
        if not lacks(
            Rules(layout=layout), as_candidate(place, {k: v for k, v in here.items() if k != name}, settled=True)
        )  # type: ignore[arg-type]
    }
    assert not needless & {"random_states_0.pkl", "trainer_state.json", "rng_state.pth", "manifest.json", ""}
    assert not any("-of-" in name for name in needless)


def test_a_file_that_somebody_writes_is_not_sound_however_whole_it_looks(tmp_path: Path) -> None:
    place = tmp_path / "out" / WRITERS["diffusers, LoRA"][2](tmp_path / "out")
    with (place / "optimizer.bin").open("ab"):
        assert "optimizer.bin is not written to its end" in lacks(Rules(), look(place, ended=True))
    assert lacks(Rules(), look(place, ended=True)) == ""


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
    assert lacks(rules, look(place, ended=True)) == ""
    for number in (0, 1):
        shutil.copytree(place, tmp_path / f"without-{number}" / place.name)
        (tmp_path / f"without-{number}" / place.name / f"random_states_{number}.pkl").unlink()
        lacking = lacks(rules, look(tmp_path / f"without-{number}" / place.name, ended=True))
        assert lacking == f"random_states_{number}.pkl lacks"


def files(*names: str) -> dict[str, Seen]:
    return {name: Seen(bytes=1, sound=True) for name in names}


def test_the_trainer_of_transformers_has_a_file_of_each_process_too() -> None:
    names = ("model.safetensors", "trainer_state.json", "rng_state_0.pth")
    candidate = Candidate(name="checkpoint-9", folder=True, files=files(*names))
    assert lacks(Rules(processes=2), candidate) == "rng_state_1.pth lacks"
    assert lacks(Rules(), Candidate(name="checkpoint-9", folder=True, files=files(*names, "rng_state_1.pth"))) == ""


@pytest.mark.parametrize(
    ("names", "lack"),
    [
        (("pytorch_model_fsdp_0/__0_0.distcp", "random_states_0.pkl"), "pytorch_model_fsdp_0/.metadata lacks"),
        (("pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/.metadata", "random_states_0.pkl"), ""),
        (("optimizer.bin", "random_states_0.pkl"), "weights lack"),
    ],
)
def test_shards_have_an_end_of_their_own(names: tuple[str, ...], lack: str) -> None:
    candidate = Candidate(name="checkpoint-1", folder=True, files=files(*names), settled=True)
    assert lacks(Rules(layout="accelerate"), candidate) == lack


def test_lightnings_shards_are_a_folder() -> None:
    sharded = Candidate(name="a.ckpt", folder=True, files=files(".metadata", "__0_0.distcp", "meta.pt"))
    assert lacks(Rules(), sharded) == ""
    assert "meta.pt" in lacks(Rules(), Candidate(name="a.ckpt", folder=True, files=files(".metadata", "__0_0.distcp")))


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
    candidate = Candidate(name=name, folder=inside != ("",), files=files(*inside))
    assert is_candidate(rules, name, folder=candidate.folder)
    assert (not lacks(rules, candidate)) == complete
    assert not is_candidate(rules, "other", folder=candidate.folder)


@pytest.mark.parametrize("name", ["unet", "samples", "logs", ".cache", "tmp-checkpoint-5", "checkpoint-5.tmp"])
def test_what_does_not_look_like_a_checkpoint_is_left_alone(name: str) -> None:
    assert not is_candidate(Rules(), name, folder=True)


def test_every_layout_has_a_rule() -> None:
    for layout in LAYOUTS:
        empty = Candidate(name="checkpoint-1.ckpt", folder=True, files=files("notes.txt"))
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
