"""The weights in training, on one rank or on several: take steps, and read or replace the weights between steps."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from gangline.core.runs.microbatch import settled
from gangline.core.runs.schedule import rate_factor, warm_up
from gangline.core.specs.scratch import Moment, ScratchSpec, scratch_hash
from gangline.train.checkpoints import shards
from gangline.train.checkpoints.checkpoint import CheckpointIdentity
from gangline.train.model.compiled import compile_blocks, uncompiled
from gangline.train.run import chance, numerics
from gangline.train.run.memory import is_out_of_memory
from gangline.train.run.meter import KeptWeights, may_be_shown
from gangline.train.run.optimiser import ParameterGroup, make_optimizer, set_rates
from gangline.train.run.ranks import Ranks
from gangline.train.run.throughput import flops
from gangline.train.scratch.average import FIRST_SCALE, Average, LossScale
from gangline.train.scratch.denoiser import Denoiser, ScratchBatch
from gangline.train.scratch.microbatch import MicrobatchTrial, NoRoom, must_stay, too_large
from gangline.train.scratch.vae import VaeModel
from gangline.train.tensors import Tensors

Network = Denoiser | VaeModel
SHARDED = ("BasicTransformerBlock", "ResnetBlock2D", "CLIPEncoderLayer")
"""The modules that FSDP gathers one at a time."""
AT_A_TIME = 8
"""The microbatch size if there is no GPU memory to measure, or no gradients need memory."""


class Learner:
    """The weights in training on this rank, with their optimiser. `history` holds step and value of each held-out measurement. `microbatch`
    was found for the phase `fitted`; `kept` is a checkpoint's size in its phase, `limits` the sizes to try in phases that memory ran out
    in. `began` is True once steps of this phase were taken with this microbatch."""

    def __init__(
        self,
        network: Network,
        spec: ScratchSpec,
        ranks: Ranks,
        device: torch.device,
        dtype: torch.dtype,
        limits: dict[int, int] | None = None,
    ) -> None:
        self.network = network
        self.spec = spec
        self.ranks = ranks
        self.device = device
        self.dtype = dtype
        self.flops_per_image = 0.0
        self.history: list[tuple[int, float]] = []
        if spec.gradient_checkpointing:
            network.checkpoint_gradients()
        self.wrapped = self._shared()
        self.weights: dict[str, Any] = {
            f"{part}.{name}": weight
            for part, module in network.parts.items()
            for name, weight in module.named_parameters()
            if weight.requires_grad
        }
        self.groups = self._groups()
        self.optimizer = make_optimizer(spec, self.groups)
        self.scale = LossScale(FIRST_SCALE if dtype == torch.float16 else 1.0)
        self.average = Average(spec.ema_decay, spec.ema_from_step) if spec.ema_decay else None
        self.trial = MicrobatchTrial(
            passes=lambda pieces: self._passes(pieces, 1),
            weights=self.weights,
            optimizer=self.optimizer,
            average=self.average,
        )
        self.microbatch = 0
        self.fitted: int | None = None
        self.kept: dict[int, int] = {}
        self.pictured: KeptWeights | None = None
        self.limits = limits or {}
        self.began = False
        self.compiled = not spec.compile
        exact = spec.exact != "off"
        self.identity = CheckpointIdentity(spec_hash=scratch_hash(spec), fingerprint=self._fingerprint(), exact=exact)

    def step(self, moment: Moment, samples: ScratchBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Take one optimiser step. Return its loss and gradient norm over all ranks, () and still on the device. Raise `MemoryError` if
        memory runs out, and on several ranks `NoRoom` as long as a smaller microbatch may fit."""
        with self._within_memory(moment):
            stepped = self._stepped(moment, samples)
        self.began = True
        return stepped

    def _stepped(self, moment: Moment, samples: ScratchBatch) -> tuple[torch.Tensor, torch.Tensor]:
        loss = self.ranks.sum(self._accumulated(moment, samples))
        norm = self._norm()
        set_rates(self.optimizer, self.groups, self._rate(moment))
        if self._is_taken(norm):
            weights = list(self.weights.values())
            torch.nn.utils.clip_grads_with_norm_(weights, self.spec.gradient_norm_max, norm)
            self.optimizer.step()
            if self.average:
                self.average.follow(moment.step, self.weights)
        self.optimizer.zero_grad(set_to_none=True)
        return loss, norm

    def measure(self, samples: ScratchBatch) -> torch.Tensor:
        """Return the network's measure of each held-out sample, (B,)."""
        with torch.no_grad(), self._in_dtype():
            return self.wrapped(samples.each(lambda tensor: tensor.to(self.device)), measured=True).float()

    def gauges(self) -> dict[str, float]:
        """Return learning rates and the peak of allocated GPU memory in GB."""
        names = ("learning_rate", "text_encoder_learning_rate")
        found = {name: group["lr"] for name, group in zip(names, self.optimizer.param_groups, strict=False)}
        if self.device.type == "cuda":
            found["memory_gb"] = torch.cuda.max_memory_allocated(self.device) / 1e9
        return found

    def _accumulated(self, moment: Moment, samples: ScratchBatch) -> torch.Tensor:
        """Accumulate the step's gradient. A single rank halves its microbatch and retries if memory runs out."""
        while True:
            chance.seed_torch(self.spec.seed, f"layers of rank {self.ranks.rank}", moment.step)
            try:
                return self._gradient(samples, moment.phase.batch_size)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or self.ranks.count > 1 or not self._may_halve(moment):
                    raise
            self.optimizer.zero_grad(set_to_none=True)  # not in `except`: its traceback keeps the passes' tensors alive
            self._halve()

    def _may_halve(self, moment: Moment) -> bool:
        must_not = self.began and self.spec.exact == "required"
        return self.microbatch > 1 and not moment.phase.microbatch and not must_not

    def _halve(self) -> None:
        """Halve the microbatch. If steps were already taken with the larger one, the run is no longer exact to the bit."""
        self._compute_by(self.microbatch // 2)
        self.identity = replace(self.identity, exact=self.identity.exact and not self.began)
        self.began = False
        print(f"out of memory: continuing with {self.microbatch} samples at a time", file=sys.stderr)  # noqa: T201
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def _within_memory(self, moment: Moment) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise self._without_memory(moment) from error

    def _without_memory(self, moment: Moment) -> MemoryError:
        """Return the error that says what to do about it."""
        if self.microbatch > 1 and not moment.phase.microbatch:
            if self.ranks.count > 1:
                return NoRoom(moment.number, self.microbatch, moment.phase.resolution)
            if self.began and self.spec.exact == "required":
                return must_stay(moment.number, self.microbatch)
        return too_large(self.microbatch, moment.phase.resolution)

    def _gradient(self, samples: ScratchBatch, batch_size: int) -> torch.Tensor:
        """Accumulate the gradient of the mean over all samples of all ranks, in pieces. Return this rank's part of the loss, ()."""
        return self._passes(list(samples.pieces(self.microbatch)), batch_size)

    def _passes(self, pieces: Sequence[ScratchBatch], batch_size: int) -> torch.Tensor:
        total = torch.zeros((), device=self.device)
        for number, piece in enumerate(pieces):
            with self._together(number == len(pieces) - 1):
                with self._in_dtype():
                    loss = self.wrapped(piece).sum() / batch_size
                # DDP and FSDP average gradients over ranks; the factor makes it their sum
                (loss * (self.ranks.count * self.scale.factor)).backward()
            total += loss.detach()
        return total

    def _norm(self) -> torch.Tensor:
        gradients = [weight.grad for weight in self.weights.values() if weight.grad is not None]
        if self.scale.factor != 1:
            torch._foreach_mul_([shards.local(gradient) for gradient in gradients], 1 / self.scale.factor)
        norm = torch.nn.utils.get_total_norm(gradients)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _is_taken(self, norm: torch.Tensor) -> bool:
        """Return whether to take the step: in float16, one whose gradient overflowed is skipped."""
        if self.dtype != torch.float16:
            return True
        finite = bool(torch.isfinite(norm))
        self.scale.took(finite)
        return finite

    def _rate(self, moment: Moment) -> float:
        own = moment.phase.learning_rate
        return rate_factor(self.spec, moment.step) * warm_up(moment) * (own / self.spec.learning_rate if own else 1)

    def _in_dtype(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    @property
    def at_a_time(self) -> int:
        """Samples that surely fit into memory when there are no gradients."""
        return self.microbatch or AT_A_TIME

    def fit(self, moment: Moment, samples: ScratchBatch) -> bool:
        """Find the microbatch before the first step here or of a phase, the same on all ranks; the weights stay as they are. Return False
        if this was already done. Raise `MemoryError` as `step` does."""
        if self.fitted == moment.number:
            return False
        self.fitted = moment.number
        kept = self.kept.pop(moment.number, 0)
        self.began = bool(kept)
        known = settled(moment.phase.microbatch, self.limits.get(moment.number, 0), kept)
        if self.device.type != "cuda":
            known = known or AT_A_TIME
        self.microbatch = 1
        with self._within_memory(moment):
            with uncompiled():  # eager operations can be counted, and no size is compiled that no step has
                if self.device.type == "cuda":
                    self.flops_per_image = flops(lambda: self.trial.run(samples, 1, pieces=1))
                self._compute_by(min(known, len(samples)) if known else self._found(moment, samples))
            if not self.compiled:
                self._compile()
            if self.ranks.count > 1:
                self.trial.run(samples, self.microbatch)  # DDP orders its buckets by what it sees in its first step
        return True

    def _found(self, moment: Moment, samples: ScratchBatch) -> int:
        """Find the microbatch by trying if alone, else by the least of all ranks' guesses: an error would leave DDP and FSDP broken."""
        if self.ranks.count == 1:
            return self.trial.largest(samples, moment.phase.resolution)
        one = self.trial.peak(samples, 1)
        self.microbatch = min(2, len(samples))
        two = self.trial.peak(samples, self.microbatch)
        return self.ranks.least(self.trial.guess((one, two), len(samples)))

    def _compute_by(self, microbatch: int) -> None:
        self.microbatch = microbatch
        fingerprint = self.identity.fingerprint | {"microbatch": str(microbatch)}
        self.identity = replace(self.identity, fingerprint=fingerprint)

    def _compile(self) -> None:
        self.compiled = True
        for module in self.network.parts.values():
            compile_blocks(module, repeatable=self.spec.exact != "off")

    def _shared(self) -> Any:
        network = self.network
        if self.ranks.count == 1:
            return network
        if self.spec.parallel == "ddp":
            return DistributedDataParallel(network, broadcast_buffers=False, gradient_as_bucket_view=True)
        half = self.dtype if self.dtype != torch.float32 else None
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32, cast_forward_inputs=False)
        mesh = self.ranks.mesh(self.device)
        for module in [module for module in network.modules() if type(module).__name__ in SHARDED]:
            fully_shard(module, mesh=mesh, mp_policy=policy)
        return fully_shard(network, mesh=mesh, mp_policy=policy)

    @contextmanager
    def _together(self, now: bool) -> Iterator[None]:
        """Exchange gradients between ranks only in the last piece of a step."""
        wrapped = self.wrapped
        if isinstance(wrapped, DistributedDataParallel) and not now:
            with wrapped.no_sync():
                yield
            return
        if isinstance(wrapped, FSDPModule):
            wrapped.set_requires_gradient_sync(now)
        yield

    def _groups(self) -> list[ParameterGroup]:
        """Return the parameter groups: text encoders may have another learning rate."""
        text = {name: weight for name, weight in self.weights.items() if name.startswith("text_encoder")}
        others = {name: weight for name, weight in self.weights.items() if name not in text}
        rates = (self.spec.learning_rate, self.spec.text_encoder_learning_rate or self.spec.learning_rate)
        return [ParameterGroup(weights, rate) for weights, rate in zip((others, text), rates, strict=True) if weights]

    def _fingerprint(self) -> dict[str, str]:
        spec = self.spec
        packages = ("bitsandbytes",) if spec.optimizer == "adamw8bit" else ()
        common = numerics.fingerprint_of(self.device, self.dtype, 0, ranks=self.ranks.count, packages=packages)
        own = {
            "parallel": spec.parallel if self.ranks.count > 1 else "alone",
            "gradient_checkpointing": "yes" if spec.gradient_checkpointing else "no",
            "compile": numerics.COMPILED if spec.compile else "no",
        }
        return common | own

    def averaged(self) -> Tensors:
        """Return the weights that are the result, by name; empty if they are those in training."""
        return self.average.tensors if self.average else {}

    def keep(self, step: int) -> None:
        """Copy the weights that pictures of this step will show: they are ordered only once its checkpoint is committed, some steps later.
        Each rank copies its shard; without shards only the first rank copies, which draws alone."""
        of_pictures = step and may_be_shown(self.spec.sample_every_steps, self.spec.sample_every_s, step)
        if of_pictures and (self.ranks.is_first or self.in_pieces):
            weights = self.weights | self.averaged()
            self.pictured = KeptWeights(
                step, {name: shards.local(weight).detach().to("cpu", copy=True) for name, weight in weights.items()}
            )

    @contextmanager
    def as_result(self, weights: Tensors | None = None) -> Iterator[None]:
        """Use `weights`, by default the averaged ones if there are any, inside this context, without compiling. The weights in training are
        restored bit for bit."""
        shown = self.averaged() if weights is None else weights
        kept = {name: self.weights[name].detach().clone() for name in shown}
        self.put(shown)
        self.network.eval()
        try:
            with uncompiled():
                yield
        finally:
            self.put(kept)
            self.network.train()

    @torch.no_grad()
    def put(self, tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            shards.local(self.weights[name]).copy_(shards.local(tensor))
        if isinstance(self.wrapped, FSDPModule):
            self.wrapped.reshard()  # drop gathered copies of the old weights

    @property
    def in_pieces(self) -> bool:
        """Whether every rank has only a shard of the weights."""
        return isinstance(self.wrapped, FSDPModule)

    def whole(self, part: str) -> Tensors:
        """Return all weights of a part, gathered from all ranks, on the CPU of the first rank; the others return nothing."""
        found: Tensors = {}
        for name, tensor in self.network.parts[part].state_dict().items():
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.ranks.is_first:
                found[name] = full.detach().to("cpu", copy=True).contiguous()  # a copy: training changes them
        return found
