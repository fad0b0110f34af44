"""Turn what was learned into a whole model: in diffusers' layout with a report, as a run's result, or in memory to draw with between
steps."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from gangline.core.models.bases import INDEX, files_needed, variant_of
from gangline.core.runs.contract import REPORT
from gangline.core.specs.scratch import ScratchSpec
from gangline.data.bases import names_below, read_json
from gangline.train.checkpoints import shards
from gangline.train.learning.learner import Learner
from gangline.train.model.base import LoadedBase
from gangline.train.run.contract import RunDirectory, steps_in_report
from gangline.train.run.digest import tensors_digest
from gangline.train.scratch.batches import ScratchBatches
from gangline.train.scratch.initial_weights import UNET, VAE, folder_of
from gangline.train.scratch.vae import SCALED_BY, standardise
from gangline.train.tensors import Tensors

SCHEDULER = "scheduler/scheduler_config.json"


def write_pipeline(
    run: RunDirectory, base: LoadedBase, spec: ScratchSpec, learner: Learner, batches: ScratchBatches
) -> None:
    """Write the model. All ranks gather weights, the first one writes."""
    with learner.as_result(learner.best or None):
        trained = {part: learner.whole(part) for part in learner.network.parts}
    if not learner.ranks.is_first:
        return
    modules = {part: module_with_weights(learner.network.parts[part], tensors) for part, tensors in trained.items()}
    if VAE in modules:
        pictures = batches.first_pictures(SCALED_BY)
        standardise(
            modules[VAE].to(base.device),
            pictures,
            int(learner.identity.fingerprint["microbatch"]),
            by_channel=VAE in spec.new,
        )
    kept = sum(path.stat().st_size for path in folder_of(base).rglob("*") if path.is_file())
    size = kept + sum(tensor.nbytes for tensors in trained.values() for tensor in tensors.values())
    run.write_output(size, lambda: _write(run, base, spec, learner, modules))


def _write(run: RunDirectory, base: LoadedBase, spec: ScratchSpec, learner: Learner, modules: dict[str, Any]) -> None:
    run.output.mkdir(parents=True, exist_ok=True)
    copy_base(folder_of(base), run.output, without=tuple(modules))
    for part, module in modules.items():
        module.save_pretrained(run.output / part, safe_serialization=True)
    if UNET in modules:
        _tell_samplers(base, run.output / SCHEDULER)
    _write_report(run, spec, learner, tuple(modules))


def copy_base(base: Path, to: Path, *, without: tuple[str, ...]) -> None:
    """Copy a model without some of its parts. Files of a variant (`….fp16.safetensors`) lose its name, because they are the only ones
    here."""
    names = [name for name in files_needed(names_below(base)) if Path(name).parts[0] not in without]
    for name in {*names, INDEX}:
        variant = variant_of([Path(name).name])
        target = to / (name.replace(f".{variant}.", ".") if variant else name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(base / name, target)


def module_with_weights(like: Any, tensors: Tensors) -> Any:
    """Return another module of the same class and configuration with these weights, unsharded, on the CPU."""
    make: Callable[[Any], Any] = getattr(type(like), "from_config", type(like))
    with init_empty_weights():
        module = make(like.config)
    module.load_state_dict(tensors, assign=True)
    return module


def gathered(learner: Learner, shown: Tensors | None = None) -> dict[str, Tensors]:
    """Return all weights of each part, on the CPU of the first rank, and nothing on the others. All ranks call it together.

    They are those that would be the result now or, with `shown`, those that `Learner.keep` copied of this rank's shard. The exchange uses
    the CPU: a rank without memory on its card could not take part in one there, and the others would wait for it forever.
    """
    mesh = learner.ranks.mesh(torch.device("cpu"))
    averaged = learner.averaged() if shown is None else shown
    found: dict[str, Tensors] = {part: {} for part in learner.network.parts}
    for part, module in learner.network.parts.items():
        state: Tensors = module.state_dict()
        for name, tensor in state.items():
            whole = _whole(tensor, shards.local(averaged.get(f"{part}.{name}", tensor)), mesh)
            if learner.ranks.is_first:
                found[part][name] = whole
    return found


def _whole(like: torch.Tensor, own: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    """Return the whole tensor from `own`, this rank's rows of a tensor that is sharded like `like`."""
    rows = own.detach().to("cpu", copy=True)
    if not isinstance(like, DTensor):
        return rows
    shape = {"shape": like.shape, "stride": like.stride()}
    return DTensor.from_local(rows, mesh, like.placements, run_check=False, **shape).full_tensor()


@contextmanager
def with_whole_parts(base: LoadedBase, learner: Learner, weights: dict[str, Tensors]) -> Iterator[None]:
    """Replace the base's sharded modules with unsharded ones of `weights` inside this context. No other rank takes part in their passes."""
    kept = {name: base.__dict__[name] for name in ("unet", "text_encoders") if name in base.__dict__}
    parts = learner.network.parts.items()
    whole = {
        part: module_with_weights(module, weights[part]).requires_grad_(False).to(learner.device).eval()
        for part, module in parts
    }
    try:
        base.unet = whole.pop(UNET)
        if whole:
            base.text_encoders = tuple(whole[part] for part in base.family.text_parts)
        yield
    finally:
        base.__dict__.update(kept)


def _tell_samplers(base: LoadedBase, scheduler: Path) -> None:
    """Write the prediction type and the end of the noise schedule into the scheduler's configuration (Lin et al. 2023, §3.3)."""
    said = read_json(scheduler) | {"prediction_type": base.prediction_type}
    if base.zero_terminal_snr:
        said |= {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    scheduler.write_text(json.dumps(said, indent=2) + "\n")


def _write_report(run: RunDirectory, spec: ScratchSpec, learner: Learner, parts: tuple[str, ...]) -> None:
    files = sorted(path for part in parts for path in (run.output / part).glob("*.safetensors"))
    report = steps_in_report(run, spec, learner.curve.best_step) | {
        "weights_digest": sha256("".join(map(tensors_digest, files)).encode()).hexdigest(),
        "exact": learner.identity.exact,
        "fingerprint": learner.identity.fingerprint,
        "held_out": learner.curve.told(learner.network.measures),
    }
    (run.output / REPORT).write_text(json.dumps(report, indent=1) + "\n")
