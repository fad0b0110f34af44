"""Train a LoRA on photos of one subject: `python -m gangline.train.lora DIRECTORY`.

The directory keeps the trainer contract (gangline.core.runs.contract). Read `run_lora_trainer` from top to bottom: it is the whole run.
"""

import sys
import time
from dataclasses import replace
from typing import Any

import torch

from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED, pictures_name
from gangline.core.runs.schedule import rate_factor
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.spec import spec_hash
from gangline.data.chance import stream
from gangline.train.checkpoints import checkpoint
from gangline.train.lora.adapter import Adapter
from gangline.train.lora.batches import ExampleSource, LoraBatch, LoraBatches
from gangline.train.lora.graph import Graphs
from gangline.train.lora.inputs import TrainingInputs, gather
from gangline.train.lora.result import spoken_now, write_result
from gangline.train.model.base import LoadedBase, check_resolution, load_base
from gangline.train.model.compiled import compile_blocks
from gangline.train.model.loss import losses, process_of
from gangline.train.model.sample import show_step
from gangline.train.model.text import condition, embed, with_silence
from gangline.train.run import chance, numerics
from gangline.train.run.aside import left_out_without_memory
from gangline.train.run.contract import Orders, RunDirectory
from gangline.train.run.memory import is_out_of_memory
from gangline.train.run.meter import KeptWeights, LossMeter, SaveClock, may_be_shown
from gangline.train.run.optimiser import averaged, make_optimizer, optimizer_state, restore_optimizer, set_rates
from gangline.train.tensors import Tensors


def run_lora_trainer(run: RunDirectory, orders: Orders) -> int:
    """Run to the end, or until ordered to stop. Return the exit code."""
    run.report_phase("preparing")
    spec = run.read_lora()
    run.steps, run.images_per_step = spec.steps, spec.samples_per_step
    numerics.choose_kernels(repeatable=spec.exact != "off")
    device = numerics.device()
    dtype = numerics.dtype_of(spec.precision, device)
    base = base_of(run, spec, device, dtype)
    check_resolution(base, spec.resolution)
    fingerprint = numerics.fingerprint(device, dtype, spec)
    inputs = gather(run, base, spec, fingerprint, orders)
    if inputs is None:
        return EXIT_STOPPED
    base.forget("vae", *([] if spec.train_text_encoder else ["text_encoders"]))

    adapter = Adapter(base, spec)
    if spec.init_lora:
        adapter.start_from(run.inputs / "init_lora" / spec.init_lora.path, base)
    lora = Lora(base, spec, adapter, fingerprint | {"data": inputs.digest})
    run.step = lora.resume(run)
    lora.keep(run.step)
    batches = LoraBatches(sources(base, spec, inputs), device)
    saver = checkpoint.CheckpointSaver(run.checkpoints)
    saves = SaveClock(spec.checkpoint_every_s, (spec.checkpoint_every_steps, spec.sample_every_steps))
    meter = LossMeter(device)
    run.report_phase("training")
    run.restart_meter()
    for step in range(run.step + 1, spec.steps + 1):
        meter.add(*lora.step(step, batches.step(step)))
        save_now, render_now = orders.stop or orders.save or saves.due(step), orders.render
        if save_now or render_now or meter.due or step == spec.steps:
            count, loss, norm = meter.take()
            run.report_step(step, {"loss": loss, "gradient_norm": norm} | lora.gauges(), steps_since=count)
        if render_now:
            orders.render = False
            run.report_phase("rendering")
            draw_lora_samples(run, lora, inputs, lora.kept or KeptWeights(step, lora.averaged() or {}))
            run.report_phase("training")
            run.restart_meter()
        if save_now and step < spec.steps:
            orders.save = False
            run.report_phase("saving")
            run.save_s = lora.save(saver, step)
            lora.keep(step)
            saves.saved()
            run.report_phase("training")
            run.restart_meter()
            if orders.stop:
                saver.wait()
                return EXIT_STOPPED

    run.report_phase("saving")
    saver.wait()
    lora.forget_graphs()
    with lora.adapter.as_result(lora.averaged()):
        write_result(run, base, spec, inputs, lora.adapter, lora.identity)
    return EXIT_DONE


def base_of(run: RunDirectory, spec: LoraSpec, device: torch.device, dtype: torch.dtype) -> LoadedBase:
    return load_base(
        run.inputs / "base",
        device,
        dtype,
        vae=run.inputs / "vae" if spec.vae else None,
        prediction_type=spec.prediction_type,
        zero_terminal_snr=spec.zero_terminal_snr,
        base_precision=spec.base_precision,
        clip_skip=spec.clip_skip,
    )


def draw_lora_samples(run: RunDirectory, lora: "Lora", inputs: TrainingInputs, kept: KeptWeights) -> None:
    """Draw pictures of what would be the result, as far as memory suffices. Training continues as if they had not been drawn."""
    base, spec, step = lora.base, lora.spec, kept.step
    lora.forget_graphs()
    with (
        left_out_without_memory(f"pictures of step {step} are"),
        base.borrowed(),
        lora.adapter.as_result(kept.weights),
    ):
        spoken = spoken_now(base, inputs, lora.adapter)
        show_step(base, spec, inputs.words.texts, spoken, run.samples / pictures_name(step), step)


def sources(base: LoadedBase, spec: LoraSpec, inputs: TrainingInputs) -> list[ExampleSource]:
    """Return the source of the subject's photos and, with prior preservation, one of class images with as many samples in each step."""
    timesteps = base.noise.config.num_train_timesteps
    subject = ExampleSource(spec, inputs.photos, inputs.words, seed=spec.seed, timesteps=timesteps)
    if not inputs.class_images:
        return [subject]
    seed = int(stream(spec.seed, "class").integers(2**63))
    prior = {"seed": seed, "timesteps": timesteps, "share": spec.prior_weight}
    return [subject, ExampleSource(spec, inputs.class_images, inputs.words, **prior)]


class Lora:
    """The low-rank weights in training: take steps, save, and resume."""

    def __init__(self, base: LoadedBase, spec: LoraSpec, adapter: Adapter, fingerprint: dict[str, str]) -> None:
        self.base = base
        self.spec = spec
        self.adapter = adapter
        self.weights = self.adapter.weights
        self.groups = self.adapter.groups(spec)
        self.optimizer = make_optimizer(spec, self.groups)
        self.process = process_of(base, spec.min_snr_gamma)
        self.microbatch = int(fingerprint["microbatch"])
        exact = spec.exact != "off"
        self.identity = checkpoint.CheckpointIdentity(spec_hash=spec_hash(spec), fingerprint=fingerprint, exact=exact)
        self.scaler = torch.amp.GradScaler(base.device.type, enabled=base.dtype == torch.float16)
        self.ema = {name: weight.detach().clone() for name, weight in self.weights.items()} if spec.ema_decay else None
        self.kept: KeptWeights | None = None
        self.began = False
        self.adapter.train()
        if spec.gradient_checkpointing:
            self.adapter.checkpoint_gradients()
        if spec.compile:
            compile_blocks(base.unet, repeatable=exact)
        self.graphs = self._replays()

    def _replays(self) -> Graphs | None:
        """Return None without a GPU, and for passes that a replay was not seen to reproduce: text encoders in training (transformers makes
        another attention mask during a capture), dropout that checkpointing draws twice, and compiled blocks."""
        spec = self.spec
        drawn_twice = spec.gradient_checkpointing and self.adapter.draws
        if self.base.device.type != "cuda" or spec.train_text_encoder or spec.compile or drawn_twice:
            return None
        return Graphs(list(self.weights.values()), self._passes, exact=spec.exact != "off")

    def forget_graphs(self) -> None:
        if self.graphs:
            self.graphs.forget()

    def step(self, step: int, batches: list[LoraBatch]) -> tuple[torch.Tensor, torch.Tensor]:
        """Take one optimiser step. Return its loss and the norm of its gradient, () and still on the device."""
        loss = self._accumulate(step, batches)
        set_rates(self.optimizer, self.groups, rate_factor(self.spec, step))
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), self.spec.gradient_norm_max)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self._follow(step)
        self.began = True
        return loss, norm

    def gauges(self) -> dict[str, float]:
        """Return values that can be read at any step: the optimiser's learning rates, and the peak of allocated GPU memory in GB."""
        names = ("learning_rate", "text_encoder_learning_rate")
        groups = self.optimizer.param_groups  # d: Prodigy's estimate; scheduled_lr: schedule-free's rate in warm-up
        rates = [group.get("scheduled_lr", group["lr"]) * group.get("d", 1.0) for group in groups]
        found: dict[str, float] = dict(zip(names, rates, strict=False))
        if self.base.device.type == "cuda":
            found["memory_gb"] = torch.cuda.max_memory_allocated(self.base.device) / 1e9
        return found

    def _accumulate(self, step: int, batches: list[LoraBatch]) -> torch.Tensor:
        """Accumulate the step's gradient. If memory runs out, drop the graphs and retry, then halve the microbatch."""
        while True:
            try:
                return self._gradient(step, batches)
            except (RuntimeError, MemoryError) as error:
                held = bool(self.graphs and self.graphs.replayed)
                if not is_out_of_memory(error) or (self.microbatch == 1 and not held):
                    raise
            self.optimizer.zero_grad(set_to_none=True)  # not in `except`: its traceback keeps the passes' tensors alive
            if held and self.graphs:
                self.graphs.stop("out of memory")
            else:
                self._halve()

    def _gradient(self, step: int, batches: list[LoraBatch]) -> torch.Tensor:
        def seed() -> None:
            chance.seed_torch(self.spec.seed, "layers", step)

        if self.graphs:
            return self.graphs.gradient(batches, seed)
        seed()
        return self._passes(batches)

    def _passes(self, batches: list[LoraBatch]) -> torch.Tensor:
        total = torch.zeros((), device=self.base.device)
        for batch in batches:
            for piece in batch.pieces(self.microbatch):
                loss = (self._losses(piece) * piece.share).sum()
                self.scaler.scale(loss).backward()
                total += loss.detach()
        return total

    def _losses(self, batch: LoraBatch) -> torch.Tensor:
        base, dtype = self.base, self.base.dtype
        with torch.autocast(base.device.type, dtype, enabled=dtype != torch.float32):
            noisy = self.process.noisy(batch.clean, batch.noise, batch.timesteps)
            predicted = base.unet(noisy.to(dtype), batch.timesteps, **self._condition(batch)).sample
        return losses(self.process, predicted, batch.clean, batch.noise, batch.timesteps, batch.mask)

    def _condition(self, batch: LoraBatch) -> dict[str, Any]:
        embedded = batch.embedded or with_silence(self.base, embed(self.base, batch.ids), batch.said)
        return condition(self.base, embedded, batch.sizes)

    def _halve(self) -> None:
        """Halve the microbatch. If steps were already taken with the larger one, the run is no longer exact to the bit."""
        self.microbatch //= 2
        print(f"out of memory: continuing with {self.microbatch} samples at a time", file=sys.stderr)  # noqa: T201
        fingerprint = self.identity.fingerprint | {"microbatch": str(self.microbatch)}
        self.identity = replace(self.identity, fingerprint=fingerprint, exact=self.identity.exact and not self.began)
        torch.cuda.empty_cache()

    @torch.no_grad()
    def _follow(self, step: int) -> None:
        """Update the exponential moving average. As in diffusers, its decay starts low, so that it follows closely at first."""
        if self.ema and self.spec.ema_decay:
            decay = min(self.spec.ema_decay, (1 + step) / (10 + step))
            torch._foreach_lerp_(list(self.ema.values()), list(self.weights.values()), 1 - decay)

    def averaged(self) -> Tensors | None:
        """Return the weights that are the result, or None if they are those in training."""
        return self.ema or averaged(self.optimizer, self.weights)

    def resume(self, run: RunDirectory) -> int:
        """Resume from the newest valid checkpoint, if there is one. Return the step after which it was made, or 0."""
        folders = (run.resume, run.checkpoints)
        state, rejected = checkpoint.newest_good(folders, self.identity.spec_hash, set(self.weights))
        for sentence in rejected:
            print(sentence, file=sys.stderr)  # noqa: T201 - the trainer's standard error is the job's log
        if state is None:
            return 0
        self._take_numerics(state.manifest.fingerprint, state.manifest.exact)
        kept = state.snapshot
        self.adapter.load(kept.weights)
        if self.ema:
            self.ema = {name: kept.averaged[name].to(weight.device) for name, weight in self.weights.items()}
        restore_optimizer(self.optimizer, self.weights, kept.optimizer)
        if kept.scaler:
            self.scaler.load_state_dict(kept.scaler)
        self.began = True
        return state.manifest.step

    def _take_numerics(self, before: dict[str, str], exact: bool) -> None:
        """Take over the checkpoint's microbatch if it is smaller, and report other differences in numerics. Raise `OtherNumerics` if the
        job forbids them."""
        if int(before["microbatch"]) < self.microbatch:
            self.microbatch = int(before["microbatch"])
        now = self.identity.fingerprint | {"microbatch": str(self.microbatch)}
        changed = numerics.differences(before, now)
        if changed and self.spec.exact == "required":
            raise numerics.OtherNumerics(f"its checkpoint was made with other numerics: {changed}")
        if changed:
            print(f"no longer exact to the bit: {changed}", file=sys.stderr)  # noqa: T201
        self.identity = replace(self.identity, fingerprint=now, exact=self.identity.exact and exact and not changed)

    def keep(self, step: int) -> None:
        """Copy the weights that pictures of this step will show: they are ordered only once its checkpoint is committed, some steps
        later."""
        if step and may_be_shown(self.spec.sample_every_steps, self.spec.sample_every_s, step):
            weights = self.averaged() or self.weights
            self.kept = KeptWeights(
                step, {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}
            )

    def save(self, saver: checkpoint.CheckpointSaver, step: int) -> float:
        """Save a checkpoint. Return the seconds for which that held up training."""
        started_s = time.monotonic()
        saver.save(
            step,
            self.identity,
            checkpoint.Snapshot(
                weights=dict(self.weights),
                optimizer=optimizer_state(self.optimizer, self.weights),
                averaged=self.averaged() or {},
                scaler=self.scaler.state_dict(),
            ),
        )
        return time.monotonic() - started_s
