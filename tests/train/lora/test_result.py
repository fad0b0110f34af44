"""What the trainer leaves: weights that diffusers loads, pictures, a subject that was learned; and what it refuses."""

import json
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
import torch

from gangline.core.errors import BadInput
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.runs.contract import EXIT_BAD_INPUT, EXIT_STOPPED
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.model.base import load_base
from gangline.train.run import chance
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.meter import Diverged, LossMeter
from tests.conftest import BASE, ROOT, SUBJECT, file_at
from tests.train.conftest import finish, lay_out, report_of, small_spec

SUBJECT_MODULES = tuple(tomllib.loads((ROOT / "recipes" / "tiny_subject.toml").read_text())["target_modules"])
LOSS_FALLS_BY = 0.25
OTHERS = ROOT / "examples" / "other"


def test_the_pipeline_loads_the_weights_as_they_were_trained(uninterrupted: RunDirectory) -> None:
    from diffusers import StableDiffusionXLPipeline
    from peft.utils import get_peft_model_state_dict
    from safetensors.torch import load_file

    pipeline = StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True)
    pipeline.load_lora_weights(uninterrupted.output, weight_name=DIFFUSERS_FILE)
    adapter = pipeline.get_active_adapters()[0]
    loaded = get_peft_model_state_dict(pipeline.unet, adapter_name=adapter)
    trained = load_file(uninterrupted.output / DIFFUSERS_FILE)
    assert len(loaded) == len(trained) > 0
    for name, tensor in loaded.items():
        assert torch.equal(tensor, trained[f"unet.{name}"]), name
    config = pipeline.unet.peft_config[adapter]
    assert (config.r, config.lora_alpha) == (4, 16.0)


def test_training_renders_nothing(uninterrupted: RunDirectory) -> None:
    assert not uninterrupted.samples.exists()


@pytest.mark.tenths
def test_the_subject_is_learned_and_not_only_its_style(tmp_path: Path) -> None:
    """A pose that was never trained on gets likelier, and by more than other characters of the same style."""
    spec = small_spec(
        steps=120,
        batch_size=5,
        rank=16,
        target_modules=SUBJECT_MODULES,
        checkpoint_every_steps=None,
        held_out=(
            file_at(SUBJECT / "crying-cat.png", SUBJECT),
            file_at(OTHERS / "dog-face.png", OTHERS),
            file_at(OTHERS / "fox.png", OTHERS),
        ),
    )
    run = lay_out(tmp_path / "run", spec)
    held_out = run.inputs / "held_out"
    held_out.unlink()
    held_out.mkdir()
    for path in (SUBJECT / "crying-cat.png", OTHERS / "dog-face.png", OTHERS / "fox.png"):
        (held_out / path.name).symlink_to(path)
    fell = {
        photo["photo"]: 1 - photo["loss_after"] / photo["loss_before"] for photo in report_of(finish(run))["held_out"]
    }
    print(fell)
    assert fell["crying-cat.png"] > LOSS_FALLS_BY
    assert fell["crying-cat.png"] > 1.5 * max(fell["dog-face.png"], fell["fox.png"])


def test_a_held_out_photo_is_measured_under_its_own_caption(tmp_path: Path) -> None:
    captions = tmp_path / "captions"
    captions.mkdir()
    (captions / "crying-cat.txt").write_text("a red car in the snow")
    spec = small_spec(steps=1, held_out=(file_at(SUBJECT / "crying-cat.png", SUBJECT),))
    own = lay_out(tmp_path / "own", replace(spec, captions=(file_at(captions / "crying-cat.txt", captions),)))
    (own.inputs / "captions").symlink_to(captions)
    of_all = lay_out(tmp_path / "of-all", spec)
    said, prompted = (report_of(finish(run))["held_out"][0] for run in (own, of_all))
    assert said["photo"] == prompted["photo"] == "crying-cat.png"
    assert said["loss_before"] != prompted["loss_before"]


def test_no_way_of_loading_unpickles_anything(tmp_path: Path) -> None:
    """In a process of its own, as an audit hook cannot be taken out again."""
    lay_out(tmp_path / "run", small_spec(checkpoint_every_steps=5))
    program = """
import sys
import tomllib
from pathlib import Path
found = []
sys.addaudithook(lambda event, arguments: found.append(arguments) if event == "pickle.find_class" else None)
from gangline.core.runs.contract import Phase
from tests.train.conftest import StopsAtItsFirstSave, run_lora_trainer
from gangline.train.run.contract import RunDirectory, Orders
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from tests.conftest import BASE
run = StopsAtItsFirstSave(Path(sys.argv[1]))
assert run_lora_trainer(run, run.orders) == 75
assert run_lora_trainer(RunDirectory(Path(sys.argv[1])), Orders()) == 0
from diffusers import StableDiffusionXLPipeline
StableDiffusionXLPipeline.from_pretrained(BASE, local_files_only=True).load_lora_weights(run.output, weight_name=DIFFUSERS_FILE)
assert found == [], found
import pickle
from collections import OrderedDict
pickle.loads(pickle.dumps(OrderedDict()))
assert found, "the hook hears"
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "run"], check=True, cwd=ROOT)


def test_sigterm_saves_and_exits_as_resumable(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", small_spec(steps=5000, checkpoint_every_steps=None))
    process = subprocess.Popen([sys.executable, "-m", "gangline.train.lora", run.path])
    while not ((run.path / "progress.jsonl").exists() and '"training"' in (run.path / "progress.jsonl").read_text()):
        assert process.poll() is None
        Event().wait(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == EXIT_STOPPED
    (saved,) = run.checkpoints.iterdir()
    assert (saved / "manifest.json").exists()


def run_alone(run: RunDirectory) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline.train.lora", str(run.path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_photo_that_is_none_is_bad_input_with_its_name(tmp_path: Path) -> None:
    run = lay_out(tmp_path / "run", small_spec())
    (run.inputs / "photos").unlink()
    (run.inputs / "photos").mkdir()
    for photo in small_spec().photos:
        (run.inputs / "photos" / photo.path).write_text("no image")
    ended = run_alone(run)
    assert ended.returncode == EXIT_BAD_INPUT
    assert "error: cat-face.png is not an image" in ended.stderr
    assert ended.stderr.endswith("hint: take it out of the folder\n")
    last = json.loads((run.path / "progress.jsonl").read_text().splitlines()[-1])
    assert last["failure"]["kind"] == "bad data"


@pytest.mark.parametrize(
    ("change", "says"),
    [({"target_modules": ("no_such_layer",)}, "target_modules"), ({"resolution": 76}, "multiple of 8")],
)
def test_settings_that_do_not_fit_the_base_are_bad_input(tmp_path: Path, change: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        run_lora_trainer(lay_out(tmp_path / "run", small_spec(**change)), Orders())


def test_a_folder_that_is_no_base_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    with pytest.raises(BadInput, match="is a FluxPipeline"):
        load_base(tmp_path, torch.device("cpu"), torch.float32)
    with pytest.raises(BadInput, match="there is no base"):
        load_base(tmp_path / "none", torch.device("cpu"), torch.float32)


def test_a_base_with_a_damaged_part_is_bad_input(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(BASE, tmp_path / "base")
    unet = tmp_path / "base" / "unet" / "diffusion_pytorch_model.safetensors"
    unet.write_bytes(unet.read_bytes()[:1000])
    with pytest.raises(BadInput, match="cannot be loaded"):
        load_base(tmp_path / "base", torch.device("cpu"), torch.float32).unet.train()


def test_chance_is_a_function_of_seed_purpose_step_and_sample() -> None:
    first = chance.normal(1, "noise", 2, range(3, 5), (4,))
    assert torch.equal(first[1], chance.normal(1, "noise", 2, range(4, 5), (4,))[0])
    for other in [(2, "noise", 2), (1, "posterior", 2), (1, "noise", 3)]:
        assert not torch.equal(first, chance.normal(*other, range(3, 5), (4,)))


def test_a_loss_that_is_no_number_is_never_taken_for_one() -> None:
    meter = LossMeter(torch.device("cpu"))
    meter.add(torch.tensor(float("nan")), torch.tensor(1.0))
    with pytest.raises(Diverged):
        meter.take()
