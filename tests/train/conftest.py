"""Real runs of the real trainer, small: the tiny base, the subject's photos, a dozen steps."""

import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gangline.core.models.bases import files_needed
from gangline.core.parsing import to_json
from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, MANIFEST, NOT_DRAWN, REPORT, Phase
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec
from gangline.train.lora.trainer import run_lora_trainer
from gangline.train.run.contract import Orders, RunDirectory
from tests.conftest import BASE, SUBJECT, file_at

STEPS = 12


def small_spec(**settings: Any) -> LoraSpec:
    names = files_needed([str(path.relative_to(BASE)) for path in BASE.rglob("*") if path.is_file()])
    photos = [file_at(path, SUBJECT) for path in sorted(SUBJECT.glob("*.png"))]
    values: dict[str, Any] = {
        "base": FilesBase(files=tuple(file_at(BASE / name, BASE) for name in names)),
        "photos": tuple(photo for photo in photos if "crying" not in photo.path),
        "prompt": "sks cat face, fluent emoji",
        "steps": STEPS,
        "resolution": 64,
        "batch_size": 2,
        "learning_rate": 1e-3,
        "rank": 4,
        "checkpoint_every_steps": 4,
        "sample_steps": 2,
        "class_sample_steps": 2,
        "sample_seeds": (1,),
    }
    return LoraSpec(**(values | settings))


def lay_out(
    folder: Path, spec: LoraSpec, *, photos: Path = SUBJECT, base: Path = BASE, captions: Path | None = None
) -> RunDirectory:
    (folder / "inputs").mkdir(parents=True)
    folders = {"base": base} | dict.fromkeys(("photos", "held_out", "class_photos", "class_captions"), photos)
    folders |= {"captions": captions} if captions else {}
    for name, target in folders.items():
        (folder / "inputs" / name).symlink_to(target)
    (folder / "spec.json").write_text(json.dumps(to_json(spec)))
    return RunDirectory(folder)


@dataclass
class StopsAtItsFirstSave(RunDirectory):
    """A run that gets the notice to stop while it saves; `checkpoint_every_steps` says when that is."""

    orders: Orders = field(default_factory=Orders)

    def report_phase(self, phase: Phase) -> None:
        super().report_phase(phase)
        if phase == "saving":
            self.orders.stop = True


def interrupt(folder: Path, spec: LoraSpec, *, after: int, **folders: Any) -> RunDirectory:
    """Lay out `folder` and run `spec` until it has saved step `after`."""
    lay_out(folder, replace(spec, checkpoint_every_steps=after), **folders)
    run = StopsAtItsFirstSave(folder)
    assert run_lora_trainer(run, run.orders) == EXIT_STOPPED
    return RunDirectory(folder)


def copy_to_render(checkpoint: Path, run: RunDirectory) -> None:
    """What a node that renders it is given: neither the manifest nor what is not drawn."""
    files = [path for path in checkpoint.iterdir() if path.name != MANIFEST and not path.name.startswith(NOT_DRAWN)]
    (run.inputs / "checkpoint").mkdir()
    for path in files:
        shutil.copyfile(path, run.inputs / "checkpoint" / path.name)


def finish(run: RunDirectory) -> RunDirectory:
    assert run_lora_trainer(RunDirectory(run.path), Orders()) == EXIT_DONE
    return run


def report_of(run: RunDirectory) -> dict[str, Any]:
    return json.loads((run.output / REPORT).read_text())


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return finish(lay_out(tmp_path_factory.mktemp("uninterrupted") / "run", small_spec()))
