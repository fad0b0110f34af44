"""A LoRA of SDXL at 1024²: how fast and in how much memory, by batch and with gradient checkpointing; beside a loop that keeps latents."""

from collections.abc import Iterator
from functools import cache, partial
from typing import Any

from benchmarks.on_card.part import Case, Rows
from benchmarks.on_card.results import Figures
from benchmarks.on_card.runs import counted_from_nothing, memory, middle_seconds, seconds_each, stepped
from benchmarks.on_card.scale import Scale

BATCHES = ((1, False), (1, True), (4, False), (4, True), (8, False), (16, False), (16, True), (32, True))
PLAIN = ((1, False), (1, True), (4, False), (4, True))
COMPILED: dict[str, dict[str, Any]] = {
    "batch 1, compiled": {"compile": True},
    "batch 4, compiled, exact off": {"batch_size": 4, "compile": True, "exact": "off"},
}
OURS, THEIRS = "ours, ", "a plain loop that keeps latents, "


def cases(scale: Scale) -> Iterator[Case]:
    """Ours and the plain loop in turns, so that a part that is cut off leaves pairs."""
    yield Case("a product of two matrices", lambda: peak(scale))
    for batch, checkpointing in BATCHES[:2] if scale.tiny else BATCHES:
        name = named(batch, checkpointing)
        settings = {"batch_size": batch, "gradient_checkpointing": checkpointing}
        yield Case(f"{OURS}{name}", partial(ours, scale, f"{OURS}{name}", settings))
        if (batch, checkpointing) in PLAIN:
            yield Case(f"{THEIRS}{name}", partial(plain, scale, f"{THEIRS}{name}", batch, checkpointing))


def compiled_cases(scale: Scale) -> Iterator[Case]:
    """On a card alone: on a processor it takes minutes and shows nothing."""
    for name, settings in {} if scale.tiny else COMPILED.items():
        yield Case(name, partial(ours, scale, name, settings))


def named(batch: int, checkpointing: bool) -> str:
    return f"batch {batch}" + ", gradient checkpointing" * checkpointing


@cache
def measured_peak(scale: Scale) -> float:
    """FLOP/s of a product of two square matrices of random numbers, in the precision of the steps."""
    import torch

    from gangline.train.run import numerics

    device, size = numerics.device(), 256 if scale.tiny else 8192
    dtype = numerics.dtype_of(scale.precision, device)
    one, other = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / middle_seconds(lambda: one @ other)


def peak(scale: Scale) -> Rows:
    from gangline.train.run import numerics
    from gangline.train.run.throughput import peak_flops

    row: Figures = {"what": f"a product of two matrices, {scale.precision}", "TFLOP/s": measured_peak(scale) / 1e12}
    if published := peak_flops(numerics.device()):
        row["the vendor's"] = published / 1e12
    yield row


def ours(scale: Scale, what: str, settings: dict[str, Any]) -> Rows:
    """As its trainer takes it, and kernel by kernel where that is a CUDA graph's replay."""
    count = 3 if scale.tiny else 12
    with stepped(scale, **settings) as run:
        begun_s = 2 * run.seconds_a_step(2)
        step_s = run.seconds_a_step(count)
        row = paced(scale, what, run.lora.spec.batch_size, step_s)
        row |= {"s, the first two": begun_s, "microbatch": run.lora.microbatch}
        if run.lora.graphs and run.lora.graphs.replayed:
            run.lora.graphs = None
            row["s/step, kernel by kernel"] = run.seconds_a_step(3)
    yield row


def paced(scale: Scale, what: str, batch: int, step_s: float) -> Figures:
    """The share of what a matrix product reaches here is told of SDXL itself alone."""
    row: Figures = {"what": what, "s/step": step_s, "images/s": batch / step_s}
    if not scale.tiny:
        rate = flops_per_image() * batch / step_s
        row |= {"TFLOP/s": rate / 1e12, "% of peak": 100 * rate / measured_peak(scale)}
    return row | memory()


@cache
def flops_per_image() -> int:
    from benchmarks.random_bases import SDXL, count_flops

    return count_flops(SDXL).unet


def plain(scale: Scale, what: str, batch: int, checkpointing: bool) -> Rows:
    """diffusers' U-Net, peft's LoRA and PyTorch's AdamW, put together as diffusers' script does. Latents and embeddings, of which only the
    shapes matter here, are on the card from the start."""
    import torch
    from benchmarks.random_bases import RANK
    from diffusers import DDPMScheduler, UNet2DConditionModel
    from diffusers.training_utils import cast_training_params
    from peft import LoraConfig

    from gangline.core.specs.sections.low_rank import ATTENTION
    from gangline.train.run import numerics

    counted_from_nothing()
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(0)
    device = numerics.device()
    dtype = numerics.dtype_of(scale.precision, device)
    unet = UNet2DConditionModel.from_pretrained(scale.sdxl.folder / "unet", torch_dtype=dtype).to(device)
    unet.requires_grad_(False)
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, init_lora_weights="gaussian", target_modules=list(ATTENTION)))
    cast_training_params(unet, dtype=torch.float32)
    if checkpointing:
        unet.enable_gradient_checkpointing()
    unet.train()
    weights = [weight for weight in unet.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    noising = DDPMScheduler.from_pretrained(scale.sdxl.folder / "scheduler")
    config, side = unet.config, scale.side // 8
    pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
    latents = torch.randn(batch, config.in_channels, side, side, device=device)
    words = torch.randn(batch, 77, config.cross_attention_dim, device=device, dtype=dtype)
    besides = {
        "text_embeds": torch.randn(batch, pooled, device=device, dtype=dtype),
        "time_ids": torch.tensor([[scale.side, scale.side, 0, 0, scale.side, scale.side]] * batch, device=device),
    }

    def take() -> None:
        noise = torch.randn_like(latents)
        timesteps = torch.randint(0, noising.config.num_train_timesteps, (batch,), device=device)
        noisy = noising.add_noise(latents, noise, timesteps)
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            predicted = unet(noisy.to(dtype), timesteps, words, added_cond_kwargs=besides).sample
        torch.nn.functional.mse_loss(predicted.float(), noise).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    seconds_each(take, 3)
    yield paced(scale, what, batch, seconds_each(take, 3 if scale.tiny else 12))


def sum_up(rows: list[Figures]) -> list[Figures]:
    """The batch of most images a second, and ours beside the plain loop."""
    rates = {row["what"]: row["images/s"] for row in rows if "images/s" in row}
    found: list[Figures] = []
    for checkpointed, how in ((False, "without"), (True, "with")):
        mine = {name: rate for name, rate in rates.items() if name.startswith(OURS)}
        mine = {name: rate for name, rate in mine.items() if ("gradient checkpointing" in name) == checkpointed}
        if mine:
            best = max(mine, key=lambda name: mine[name])
            what = f"the best {how} gradient checkpointing: {best.removeprefix(OURS)}"
            found.append({"what": what, "images/s": mine[best]})
    for name, rate in rates.items():
        theirs = rates.get(name.replace(OURS, THEIRS, 1))
        if name.startswith(OURS) and theirs:
            found.append({"what": f"ours beside the plain loop, {name.removeprefix(OURS)}", "times": rate / theirs})
    return found
