"""What a card does, in one command without a network: `python benchmarks/card.py [PART …] --results FOLDER`.

exact      train, kill, go on: equal bits in each precision; and which attention kernels repeat themselves to the bit
step       a LoRA of SDXL at 1024²: seconds a step, images a second, share of the peak that a matrix product reaches here, memory; by batch,
           with and without gradient checkpointing and determinism
graph      the same steps as one CUDA graph, and launched kernel by kernel
beside     the same beside the scripts that --peer names, which may be given again
encode     latents of 256² and 512² and text embeddings of Stable Diffusion 2, images a second
scratch    Stable Diffusion 2's U-Net on those latents, beside the published 137.5 and 36.3 images a second of an A100
compiled   both by torch.compile
render     pictures of SDXL at 1024², 50 steps with guidance
profile    the dearest kernels of a LoRA's step, and how long the card waits between them
quantised  memory and speed with the base in 8 and 4 bits

All bases have random weights. Each part is a process of its own that ends within eight minutes, and its figures stay in FOLDER: said again,
only what is missing is run. Before anything else it names the packages that are lacking here. With --tiny, or without a card, the bases
are tiny: that shows that the parts work, and no figure of it means anything.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import argparse
import importlib.metadata
import json
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

PART_S = 480.0
BATCH = 32
"""Pictures that are encoded at a time."""

PUBLISHED = {256: 137.5, 512: 36.3}
"""Images a second of one A100, at the sides of the two phases (MosaicML, "Training Stable Diffusion from Scratch Costs <$160k", 2023)."""

Figures = dict[str, str | float | bool | None]


# ------------------------------------------------------------------------------------------------------------ what it runs on


@dataclass(frozen=True)
class Scale:
    """SDXL and Stable Diffusion 2 as they are, or tiny ones, with as many steps and pictures as tell something of them."""

    tiny: bool
    folder: Path

    @property
    def side(self) -> int:
        return 64 if self.tiny else 1024

    @property
    def exact_side(self) -> int:
        return 64 if self.tiny else 512

    @property
    def sides(self) -> tuple[int, ...]:
        return (32,) if self.tiny else (256, 512)

    @property
    def batches(self) -> dict[int, int]:
        """Of the two phases, on one card."""
        return {32: 4} if self.tiny else {256: 256, 512: 128}

    @property
    def steps(self) -> int:
        return 4 if self.tiny else 30

    @property
    def pictures(self) -> int:
        return 24 if self.tiny else 1024

    @cached_property
    def sdxl(self) -> Path:
        from tests.conftest import BASE

        if self.tiny:
            return BASE
        from benchmarks.trainer import make_base

        return self._once("sdxl", make_base)

    @cached_property
    def sd2(self) -> Path:
        return self._once("sd2", make_tiny_sd2 if self.tiny else make_sd2)

    @cached_property
    def captioned(self) -> Any:
        """Discs and boxes with captions."""
        from tests.train.sets import draw_pictures

        from gangline.data.dataset import open_data_set
        from gangline.data.making.conversion import Conversion
        from gangline.data.making.convert import convert
        from gangline.data.making.engine import Processes
        from gangline.data.making.fetch import Fetching
        from gangline.data.place import Place
        from gangline.data.sources import Hints, find_source

        target = Place(str(self.folder / "shapes.lance"))
        if not (self.folder / "shapes.made").exists():
            drawn = draw_pictures(self.folder / "shapes", self.pictures, side=max(self.sides))
            source, entries = find_source(Place(str(drawn)), Hints())
            convert(Conversion(source=source, target=target), entries, Processes(1), Fetching())
            (self.folder / "shapes.made").touch()
        return open_data_set(target)

    def _once(self, name: str, make: Callable[[Path], object]) -> Path:
        if not (self.folder / f"{name}.made").exists():
            make(self.folder / name)
            (self.folder / f"{name}.made").touch()
        return self.folder / name


def make_tiny_sd2(folder: Path) -> None:
    from tests.train.bases import save_tiny

    save_tiny(folder, "sd2")


def make_sd2(folder: Path) -> None:
    """Stable Diffusion 2's architecture."""
    import torch
    from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from gangline.train.model.clip import clip_tokenizer
    from gangline.train.model.layouts import NOISE

    torch.manual_seed(0)
    with torch.device("cuda"):
        unet = UNet2DConditionModel(
            sample_size=64, cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True
        )
        vae = AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            layers_per_block=2,
            latent_channels=4,
            sample_size=512,
        )
        text = CLIPTextModel(
            CLIPTextConfig(
                vocab_size=49408,
                hidden_size=1024,
                intermediate_size=4096,
                num_hidden_layers=23,
                num_attention_heads=16,
                hidden_act="gelu",
                projection_dim=512,
                bos_token_id=49406,
                eos_token_id=49407,
                pad_token_id=0,
            )
        )
    StableDiffusionPipeline(
        unet=unet,
        vae=vae,
        text_encoder=text,
        tokenizer=clip_tokenizer(0),
        scheduler=DDIMScheduler(**NOISE),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(folder)


# --------------------------------------------------------------------------------------------------------------------- a run


@cache
def files_of(base: Path) -> tuple[Any, ...]:
    from tests.conftest import file_at

    from gangline.core.models.bases import files_needed

    names = files_needed([str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()])
    return tuple(file_at(base / name, base) for name in names)


def lora_run(scale: Scale, name: str, **settings: Any) -> Path:
    """A directory that a LoRA's trainer can be started in, of the subject's photos."""
    from tests.conftest import SUBJECT, file_at

    from gangline.core.parsing import to_json
    from gangline.core.specs.fields import FilesBase
    from gangline.core.specs.lora import LoraSpec

    values: dict[str, Any] = {
        "base": FilesBase(files=files_of(scale.sdxl)),
        "photos": tuple(file_at(photo, SUBJECT) for photo in sorted(SUBJECT.glob("*.png"))[:5]),
        "prompt": "sks cat face, fluent emoji",
        "resolution": scale.side,
        "rank": 16,
        "alpha": 16,
        "steps": scale.steps,
        "batch_size": 1,
        "learning_rate": 1e-4,
        "precision": "fp32" if scale.tiny else "bf16",
        "checkpoint_every_s": 3600.0,
        "sample_every_steps": None,
        "sample_result": False,
    }
    inputs = {"base": scale.sdxl, "photos": SUBJECT}
    return laid_out(scale, name, to_json(LoraSpec(**(values | settings))), inputs)


def scratch_run(scale: Scale, data: Any, name: str, **settings: Any) -> Path:
    from tests.train.sets import reference

    from gangline.core.parsing import to_json
    from gangline.core.specs.fields import FilesBase
    from gangline.core.specs.scratch import ScratchSpec

    values: dict[str, Any] = {
        "base": FilesBase(files=files_of(scale.sd2)),
        "data": (reference(data),),
        "new": ("unet",),
        "learning_rate": 1e-4,
        "ema_decay": 0.9999,
        "caption_drop": 0.1,
        "text_embeddings": "required",
        "precision": "fp32" if scale.tiny else "bf16",
        "checkpoint_every_s": 3600.0,
    }
    return laid_out(scale, name, to_json(ScratchSpec(**(values | settings))), {"base": scale.sd2})


def laid_out(scale: Scale, name: str, spec: Any, inputs: dict[str, Path]) -> Path:
    directory = scale.folder / "runs" / f"{name}-{time.time_ns()}"
    (directory / "inputs").mkdir(parents=True)
    for what, target in inputs.items():
        (directory / "inputs" / what).symlink_to(target)
    (directory / "spec.json").write_text(json.dumps(spec))
    return directory


def start(module: str, directory: Path) -> "subprocess.Popen[bytes]":
    with (directory / "log.txt").open("ab") as log:
        return subprocess.Popen([sys.executable, "-m", module, str(directory)], stdout=log, stderr=log)


def finish(module: str, directory: Path) -> None:
    """Run to the end. Raises what its log said last where it fails."""
    if code := start(module, directory).wait():
        raise RuntimeError(f"{module} ended with {code}: {(directory / 'log.txt').read_text()[-2000:]}")


LORA, SCRATCH = "gangline.train.lora", "gangline.train.scratch"


def reports(directory: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (directory / "progress.jsonl").read_text().splitlines()]
    return [line for line in lines if line.get("metrics")]


def pace_of(directory: Path, first: int = 0, last: int | None = None) -> Figures:
    """Of the second half of the steps in between: the first ones choose kernels and take memory."""
    told = [line for line in reports(directory) if first < line["step"] <= (last or line["steps"])]
    told = told[len(told) // 2 :]
    metrics = [line["metrics"] for line in told]
    seconds = statistics.median(line["seconds_per_step"] for line in told)
    found: Figures = {"s_per_step": round(seconds, 4)}
    for name in ("images_per_second", "memory_gb", "share_of_peak"):
        values = [one[name] for one in metrics if name in one]
        if values:
            found[name] = round(statistics.median(values), 4)
    return found


# -------------------------------------------------------------------------------------------------------------------- parts


def exact(scale: Scale) -> Iterator[Figures]:
    """The precisions side by side, as no time is taken of them."""
    precisions = ("fp32",) if scale.tiny else ("bf16", "fp16", "fp32")
    _ = scale.sdxl, files_of(scale.sdxl)
    with ThreadPoolExecutor(len(precisions)) as threads:
        yield from threads.map(lambda precision: killed_beside_whole(scale, precision), precisions)
    yield from attention(scale)


def killed_beside_whole(scale: Scale, precision: str) -> Figures:
    settings = {"precision": precision, "resolution": scale.exact_side, "checkpoint_every_steps": 3, "steps": 6}
    whole, killed = (lora_run(scale, f"exact-{precision}-{which}", **settings) for which in ("whole", "killed"))
    finish(LORA, whole)
    process = start(LORA, killed)
    while not (killed / "checkpoints" / "000003" / "manifest.json").exists():
        assert process.poll() is None, (killed / "log.txt").read_text()[-2000:]
        time.sleep(0.005)  # noqa: TID251 - nothing tells when another process has saved
    process.kill()
    process.wait()
    at_death = not (killed / "output").exists()
    finish(LORA, killed)
    equal = result_digest(whole) == result_digest(killed)
    return {"what": f"LoRA, {precision}, killed after step 3 of 6", "killed in time": at_death, "equal bits": equal}


def result_digest(directory: Path) -> str:
    from gangline.core.models.lora_metadata import DIFFUSERS_FILE
    from gangline.train.run.digest import tensors_digest

    return tensors_digest(directory / "output" / DIFFUSERS_FILE)


def attention(scale: Scale) -> Iterator[Figures]:
    """Forwards and backwards twice by each kernel, at the shapes of SDXL's two levels."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from gangline.train.run import numerics

    numerics.choose_kernels(repeatable=True)
    device = numerics.device()
    dtype = torch.float32 if scale.tiny else torch.bfloat16
    shapes = ((1, 2, 64, 32),) if scale.tiny else ((1, 10, 4096, 64), (1, 20, 1024, 64))
    kernels = ["MATH"] if scale.tiny else ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "MATH"]
    for shape in shapes:
        torch.manual_seed(0)
        inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]

        def once(given: list[Any] = inputs) -> list[Any]:
            made = torch.nn.functional.scaled_dot_product_attention(*given)
            return [made.detach(), *torch.autograd.grad(made.float().square().sum(), given)]

        for kernel in kernels:
            found: Figures = {"what": f"attention {shape[1]} × {shape[2]} × {shape[3]}, {kernel.lower()}"}
            with sdpa_kernel(getattr(SDPBackend, kernel)):
                try:
                    first = once()
                    found["equal bits"] = all(
                        torch.equal(one, other) for _ in range(20) for one, other in zip(first, once(), strict=True)
                    )
                    found["ms"] = round(1000 * seconds_of(once), 3)
                    torch.use_deterministic_algorithms(False)
                    found["ms, any order"] = round(1000 * seconds_of(once), 3)
                except RuntimeError as error:
                    found["because"] = str(error).splitlines()[0][:100]
                torch.use_deterministic_algorithms(True)
            yield found


def seconds_of(work: Callable[[], object], times: int = 20) -> float:
    """The middle one of as many, by the card's own clock where there is one."""
    import torch

    work()
    taken = []
    for _ in range(times):
        if torch.cuda.is_available():
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            work()
            after.record()
            torch.cuda.synchronize()
            taken.append(before.elapsed_time(after) / 1000)
        else:
            started_s = time.perf_counter()
            work()
            taken.append(time.perf_counter() - started_s)
    return statistics.median(taken)


def measured_peak(scale: Scale) -> float:
    """FLOP/s of a product of two matrices of random numbers in the precision of the steps."""
    import torch

    from gangline.train.run import numerics

    side, dtype = (256, torch.float32) if scale.tiny else (8192, torch.bfloat16)
    one, other = (torch.randn(side, side, device=numerics.device(), dtype=dtype) for _ in range(2))
    return 2 * side**3 / seconds_of(lambda: one @ other)


STEPS: dict[str, dict[str, Any]] = {
    "batch 1": {},
    "batch 1, gradient checkpointing": {"gradient_checkpointing": True},
    "batch 1, exact off": {"exact": "off"},
    "batch 2": {"batch_size": 2},
    "batch 4": {"batch_size": 4},
    "batch 4, gradient checkpointing": {"batch_size": 4, "gradient_checkpointing": True},
    "batch 8": {"batch_size": 8},
    "batch 16, gradient checkpointing": {"batch_size": 16, "gradient_checkpointing": True},
}
COMPILED: dict[str, dict[str, Any]] = {
    "batch 1, compiled": {"compile": True},
    "batch 4, compiled, exact off": {"batch_size": 4, "compile": True, "exact": "off"},
}


def step(scale: Scale) -> Iterator[Figures]:
    yield from steps_of(scale, {"batch 1": {}} if scale.tiny else STEPS)


def steps_of(scale: Scale, cases: dict[str, dict[str, Any]]) -> Iterator[Figures]:
    from benchmarks.trainer import HERE, count_flops

    peak, flops = measured_peak(scale), count_flops(HERE).unet
    yield {"what": "a product of two matrices", "TFLOP/s": round(peak / 1e12, 1)}
    for what, settings in cases.items():
        directory = lora_run(scale, "step", **settings)
        try:
            finish(LORA, directory)
        except RuntimeError as error:
            yield {"what": what, "because": str(error).strip().splitlines()[-1][:100]}
            continue
        found = pace_of(directory)
        rate = flops * settings.get("batch_size", 1) / float(found["s_per_step"] or 1)
        shares: Figures = {} if scale.tiny else {"TFLOP/s": round(rate / 1e12, 1), "of peak": round(rate / peak, 3)}
        yield {"what": what} | found | shares


def beside(scale: Scale, peers: list[Path], rounds: int) -> Iterator[Figures]:
    """In turns; the middle of their times."""
    from benchmarks.trainer import Case, Ours, Peer, alone, launcher, middle_step_s

    started_with = launcher(scale.folder / "stand-in")
    sides = [Ours(scale.sdxl), *(Peer(peer, scale.sdxl, started_with) for peer in peers)]
    case = Case(steps=scale.steps + 10, save_every=20)
    ran: dict[str, list[Any]] = {side.name: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            ran[side.name].append(alone(side, case, scale.folder))
    ours = middle_step_s(ran[sides[0].name])
    for name, runs in ran.items():
        yield {
            "what": name,
            "s_per_step": round(middle_step_s(runs), 4),
            "slowest round": round(max(one.step_s for one in runs), 4),
            "s to the first step": round(statistics.median(one.to_first_step_s for one in runs), 1),
            "s a save": round(statistics.median(one.save_s() for one in runs), 3),
            "memory_gb": round(max(one.memory_bytes for one in runs) / 1e9, 1),
            "times ours": round(middle_step_s(runs) / ours, 2),
        }


def encode(scale: Scale) -> Iterator[Figures]:
    """In float32, as it is by default, and in bfloat16; what the decoder delivers is in it."""
    from gangline.train.scratch.encoder import Encoder

    data = scale.captioned
    rows = data.table.head(8 * BATCH, columns=["image", "sha256", "captions"]).to_batches()[0]
    for dtype in ("float32",) if scale.tiny else ("float32", "bfloat16"):
        for sides in (*((side,) for side in scale.sides), ()):
            encoder = Encoder(encoding_of(scale, data, sides, dtype))
            encoder.encode(rows.slice(0, BATCH))
            started_s = time.perf_counter()
            encoder.encode(rows)
            rate = rows.num_rows / (time.perf_counter() - started_s)
            what = f"latents of {sides[0]}²" if sides else "texts"
            yield {"what": f"{what}, {dtype}", "rows_per_second": round(rate, 1)}


def encoding_of(scale: Scale, data: Any, sides: tuple[int, ...], dtype: str = "float32", *, texts: bool = False) -> Any:
    """Texts where there are no sides, too."""
    from gangline.train.scratch.encoder import Encoding

    return Encoding(
        target=data.place,
        version=data.version,
        base=scale.sd2,
        vae=None,
        resolutions=sides,
        texts=texts or not sides,
        dtype=dtype,
        batch_size=BATCH,
    )


def with_columns(scale: Scale) -> Any:
    from gangline.data.making.engine import Processes
    from gangline.train.scratch.encode import encode

    data = scale.captioned
    return data if data.computed() else encode(data, encoding_of(scale, data, scale.sides, texts=True), Processes(1))


def scratch(scale: Scale) -> Iterator[Figures]:
    yield from scratch_of(scale, {"": {}, "exact off": {"exact": "off"}})


def compiled(scale: Scale) -> Iterator[Figures]:
    """On a card alone: on a processor it takes minutes and shows nothing."""
    if not scale.tiny:
        yield from steps_of(scale, COMPILED)
        yield from scratch_of(scale, {"exact off, compiled": {"exact": "off", "compile": True}})


def scratch_of(scale: Scale, kinds: dict[str, dict[str, Any]]) -> Iterator[Figures]:
    from gangline.core.specs.phases import Phase

    data = with_columns(scale)
    for kind, settings in kinds.items():
        for side, batch in scale.batches.items():
            phase = Phase(steps=scale.steps, resolution=side, batch_size=batch, latents="required")
            directory = scratch_run(scale, data, f"scratch-{side}", phases=(phase,), **settings)
            finish(SCRATCH, directory)
            found = pace_of(directory)
            published = PUBLISHED.get(side)
            shown: Figures = {}
            if published:
                times = float(found["images_per_second"] or 0) / published
                shown = {"an A100, published": published, "times that": round(times, 2)}
            yield {"what": ", ".join(filter(None, (f"{side}²", f"batch {batch}", kind)))} | found | shown


def render(scale: Scale) -> Iterator[Figures]:
    import torch

    from gangline.train.model.base import load_base
    from gangline.train.model.sample import render as picture_of
    from gangline.train.model.text import embed_all, tokenize
    from gangline.train.run import numerics
    from gangline.train.run.contract import RunDirectory

    steps = 2 if scale.tiny else 50
    for sampler in ("dpm++", "ddim"):
        spec = RunDirectory(lora_run(scale, "render", sample_sampler=sampler, sample_steps=steps)).read_lora()
        numerics.choose_kernels(repeatable=True)
        device = numerics.device()
        base = load_base(scale.sdxl, device, numerics.dtype_of(spec.precision, device))
        texts = tokenize(base, [spec.prompt, ""])
        spoken = embed_all(base, texts)
        taken, pictures = [], []
        for _ in range(2 if scale.tiny else 4):
            started_s = time.perf_counter()
            pictures.append(picture_of(base, spec, texts, spoken, spec.prompt, 1).tobytes())
            taken.append(time.perf_counter() - started_s)
        memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
        yield {
            "what": f"{scale.side}², {steps} steps of {sampler}",
            "s_per_picture": round(statistics.median(taken[1:]), 2),
            "equal bits": len(set(pictures)) == 1,
            "memory_gb": memory and round(memory, 1),
        }


def learner(scale: Scale, name: str, **settings: Any) -> tuple[Any, Any]:
    """A LoRA in training as its trainer has it, and what it is fed."""
    from tests.train.conftest import learner_of

    from gangline.train.run.contract import RunDirectory

    return learner_of(RunDirectory(lora_run(scale, name, **settings)))


def seconds_a_step(lora: Any, feed: Any, first: int, last: int) -> float:
    import torch

    started_s = time.perf_counter()
    for number in range(first, last):
        lora.step(number, feed.step(number))
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - started_s) / (last - first)


GRAPHS: dict[str, dict[str, Any]] = {
    "batch 1": {},
    "batch 1, gradient checkpointing": {"gradient_checkpointing": True},
    "batch 4": {"batch_size": 4},
    "batch 4, gradient checkpointing": {"batch_size": 4, "gradient_checkpointing": True},
    "batch 8": {"batch_size": 8},
}


def graph(scale: Scale) -> Iterator[Figures]:
    """On a card alone: without one there are no graphs."""
    import torch

    for what, settings in {} if scale.tiny else GRAPHS.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        lora, feed = learner(scale, "graph", **settings)
        capture_s = 2 * seconds_a_step(lora, feed, 1, 3)
        replayed_s = seconds_a_step(lora, feed, 3, 15)
        memory = torch.cuda.max_memory_reserved() / 1e9
        used = lora.graphs.replayed
        lora.graphs = None
        torch.cuda.empty_cache()
        launched_s = seconds_a_step(lora, feed, 15, 19)
        yield {
            "what": what,
            "graphs": used,
            "s_per_step": round(replayed_s, 4),
            "images_per_second": round(lora.spec.batch_size / replayed_s, 2),
            "launched one by one": round(launched_s, 4),
            "times faster": round(launched_s / replayed_s, 1),
            "s of the first two steps": round(capture_s, 1),
            "memory_gb": round(memory, 1),
        }
        del lora, feed


def profile(scale: Scale) -> Iterator[Figures]:
    """Three steps of a LoRA as its trainer takes them."""
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    lora, feed = learner(scale, "profile")
    on_card = torch.cuda.is_available()
    seconds_a_step(lora, feed, 1, 4)
    alone_s = seconds_a_step(lora, feed, 4, 14)
    with recorded(activities=[ProfilerActivity.CUDA if on_card else ProfilerActivity.CPU]) as found:
        seconds_a_step(lora, feed, 14, 17)
    rows = found.key_averages()
    own = {row.key: (row.self_device_time_total if on_card else row.self_cpu_time_total) / 3e6 for row in rows}
    busy_s = sum(own.values())
    yield {"what": "a step", "s": round(alone_s, 4), "kernels s": round(busy_s, 4), "busy": round(busy_s / alone_s, 3)}
    counts = {row.key: row.count / 3 for row in rows}
    yield {"what": "kernels a step", "count": round(sum(counts.values()))}
    for name in sorted(own, key=lambda one: -own[one])[:10]:
        yield {"what": name[:90], "ms": round(1000 * own[name], 2), "count": round(counts[name])}


def quantised(scale: Scale) -> Iterator[Figures]:
    for precision in ("full", "8bit", "4bit"):
        settings = {"base_precision": precision, "gradient_checkpointing": True}
        directory = lora_run(scale, f"quantised-{precision}", **settings, steps=min(20, scale.steps))
        try:
            finish(LORA, directory)
        except RuntimeError as error:
            yield {"what": precision, "because": str(error).strip().splitlines()[-1][:100]}
            continue
        yield {"what": f"rank 16, batch 1, gradient checkpointing, base {precision}"} | pace_of(directory)


PARTS: dict[str, Callable[..., Iterator[Figures]]] = {
    "exact": exact,
    "step": step,
    "graph": graph,
    "beside": beside,
    "encode": encode,
    "scratch": scratch,
    "compiled": compiled,
    "render": render,
    "profile": profile,
    "quantised": quantised,
}
NEEDS_BITSANDBYTES = ("quantised",)


# ------------------------------------------------------------------------------------------------------------ which, and shown


def lacking(extras: tuple[str, ...] = ("train", "data")) -> list[str]:
    """The packages that these extras need, and theirs in turn, and this machine has not."""
    from packaging.requirements import Requirement

    wanted = [Requirement(text) for text in importlib.metadata.requires("gangline") or []]
    asked = [one for one in wanted if not one.marker or any(one.marker.evaluate({"extra": name}) for name in extras)]
    seen: set[str] = set()
    found = []
    while asked:
        requirement = asked.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            own = importlib.metadata.requires(requirement.name) or []
        except importlib.metadata.PackageNotFoundError:
            found.append(str(requirement))
            continue
        asked += [one for one in map(Requirement, own) if not one.marker or one.marker.evaluate({"extra": ""})]
    return sorted(found)


def run_part(name: str, given: argparse.Namespace) -> None:
    """In a process of its own, which ends with all that it started where it takes too long."""
    command = [sys.executable, __file__, name, "--inside", "--results", str(given.results)]
    command += ["--rounds", str(given.rounds)]
    command += ["--tiny"] * given.tiny + [word for peer in given.peer for word in ("--peer", str(peer.resolve()))]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(given.part_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        print(f"{name}: cut off after {given.part_s:.0f} s")
    if code == 0:
        (given.results / f"{name}.done").touch()


def run_inside(name: str, given: argparse.Namespace) -> None:
    """Every row is written as it is found, so that what is cut off leaves those that it had."""
    scale = Scale(given.tiny, given.results / "work")
    scale.folder.mkdir(parents=True, exist_ok=True)
    options = {"peers": given.peer, "rounds": given.rounds} if name == "beside" else {}
    path = given.results / f"{name}.jsonl"
    path.unlink(missing_ok=True)
    started_s = time.monotonic()
    for row in PARTS[name](scale, **options):
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{name} {time.monotonic() - started_s:6.0f} s  {shown(row)}", flush=True)


def shown(row: Figures) -> str:
    figures = (f"{name} {value}" for name, value in row.items() if name != "what")
    return f"{row['what']}: {', '.join(figures)}"


def describe() -> str:
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no card"
    versions = (
        f"{package} {importlib.metadata.version(package)}" for package in ("torch", "diffusers", "transformers")
    )
    return ", ".join((name, f"Python {sys.version.split()[0]}", *versions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="which; all of them where none is named")
    parser.add_argument("--results", type=Path, default=Path("card"), help="where figures stay")
    parser.add_argument("--peer", type=Path, action="append", default=[], help="a script to run beside ours")
    parser.add_argument("--rounds", type=int, default=3, help="of ours and the peers, in turns")
    parser.add_argument("--tiny", action="store_true", help="tiny bases, as without a card")
    parser.add_argument("--part-s", type=float, default=PART_S, help="when a part is cut off")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    given.results = given.results.resolve()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONUNBUFFERED": "1"}
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if given.inside:
        run_inside(given.parts[0], given)
        return
    missing = lacking()
    fatal = [package for package in missing if not package.startswith("bitsandbytes")]
    if missing:
        print("lacking here: " + ", ".join(missing))
    if fatal:
        sys.exit("bring them as wheels, and say it again")
    import torch

    given.tiny = given.tiny or not torch.cuda.is_available()
    print(describe() + (": tiny bases, no figure means anything" if given.tiny else ""), flush=True)
    given.results.mkdir(parents=True, exist_ok=True)
    wanted = given.parts or [name for name in PARTS if name != "beside" or given.peer]
    for name in wanted:
        if missing and name in NEEDS_BITSANDBYTES:
            print(f"{name}: left out, as bitsandbytes is lacking")
        elif not (given.results / f"{name}.done").exists():
            run_part(name, given)
    print()
    for name in wanted:
        path = given.results / f"{name}.jsonl"
        print(f"== {name}" + ("" if (given.results / f"{name}.done").exists() else " (not whole)"))
        for line in path.read_text().splitlines() if path.exists() else []:
            print(f"  {shown(json.loads(line))}")


if __name__ == "__main__":
    main()
