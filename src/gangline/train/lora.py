"""Train a LoRA of an SDXL-architecture U-Net on photos of one subject: `python -m gangline.train.lora DIRECTORY`.

The directory keeps the trainer contract (gangline.core.contract). Read `train` from top to bottom: it is the whole run.
"""

import argparse
import errno
import json
import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from diffusers import StableDiffusionXLPipeline
from diffusers.utils import convert_state_dict_to_diffusers, logging
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from transformers.utils.logging import disable_progress_bar

from gangline.core.contract import EXIT_BAD_INPUT, EXIT_DONE, EXIT_STOPPED, Failure, FailureKind
from gangline.core.errors import BadInput
from gangline.core.spec import LoraSpec, spec_hash
from gangline.train import chance, checkpoint, numerics
from gangline.train.base import Base, load_base
from gangline.train.contract import Orders, RunDirectory
from gangline.train.digest import tensors_digest
from gangline.train.loss import denoising_loss, held_out_losses
from gangline.train.prepare import Condition, Latents, encode_photos, encode_prompt
from gangline.train.sample import render_comparison

WEIGHTS = "pytorch_lora_weights.safetensors"
REPORT = "report.json"
REPORT_EVERY_S = 0.5


class Diverged(ArithmeticError):
    """The loss is no longer a number."""


def train(run: RunDirectory, orders: Orders) -> int:
    """Run to the end, or until told to stop; returns the exit code."""
    run.report_phase("preparing")
    spec = run.read_spec()
    run.steps = spec.steps
    numerics.make_deterministic()
    device = numerics.device()
    dtype = numerics.dtype_of(spec.precision, device)
    base = load_base(run.inputs / "base", device, dtype)
    check_resolution(base, spec.resolution)
    latents = encode_photos(base, run.inputs / "photos", spec.photos, spec.resolution)
    condition = encode_prompt(base, spec.prompt, spec.resolution)

    lora = Lora(base, spec, numerics.fingerprint(device, dtype, spec.batch_size))
    run.step = lora.resume(run)
    saver = checkpoint.Saver(run.checkpoints)
    saves = SaveClock(spec.checkpoint_every_s, spec.checkpoint_every_steps)
    losses = Losses(device)
    run.report_phase("training")
    run.restart_meter()
    for step in range(run.step + 1, spec.steps + 1):
        losses.add(lora.step(step, latents, condition))
        save_now = orders.stop or orders.save or saves.due(step)
        if save_now or losses.due or step == spec.steps:
            count, mean = losses.take()
            run.report_step(step, mean, steps_since=count)
        if save_now and step < spec.steps:
            orders.save = False
            run.report_phase("saving")
            run.save_s = lora.save(saver, step)
            saves.saved()
            run.report_phase("training")
            run.restart_meter()
            if orders.stop:
                saver.wait()
                return EXIT_STOPPED

    run.report_phase("saving")
    saver.wait()
    lora.write_result(run, lora.measure_held_out(run))
    render_comparison(base, spec, run.samples)
    return EXIT_DONE


def check_resolution(base: Base, resolution: int) -> None:
    """The U-Net halves the latents once for each level but one; a remainder would be lost on the way down."""
    unit = base.latent_factor * 2 ** (len(base.unet.config.block_out_channels) - 1)
    if resolution % unit:
        raise BadInput(
            f"resolution {resolution} does not suit this base, which needs a multiple of {unit}",
            hint=f"take {max(unit, round(resolution / unit) * unit)}",
        )


class Lora:
    """The low-rank weights on a base's U-Net, their optimiser, and how to save, restore and export them."""

    def __init__(self, base: Base, spec: LoraSpec, fingerprint: dict[str, str]) -> None:
        self.base = base
        self.spec = spec
        self.identity = checkpoint.Identity(spec_hash=spec_hash(spec), fingerprint=fingerprint, exact=True)
        chance.seed_torch(spec.seed, "initial weights")
        self.config = LoraConfig(
            r=spec.rank,
            lora_alpha=spec.alpha,  # pyright: ignore[reportArgumentType] - peft scales by alpha / r, whole or not
            init_lora_weights="gaussian",
            target_modules=list(spec.target_modules),
        )
        try:
            base.unet.add_adapter(self.config)
        except ValueError as error:
            raise BadInput(f"target_modules do not fit this base: {error}") from None
        trainable = {name: weight for name, weight in base.unet.named_parameters() if weight.requires_grad}
        for weight in trainable.values():
            weight.data = weight.data.float()
        self.weights = trainable
        self.optimizer = torch.optim.AdamW(
            trainable.values(), lr=spec.learning_rate, weight_decay=spec.weight_decay, foreach=True
        )

    def step(self, step: int, latents: Latents, condition: Condition) -> torch.Tensor:
        """One optimiser step; returns its loss, still on the device."""
        spec, base = self.spec, self.base
        device = latents.mean.device
        samples = range((step - 1) * spec.batch_size, step * spec.batch_size)
        chosen = chance.order(spec.seed, step, spec.batch_size, len(latents.mean))
        shape = tuple(latents.mean.shape[1:])
        clean = latents.draw(chosen, chance.normal(spec.seed, "posterior", step, samples, shape).to(device))
        noise = chance.normal(spec.seed, "noise", step, samples, shape).to(device)
        count = base.noise.config.num_train_timesteps
        timesteps = chance.integers(spec.seed, "timestep", step, samples, count).to(device)
        chance.seed_torch(spec.seed, "layers", step)
        base.unet.train()
        with torch.autocast(device.type, base.unet.dtype, enabled=base.unet.dtype != torch.float32):
            loss = denoising_loss(base, clean, noise, timesteps, condition)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.weights.values(), spec.gradient_norm_max)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def resume(self, run: RunDirectory) -> int:
        """Go on from the newest good checkpoint, if there is one; returns the step that it was made after."""
        folders = (run.resume, run.checkpoints)
        state, rejected = checkpoint.newest_good(folders, self.identity.spec_hash)
        for sentence in rejected:
            print(sentence, file=sys.stderr)  # noqa: T201 - the trainer's standard error is the job's log
        if state is None:
            return 0
        changed = numerics.differences(state.manifest.fingerprint, self.identity.fingerprint)
        if changed:
            print(f"no longer exact to the bit: {changed}", file=sys.stderr)  # noqa: T201
        self.identity = checkpoint.Identity(
            spec_hash=self.identity.spec_hash,
            fingerprint=self.identity.fingerprint,
            exact=state.manifest.exact and not changed,
        )
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(state.weights[name])
        checkpoint.restore_optimizer(self.optimizer, list(self.weights), state.optimizer)
        return state.manifest.step

    def save(self, saver: checkpoint.Saver, step: int) -> float:
        """The seconds for which it held training up."""
        started_s = time.monotonic()
        moments = checkpoint.optimizer_tensors(self.optimizer, list(self.weights))
        saver.save(step, self.identity, weights=dict(self.weights), optimizer=moments)
        return time.monotonic() - started_s

    def measure_held_out(self, run: RunDirectory) -> list[dict[str, Any]]:
        """The loss of photos that were never trained on, with the base alone and with the LoRA."""
        if not self.spec.held_out:
            return []
        unet = self.base.unet.eval()
        latents = encode_photos(self.base, run.inputs / "held_out", self.spec.held_out, self.spec.resolution)
        condition = encode_prompt(self.base, self.spec.prompt, self.spec.resolution)
        unet.disable_adapters()
        before = held_out_losses(self.base, latents, condition, self.spec.seed)
        unet.enable_adapters()
        after = held_out_losses(self.base, latents, condition, self.spec.seed)
        return [
            {"photo": file.path, "loss_before": round(old, 6), "loss_after": round(new, 6)}
            for file, old, new in zip(self.spec.held_out, before, after, strict=True)
        ]

    def write_result(self, run: RunDirectory, held_out: list[dict[str, Any]]) -> None:
        """The weights as `StableDiffusionXLPipeline.load_lora_weights` takes them, and what is to be said of them."""
        self.base.unet.eval()
        settings = {
            key: sorted(value) if isinstance(value, set) else value for key, value in self.config.to_dict().items()
        }
        StableDiffusionXLPipeline.save_lora_weights(
            run.output,
            unet_lora_layers=convert_state_dict_to_diffusers(get_peft_model_state_dict(self.base.unet)),
            unet_lora_adapter_metadata=settings,
        )
        report = {
            "steps": self.spec.steps,
            "weights_digest": tensors_digest(run.output / WEIGHTS),
            "exact": self.identity.exact,
            "fingerprint": self.identity.fingerprint,
            "held_out": held_out,
        }
        (run.output / REPORT).write_text(json.dumps(report, indent=1) + "\n")


@dataclass(slots=True)
class SaveClock:
    """When a checkpoint is due: by time, and where asked also by steps."""

    every_s: float
    every_steps: int | None
    last_s: float = field(default_factory=time.monotonic)

    def due(self, step: int) -> bool:
        by_steps = self.every_steps is not None and step % self.every_steps == 0
        return by_steps or time.monotonic() - self.last_s >= self.every_s

    def saved(self) -> None:
        self.last_s = time.monotonic()


class Losses:
    """Sums losses on the device, so that the host waits for it only when it reports."""

    def __init__(self, device: torch.device) -> None:
        self.sum = torch.zeros((), device=device)
        self.count = 0
        self.last_s = time.monotonic()

    def add(self, loss: torch.Tensor) -> None:
        self.sum += loss
        self.count += 1

    @property
    def due(self) -> bool:
        return time.monotonic() - self.last_s >= REPORT_EVERY_S

    def take(self) -> tuple[int, float]:
        """How many there were, and their mean. Raises `Diverged` where it is not a number."""
        count, mean = self.count, self.sum.item() / self.count
        if not math.isfinite(mean):
            raise Diverged(f"the loss became {mean}: a lower learning rate may help")
        self.sum.zero_()
        self.count, self.last_s = 0, time.monotonic()
        return count, mean


def kind_of(error: Exception) -> FailureKind:
    match error:
        case BadInput():
            return "bad data"
        case Diverged():
            return "diverged"
        case torch.OutOfMemoryError() | MemoryError():
            return "out of memory"
        case OSError(errno=errno.ENOSPC):
            return "disk full"
        case _:
            return "crashed"


def main() -> int:
    parser = argparse.ArgumentParser(description="Train a LoRA in a directory that keeps the trainer contract.")
    parser.add_argument("directory", type=Path)
    run = RunDirectory(parser.parse_args().directory)
    orders = Orders()
    orders.obey_signals()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    disable_progress_bar()
    try:
        return train(run, orders)
    except Exception as error:
        kind = kind_of(error)
        run.report_failure(Failure(kind=kind, because=str(error) or type(error).__name__))
        if isinstance(error, BadInput):
            print(f"error: {error.message}", f"hint: {error.hint}" * bool(error.hint), sep="\n", file=sys.stderr)  # noqa: T201
            return EXIT_BAD_INPUT
        raise


if __name__ == "__main__":
    sys.exit(main())
