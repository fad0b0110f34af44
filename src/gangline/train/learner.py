"""The weights in training: a step, their average, what is saved of them, and how they go on from there. On one rank or on several."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from gangline.core.schedule import rate_factor
from gangline.core.scratch import Moment, ScratchSpec, moment, scratch_hash
from gangline.train import chance, numerics, shards
from gangline.train.checkpoint import Identity, Tensors
from gangline.train.denoiser import Denoiser
from gangline.train.intake import Samples
from gangline.train.optimiser import (
    Group,
    OptimizerState,
    make_optimizer,
    optimizer_state,
    restore_optimizer,
    set_rates,
)
from gangline.train.ranks import Ranks
from gangline.train.throughput import flops
from gangline.train.vae import Autoencoder

Network = Denoiser | Autoencoder
SHARDED = ("BasicTransformerBlock", "ResnetBlock2D", "CLIPEncoderLayer")
"""What FSDP gathers at a time."""
AT_A_TIME = 8
"""Samples, where there is no memory to be found out about, or none of it is needed for gradients."""
FIRST_SCALE, GROWS_AFTER = 2.0**16, 2000


@dataclass(slots=True)
class LossScale:
    """In float16 small gradients would vanish: they are computed of a multiple of the loss (Micikevicius et al. 2017, §3.2), doubled
    as long as nothing overflows. All ranks see the same norm, so all take or leave the same steps."""

    factor: float = 1.0
    steps: int = 0

    def took(self, finite: bool) -> None:
        self.steps = self.steps + 1 if finite else 0
        if not finite:
            self.factor /= 2
        elif self.steps == GROWS_AFTER:
            self.factor, self.steps = self.factor * 2, 0


@dataclass(slots=True)
class Average:
    """The exponential moving average of the weights, in place, from a first step on; before that there is none."""

    decay: float
    from_step: int
    tensors: Tensors = field(default_factory=dict)

    @torch.no_grad()
    def follow(self, step: int, weights: Tensors) -> None:
        """More closely at first, as the one of diffusers. Of sharded weights each rank averages its rows."""
        if step < self.from_step:
            return
        if not self.tensors:
            self.tensors = {name: weight.detach().clone() for name, weight in weights.items()}
        since = step - self.from_step
        decay = min(self.decay, (1 + since) / (10 + since))
        here = [shards.local(tensor) for tensor in self.tensors.values()]
        torch._foreach_lerp_(here, [shards.local(weights[name].detach()) for name in self.tensors], 1 - decay)


class Learner:
    """`history` holds what was measured of held out samples: step and value; `fitted` the phase that `microbatch` is of, `kept` what a
    checkpoint knows of its own phase."""

    def __init__(
        self, network: Network, spec: ScratchSpec, ranks: Ranks, device: torch.device, dtype: torch.dtype
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
        self.microbatch = 0
        self.fitted: int | None = None
        self.kept: dict[int, int] = {}
        self.compiled = not spec.compile
        exact = spec.exact != "off"
        self.identity = Identity(spec_hash=scratch_hash(spec), fingerprint=self._fingerprint(), exact=exact)

    def step(self, at: Moment, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        """One optimiser step; returns its loss and the norm of its gradient, of all ranks, still on the device."""
        chance.seed_torch(self.spec.seed, f"layers of rank {self.ranks.rank}", at.step)
        try:
            loss = self.ranks.sum(self._gradient(samples, at.phase.batch_size))
        except torch.OutOfMemoryError as error:
            raise _too_large(self.microbatch, at.phase.resolution) from error
        norm = self._norm()
        set_rates(self.optimizer, self.groups, self._rate(at))
        if self._is_taken(norm):
            weights = list(self.weights.values())
            torch.nn.utils.clip_grads_with_norm_(weights, self.spec.gradient_norm_max, norm)
            self.optimizer.step()
            if self.average:
                self.average.follow(at.step, self.weights)
        self.optimizer.zero_grad(set_to_none=True)
        return loss, norm

    def measure(self, samples: Samples) -> torch.Tensor:
        """Of each what its network measures of what is held out, (B,)."""
        with torch.no_grad(), self._in_dtype():
            return self.wrapped(samples.each(lambda tensor: tensor.to(self.device)), measured=True).float()

    def gauges(self) -> dict[str, float]:
        """What can be read off at any step."""
        names = ("learning_rate", "text_encoder_learning_rate")
        found = {name: group["lr"] for name, group in zip(names, self.optimizer.param_groups, strict=False)}
        if self.device.type == "cuda":
            found["memory_gb"] = torch.cuda.max_memory_allocated(self.device) / 1e9
        return found

    def _gradient(self, samples: Samples, batch_size: int) -> torch.Tensor:
        """Accumulated over pieces: that of the mean over all samples of all ranks. Returns this rank's part of the loss."""
        total = torch.zeros((), device=self.device)
        pieces = list(samples.pieces(self.microbatch))
        for number, piece in enumerate(pieces):
            with self._together(number == len(pieces) - 1):
                with self._in_dtype():
                    loss = self.wrapped(piece).sum() / batch_size
                # ranks' gradients are averaged, so each counts as often as there are ranks
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
        """In float16 a step whose gradient overflowed is left out."""
        if self.dtype != torch.float16:
            return True
        finite = bool(torch.isfinite(norm))
        self.scale.took(finite)
        return finite

    def _rate(self, at: Moment) -> float:
        own = at.phase.learning_rate
        return rate_factor(self.spec, at.step) * (own / self.spec.learning_rate if own else 1)

    def _in_dtype(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    @property
    def at_a_time(self) -> int:
        """Samples that surely fit where there are no gradients."""
        return self.microbatch or AT_A_TIME

    def fit(self, at: Moment, samples: Samples) -> bool:
        """Before the first step here, and before that of a phase: find how many samples fit, all ranks the same. The weights are left
        as they are. Returns whether there was anything to find. Raises `MemoryError` where not even one fits."""
        if self.fitted == at.number:
            return False
        known = at.phase.microbatch or self.kept.pop(at.number, 0)
        self.fitted = at.number
        on_card = self.device.type == "cuda"
        if on_card:
            with torch.compiler.set_stance("force_eager"):  # compiled kernels are not counted
                self.flops_per_image = flops(lambda: self._try(samples, 1))
        if known or not on_card:
            self.microbatch = min(known or AT_A_TIME, len(samples))
        else:
            self.microbatch = self._found(samples, at.phase.resolution)
        if not self.compiled:
            self._compile()
        if self.ranks.count > 1:
            self._try(samples, self.microbatch)  # DDP orders its buckets by what it sees in its first step
        fingerprint = self.identity.fingerprint | {"microbatch": str(self.microbatch)}
        self.identity = replace(self.identity, fingerprint=fingerprint)
        return True

    def _found(self, samples: Samples, resolution: int) -> int:
        reserved = self._reserved()
        most = largest(len(samples), lambda count: self.ranks.all(self._fits(samples, count)))
        del reserved
        torch.cuda.empty_cache()
        if most == 0:
            raise _too_large(1, resolution)
        return most

    def _fits(self, samples: Samples, count: int) -> bool:
        try:
            self._try(samples, count)
        except torch.OutOfMemoryError:
            return False
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        return True

    def _try(self, samples: Samples, count: int) -> None:
        with self._in_dtype():
            loss = self.wrapped(next(samples.pieces(count))).sum()
        loss.backward()
        self.optimizer.zero_grad(set_to_none=True)

    def _reserved(self) -> list[torch.Tensor]:
        """Room for what only comes with the first steps: two moments, and the average."""
        copies = (0 if self.optimizer.state else 2) + (self.average is not None and not self.average.tensors)
        return [torch.empty_like(shards.local(weight)) for weight in self.weights.values() for _ in range(copies)]

    def _compile(self) -> None:
        self.compiled = True
        for module in self.network.parts.values():
            module.compile()

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
        """Gradients go between ranks with the last piece of a step alone."""
        wrapped = self.wrapped
        if isinstance(wrapped, DistributedDataParallel) and not now:
            with wrapped.no_sync():
                yield
            return
        if isinstance(wrapped, FSDPModule):
            wrapped.set_requires_gradient_sync(now)
        yield

    def _groups(self) -> list[Group]:
        """What text encoders learn may have a rate of its own."""
        text = {name: weight for name, weight in self.weights.items() if name.startswith("text_encoder")}
        others = {name: weight for name, weight in self.weights.items() if name not in text}
        rates = (self.spec.learning_rate, self.spec.text_encoder_learning_rate or self.spec.learning_rate)
        return [Group(weights, rate) for weights, rate in zip((others, text), rates, strict=True) if weights]

    def _fingerprint(self) -> dict[str, str]:
        spec = self.spec
        packages = ("bitsandbytes",) if spec.optimizer == "adamw8bit" else ()
        common = numerics.fingerprint_of(self.device, self.dtype, 0, ranks=self.ranks.count, packages=packages)
        own = {"gradient_checkpointing": spec.gradient_checkpointing, "compile": spec.compile}
        how = spec.parallel if self.ranks.count > 1 else "alone"
        return common | {"parallel": how} | {name: "yes" if is_so else "no" for name, is_so in own.items()}

    @contextmanager
    def as_result(self) -> Iterator[None]:
        """With the averaged weights, where there are, in the place of those in training, which come back to the bit."""
        averaged = self.average.tensors if self.average else {}
        kept = {name: self.weights[name].detach().clone() for name in averaged}
        self._put(averaged)
        self.network.eval()
        try:
            yield
        finally:
            self._put(kept)
            self.network.train()

    @torch.no_grad()
    def _put(self, tensors: Tensors) -> None:
        for name, tensor in tensors.items():
            shards.local(self.weights[name]).copy_(shards.local(tensor))
        if isinstance(self.wrapped, FSDPModule):
            self.wrapped.reshard()  # what is gathered already is of before

    @property
    def in_pieces(self) -> bool:
        """Whether no rank has all of the weights."""
        return isinstance(self.wrapped, FSDPModule)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """So that parts can be used by themselves, by all ranks together where the weights are in pieces."""
        if isinstance(self.wrapped, FSDPModule):
            self.wrapped.unshard()
        try:
            yield
        finally:
            if isinstance(self.wrapped, FSDPModule):
                self.wrapped.reshard()

    def whole(self, part: str) -> Tensors:
        """All weights of a part, gathered by all ranks; on the CPU of the first one, and nowhere else."""
        found: Tensors = {}
        for name, tensor in self.network.parts[part].state_dict().items():
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.ranks.is_first:
                found[name] = full.detach().to("cpu", copy=True).contiguous()  # not those that training goes on with
        return found

    def save(self, saver: shards.Saver, step: int) -> float:
        """The seconds for which it held training up."""
        started_s = time.monotonic()
        state = optimizer_state(self.optimizer, self.weights)
        tensors = {shards.WEIGHTS + name: weight for name, weight in self.weights.items()}
        tensors |= {shards.OPTIMIZER + name: tensor for name, tensor in state.tensors.items()}
        if self.average:
            tensors |= {shards.AVERAGED + name: tensor for name, tensor in self.average.tensors.items()}
        numbers = {
            "optimizer": state.numbers,
            "loss_scale": [self.scale.factor, self.scale.steps],
            "held_out": self.history,
        }
        saver.save(step, self.identity, tensors, numbers)
        return time.monotonic() - started_s

    def resume(self, folders: tuple[Path, ...]) -> int:
        """Go on from the newest good checkpoint, if there is one; returns the step that it was made after."""
        stored, rejected = shards.newest_good(folders, self.identity.spec_hash, set(self.weights), self.ranks)
        for sentence in rejected:
            print(sentence, file=sys.stderr)  # noqa: T201 - the trainer's standard error is the job's log
        if stored is None:
            return 0
        step = stored.manifest.step
        self._take_numerics(stored.manifest.fingerprint, stored.manifest.exact, step)
        self._put(
            {name: self._same_rows(stored, shards.WEIGHTS + name, weight) for name, weight in self.weights.items()}
        )
        if self.average:
            self.average.tensors = {
                name: self._same_rows(stored, shards.AVERAGED + name, weight)
                for name, weight in self.weights.items()
                if shards.AVERAGED + name in stored.parts
            }
        self._restore_optimizer(stored)
        self.scale = LossScale(*stored.numbers["loss_scale"])
        self.history = [(at, value) for at, value in stored.numbers["held_out"]]
        return step

    def _same_rows(self, stored: shards.Stored, name: str, weight: torch.Tensor) -> torch.Tensor:
        """Those that this rank has of the weight; of what has another shape all."""
        if stored.shape(name) != tuple(weight.shape):
            return stored.rows(name, shards.Span((), 0, 2**62)).to(weight.device, copy=True)
        rows = stored.rows(name, shards.span(weight)).to(weight.device, copy=True)
        return shards.as_sharded_as(weight, rows)

    def _restore_optimizer(self, stored: shards.Stored) -> None:
        for key in stored.below(shards.OPTIMIZER):
            name, moment_name = key.removeprefix(shards.OPTIMIZER).rsplit("/", 1)
            weight = self.weights[name]
            self.optimizer.state[weight][moment_name] = self._same_rows(stored, key, weight)
        numbers = OptimizerState({}, stored.numbers["optimizer"])
        restore_optimizer(self.optimizer, self.weights, numbers)

    def _take_numerics(self, before: dict[str, str], exact: bool, step: int) -> None:
        """As many samples at a time as before in this phase; what else differs is said. Raises `OtherNumerics` where it must not."""
        self.kept = {moment(self.spec, step).number: int(before["microbatch"])}
        now = self.identity.fingerprint | {"microbatch": before["microbatch"]}
        changed = numerics.differences(before, now)
        if changed and self.spec.exact == "required":
            raise numerics.OtherNumerics(f"its checkpoint was made with other numerics: {changed}")
        if changed:
            print(f"no longer exact to the bit: {changed}", file=sys.stderr)  # noqa: T201
        self.identity = replace(self.identity, fingerprint=now, exact=self.identity.exact and exact and not changed)


def _too_large(samples: int, resolution: int) -> MemoryError:
    fewer = "set microbatch lower, " if samples > 1 else ""
    return MemoryError(
        f"{samples} samples of {resolution} pixels at a time do not fit into this GPU's memory: {fewer}set gradient_checkpointing, or "
        "parallel to fsdp over more GPUs, or ask for more memory (needs.gpu_memory_gb)"
    )


def largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest power of two, or `most` itself, that fits; 0 where not even 1 does."""
    found, count = 0, 1
    while fits(count):
        found = count
        if count == most:
            break
        count = min(2 * count, most)
    return found
