"""What a run over data sets leaves: a whole model in diffusers' layout, and a report."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from accelerate import init_empty_weights

from gangline.core.models.bases import INDEX, files_needed, variant_of
from gangline.core.runs.contract import REPORT
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.bases import names_below, read_json
from gangline.train.checkpoints.checkpoint import Tensors
from gangline.train.model.base import Base
from gangline.train.run.contract import RunDirectory
from gangline.train.run.digest import tensors_digest
from gangline.train.scratch.beginning import UNET, VAE, folder_of
from gangline.train.scratch.intake import Intake
from gangline.train.scratch.learner import Learner
from gangline.train.scratch.vae import SCALED_BY, standardise

SCHEDULER = "scheduler/scheduler_config.json"


def write_pipeline(run: RunDirectory, base: Base, spec: ScratchSpec, learner: Learner, intake: Intake) -> None:
    """All ranks gather, the first one writes."""
    with learner.as_result():
        trained = {part: learner.whole(part) for part in learner.network.parts}
    if not learner.ranks.is_first:
        return
    run.output.mkdir(parents=True, exist_ok=True)
    copy_base(folder_of(base), run.output, without=tuple(trained))
    modules = {part: filled(learner.network.parts[part], tensors) for part, tensors in trained.items()}
    if VAE in modules:
        pictures = intake.first_pictures(SCALED_BY)
        standardise(modules[VAE].to(base.device), pictures, learner.microbatch, by_channel=VAE in spec.new)
    for part, module in modules.items():
        module.save_pretrained(run.output / part, safe_serialization=True)
    if UNET in modules:
        _tell_samplers(base, run.output / SCHEDULER)
    _write_report(run, spec, learner, tuple(trained))


def copy_base(base: Path, to: Path, *, without: tuple[str, ...]) -> None:
    """The parts of a model, but for some. What is stored as a variant (`….fp16.safetensors`) is the only one here, so it is none."""
    names = [name for name in files_needed(names_below(base)) if Path(name).parts[0] not in without]
    for name in {*names, INDEX}:
        variant = variant_of([Path(name).name])
        target = to / (name.replace(f".{variant}.", ".") if variant else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(base / name, target)


def filled(like: Any, tensors: Tensors) -> Any:
    """Another module of that kind, whole, on the CPU."""
    make: Callable[[Any], Any] = getattr(type(like), "from_config", type(like))
    with init_empty_weights():
        module = make(like.config)
    module.load_state_dict(tensors, assign=True)
    return module


def _tell_samplers(base: Base, scheduler: Path) -> None:
    """What the U-Net predicts now, and how the noise ends (Lin et al. 2023, §3.3)."""
    said = read_json(scheduler) | {"prediction_type": base.prediction_type}
    if base.zero_terminal_snr:
        said |= {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    scheduler.write_text(json.dumps(said, indent=2) + "\n")


def _write_report(run: RunDirectory, spec: ScratchSpec, learner: Learner, parts: tuple[str, ...]) -> None:
    files = sorted(path for part in parts for path in (run.output / part).glob("*.safetensors"))
    report = {
        "steps": spec.steps,
        "weights_digest": sha256("".join(map(tensors_digest, files)).encode()).hexdigest(),
        "exact": learner.identity.exact,
        "fingerprint": learner.identity.fingerprint,
        "held_out": [{"step": step, learner.network.measures: value} for step, value in learner.history],
    }
    (run.output / REPORT).write_text(json.dumps(report, indent=1) + "\n")
