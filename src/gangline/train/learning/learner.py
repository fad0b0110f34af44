"""The weights in training, a whole model's or a LoRA's, on one rank or on several: take steps, and read or replace the weights between
steps."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from gangline.core.runs.microbatch import settled
from gangline.core.runs.schedule import factor_of_step
from gangline.core.specs.phases import Moment
from gangline.core.specs.sample import TrainingSpec
from gangline.core.specs.spec import spec_hash
from gangline.train.checkpoints import shards
from gangline.train.checkpoints.manifest import CheckpointIdentity
from gangline.train.learning.average import FIRST_SCALE, Average, LossScale
from gangline.train.learning.buffers import Buffers
from gangline.train.learning.graph import Graphs
from gangline.train.learning.held_out import HeldOutCurve
from gangline.train.learning.microbatch import MicrobatchTrial, NoRoom, must_stay, too_large
from gangline.train.learning.network import Network, Samples
from gangline.train.learning.parallel import exchanging, wrapped_for
from gangline.train.model.compiled import compile_blocks, uncompiled
from gangline.train.run import chance, numerics
from gangline.train.run.memory import is_out_of_memory
from gangline.train.run.meter import KeptWeights, may_be_shown
from gangline.train.run.optimiser import averaged, make_groups, make_optimizer, rates_of, set_rates
from gangline.train.run.ranks import Ranks
from gangline.train.run.sample_tensors import StepSamples
from gangline.train.run.throughput import flops
from gangline.train.tensors import Tensors, weights_in_training

AT_A_TIME = 8
"""The microbatch size if there is no GPU memory to measure, or no gradients need memory."""


class Learner:
    """The weights in training on this rank, with their optimiser. `curve` holds the held-out measurements. `microbatch`
    was found for the phase `fitted`; `kept` is a checkpoint's size in its phase, `limits` the sizes to try in phases that memory ran out
    in. `began` is True once steps of this phase were taken with this microbatch. `best` are the weights of the curve's best step, if the
    result is to have them."""

    def __init__(
        self,
        network: Network,
        spec: TrainingSpec,
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
        self.curve = HeldOutCurve(network.higher_is_better)
        network.train()
        if spec.gradient_checkpointing:
            network.checkpoint_gradients()
        self.wrapped = wrapped_for(ranks, network, spec.parallel, device, dtype)
        self.weights: dict[str, Any] = weights_in_training(network.parts.items())
        self.groups = make_groups(spec, self.weights)
        self.buffers = Buffers(self.groups, spec.optimizer, dtype, flat=network.flat)
        network.use(self.buffers)
        self.optimizer = make_optimizer(spec, self.buffers.stepped)
        self.scale = LossScale(FIRST_SCALE if dtype == torch.float16 else 1.0)
        self.factor = torch.ones((), device=device)
        self.average = Average.begun(spec.ema_decay, spec.ema_from_step, self.wholes) if spec.ema_decay else None
        self.trial = MicrobatchTrial(
            passes=self._passes,
            needs_less=network.needs_less,
            buffers=self.buffers,
            optimizer=self.optimizer,
            average=self.average,
        )
        self.microbatch = 0
        self.fitted: int | None = None
        self.kept: dict[int, int] = {}
        self.pictured: KeptWeights | None = None
        self.best: Tensors = {}
        self.limits = limits or {}
        self.began = False
        self.compiled = not spec.compile
        exact = spec.exact != "off"
        replayed = device.type == "cuda" and network.can_be_replayed and not spec.compile
        self.graphs = Graphs(self.buffers.gradients, self._passes_of, exact=exact) if replayed else None
        fingerprint = numerics.fingerprint(device, dtype, spec, ranks=ranks.count) | network.decided_by
        self.identity = CheckpointIdentity(spec_hash=spec_hash(spec), fingerprint=fingerprint, exact=exact)

    @property
    def wholes(self) -> dict[str, Any]:
        """What is stepped, clipped and averaged: see `Buffers`."""
        return self.buffers.wholes

    def step(self, moment: Moment, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        """Take one optimiser step. Return its loss and gradient norm over all ranks, () and still on the device. Raise `MemoryError` if
        memory runs out, and on several ranks `NoRoom` as long as a smaller microbatch may fit."""
        with self._within_memory(moment):
            stepped = self._stepped(moment, samples)
        self.began = True
        return stepped

    def _stepped(self, moment: Moment, samples: Samples) -> tuple[torch.Tensor, torch.Tensor]:
        loss = self.ranks.sum(self._accumulated(moment, samples))
        norm = self._norm()
        set_rates(self.optimizer, self.groups, factor_of_step(self.spec, moment))
        if self._is_taken(norm):
            wholes = list(self.wholes.values())
            torch.nn.utils.clip_grads_with_norm_(wholes, self.spec.gradient_norm_max, norm)
            self.optimizer.step()
            self.buffers.refresh()
            if self.average:
                self.average.follow(moment.step, self.wholes)
        self.buffers.clear_gradients()
        return loss, norm

    def measure(self, samples: StepSamples) -> torch.Tensor:
        """Return the network's measure of each held-out sample, (B,)."""
        with torch.no_grad(), self._in_dtype():
            return self.wrapped(samples.each(lambda tensor: tensor.to(self.device)), measured=True).float()

    def gauges(self) -> dict[str, float]:
        """Return values that can be read at any step: the optimiser's learning rates, and the peak of allocated GPU memory in GB."""
        found = rates_of(self.optimizer, self.groups)
        if self.device.type == "cuda":
            found["memory_gb"] = torch.cuda.max_memory_allocated(self.device) / 1e9
        return found

    def forget_graphs(self) -> None:
        """Free the GPU memory that graphs hold; the next steps capture them again."""
        if self.graphs:
            self.graphs.forget()

    def _accumulated(self, moment: Moment, samples: Samples) -> torch.Tensor:
        """Accumulate the step's gradient. If memory runs out, drop the graphs and retry; then a single rank halves its microbatch."""
        while True:
            try:
                return self._gradient(moment, samples)
            except (MemoryError, RuntimeError) as error:
                held = bool(self.graphs and self.graphs.replayed)
                may = held or (self.ranks.count == 1 and self._may_halve(moment))
                if not is_out_of_memory(error) or not may:
                    raise
            self.buffers.clear_gradients()  # not in `except`: its traceback keeps the passes' tensors alive
            if held and self.graphs:
                self.graphs.stop("out of memory")
            else:
                self._halve()

    def _gradient(self, moment: Moment, samples: Samples) -> torch.Tensor:
        """Accumulate the gradient of the loss over all samples of all ranks, in pieces. Return this rank's part of the loss, ()."""

        def seed() -> None:
            chance.seed_torch(self.spec.seed, self.network.stream_of_layers(self.ranks.rank), moment.step)

        # DDP and FSDP average gradients over ranks; the factor makes it their sum
        self.factor.fill_(self.ranks.count * self.scale.factor)
        if self.graphs:
            return self.graphs.gradient(samples, seed)
        seed()
        return self._passes_of(samples)

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
        return too_large(self.microbatch, moment.phase.resolution, self.network.needs_less)

    def _passes_of(self, samples: Samples) -> torch.Tensor:
        return self._passes([piece for some in samples for piece in some.pieces(self.microbatch)])

    def _passes(self, pieces: Sequence[StepSamples]) -> torch.Tensor:
        total = torch.zeros((), device=self.device)
        for number, piece in enumerate(pieces):
            with exchanging(self.wrapped, number == len(pieces) - 1):
                with self._in_dtype():
                    loss = (self.wrapped(piece) * piece.share).sum()
                (loss * self.factor).backward()
            total += loss.detach()
        return total

    def _norm(self) -> torch.Tensor:
        gradients = self.buffers.gradients
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

    def _in_dtype(self) -> AbstractContextManager[Any]:
        if self.dtype == torch.float32 or not self.network.casts:
            return nullcontext()
        return torch.autocast(self.device.type, self.dtype)

    @property
    def at_a_time(self) -> int:
        """Samples that surely fit into memory when there are no gradients."""
        return self.microbatch or AT_A_TIME

    def fit(self, moment: Moment, samples: Samples) -> bool:
        """Find the microbatch before the first step here or of a phase, the same on all ranks; the weights stay as they are. Return False
        if this was already done. Raise `MemoryError` as `step` does."""
        if self.fitted == moment.number:
            return False
        self.fitted = moment.number
        kept = self.kept.pop(moment.number, 0)
        self.began = bool(kept)
        # Not those of this step: a LoRA's steps differ in their samples, and a run that resumes must compute as many at a time as before.
        most = moment.phase.batch_size // self.ranks.count
        known = settled(moment.phase.microbatch, self.limits.get(moment.number, 0), kept)
        if not self.network.fits_by_trial:
            known = known or most
        elif self.device.type != "cuda":
            known = known or AT_A_TIME
        self.microbatch = 1
        with self._within_memory(moment):
            with uncompiled():  # eager operations can be counted, and no size is compiled that no step has
                if self.device.type == "cuda" and self.network.fits_by_trial:
                    self.flops_per_image = flops(lambda: self.trial.run(samples[0], 1, pieces=1))
                self._compute_by(min(known, most) if known else self._found(moment, samples[0]))
            if not self.compiled:
                self._compile()
            if self.ranks.count > 1:
                self.trial.run(samples[0], self.microbatch)  # DDP orders its buckets by what it sees in its first step
        return True

    def _found(self, moment: Moment, samples: StepSamples) -> int:
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

    def averaged(self) -> Tensors:
        """Return the weights that are the result, by name; empty if they are those in training."""
        return self.buffers.by_weight(
            (self.average.tensors if self.average else {}) or averaged(self.optimizer, self.wholes)
        )

    def keep(self, step: int) -> None:
        """Copy the weights that pictures of this step will show: they are ordered only once its checkpoint is committed, some steps later.
        Each rank copies its shard; without shards only the first rank copies, which draws alone."""
        of_pictures = step and may_be_shown(self.spec.sample_every_steps, self.spec.sample_every_s, step)
        if of_pictures and (self.ranks.is_first or self.in_pieces):
            weights = self.weights | self.averaged()
            self.pictured = KeptWeights(
                step, {name: shards.local(weight).detach().to("cpu", copy=True) for name, weight in weights.items()}
            )

    def keep_best(self) -> None:
        """Keep the weights that would be the result now: they are its best ones so far."""
        if self.spec.stop_when_worse:
            self.best = {name: weight.detach().clone() for name, weight in (self.weights | self.averaged()).items()}

    @property
    def is_worse(self) -> bool:
        """Whether held-out samples were worse than the best so often that training ends: the same on all ranks."""
        return 0 < (self.spec.stop_when_worse or 0) <= self.curve.worse

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
        self.buffers.refresh()
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
