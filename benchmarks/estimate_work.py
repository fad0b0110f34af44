"""What `gangline estimate` computes, beside what was measured and published: `python benchmarks/estimate_work.py`. It measures nothing.

`time`: each figure beside the band that the program has for it, and the two constants (gangline.core.estimates.utilisation) beside
their fit; each card beside what the others alone say; figures that the constants were not fitted to. `host`: steps whose kernels were
launched one by one. `gpus`: what a doubling lost. `memory`: what an H100 had taken. A figure outside its band is marked so.
"""

import csv
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from gangline.core.estimates.forecast import forecast
from gangline.core.estimates.layers import encoder_layers, text_layers, unet_layers
from gangline.core.estimates.utilisation import (
    BALANCES,
    BAND_SHARE,
    LAUNCH_S,
    OP_S,
    REACHED,
    SERIES,
    SPREAD,
    Band,
    margin,
    reached_flops,
    step_s,
)
from gangline.core.estimates.work import (
    ComputeWork,
    Trained,
    decode_picture,
    denoise,
    forwards,
    lora_sample,
    training_work,
)
from gangline.core.files import File
from gangline.core.gpus import GpuKind, find_kind
from gangline.core.models.architecture import PUBLISHED_VAE
from gangline.core.models.families import SD2, SDXL
from gangline.core.specs.fields import FilesBase
from gangline.core.specs.lora import LoraSpec, parse_lora

PUBLISHED = Path(__file__).parents[1] / "tests" / "unit" / "estimates" / "published"
FILE = File(path="x.png", bytes=0, sha256="0" * 64)
OWN = "docs/performance.md"
MOSAIC = "MosaicML"
SALAD = "SaladCloud"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Seconds that a card took for `samples`, `microbatch` at a time. `series`: of one program on one card."""

    series: str
    what: str
    gpu: str
    sample: ComputeWork
    samples: int
    microbatch: int
    seconds: float
    replayed: bool = True
    """Or so large that the host does not matter."""

    @property
    def kind(self) -> GpuKind:
        return find_kind(self.gpu)

    def computed_s(self, op_s: float, reached: float) -> float:
        pieces = -(-self.samples // self.microbatch)
        return pieces * self.sample.ops * op_s + self.samples * self.sample.flops / reached_flops(
            self.kind, reached=reached
        )

    def band(self) -> Band:
        return step_s(self.sample, self.kind, samples=self.samples, microbatch=self.microbatch, replayed=self.replayed)


def lora(**settings: Any) -> LoraSpec:
    return parse_lora({"base": FilesBase(files=(FILE,)), "photos": (FILE,), "prompt": "x"} | settings)


def table(name: str) -> list[dict[str, str]]:
    lines = (PUBLISHED / name).read_text().splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def ours() -> Iterable[Figure]:
    """SDXL at 1024², rank 16, on an H100, as CUDA graphs."""
    for batch, again, seconds in (
        (1, False, 0.110),
        (4, False, 0.268),
        (8, False, 0.505),
        (1, True, 0.145),
        (4, True, 0.352),
    ):
        spec = lora(batch_size=batch, gradient_checkpointing=again)
        words = f"SDXL LoRA, batch {batch}{', checkpointing' if again else ''}"
        series = f"{OWN}, checkpointing" if again else OWN
        yield Figure(
            series=series,
            what=words,
            gpu="H100 SXM",
            sample=lora_sample(spec, SDXL),
            samples=batch,
            microbatch=batch,
            seconds=seconds,
        )


def mosaic() -> Iterable[Figure]:
    """SD 2 base from nothing on eight A100s: the U-Net alone, and with VAE and text encoder in each step."""
    unet = {side: training_work(unet_layers(SD2.unet, side), Trained(), again=False) for side in (256, 512)}
    of_eight = table("mosaic_unet_only.csv")[0]
    for side in (256, 512):
        rate = float(of_eight[f"images_per_second_{side}"]) / 8
        yield Figure(
            series=f"{MOSAIC}, {side} px",
            what=f"SD 2 U-Net, {side} px",
            gpu="A100 40GB",
            sample=unet[side],
            samples=16,
            microbatch=16,
            seconds=16 / rate,
        )
    whole = unet[512] + forwards(encoder_layers(PUBLISHED_VAE, 512)) + forwards(text_layers(SD2.text_encoders[0].shape))
    rate = float(table("mosaic_table1.csv")[0]["images_per_second"]) / 8
    yield Figure(
        series=f"{MOSAIC}, table 1",
        what="SD 2 with VAE and text, 512 px",
        gpu="A100 40GB",
        sample=whole,
        samples=4,
        microbatch=4,
        seconds=4 / rate,
    )


SALAD_RUN_S = 13 * 60 / 500
"""Its single run: 500 steps in 13 minutes, start and saves included. It says neither batch nor accumulation: those are its program's
defaults, one and four. Text encoders learn, and each step encodes its picture, as diffusers' script does."""


def salad() -> Iterable[Figure]:
    sample = lora_sample(lora(train_text_encoder=True), SDXL) + forwards(encoder_layers(PUBLISHED_VAE, 1024))
    yield Figure(
        series=SALAD,
        what="SDXL LoRA with text encoders, 4 × 1",
        gpu="RTX 4090",
        sample=sample,
        samples=4,
        microbatch=1,
        seconds=SALAD_RUN_S,
    )


def fitted_to() -> list[Figure]:
    return [*ours(), *mosaic(), *salad()]


def error(figures: Sequence[Figure], op_s: float, reached: float) -> float:
    """The sum over series of the mean squared logarithm."""
    series = dict.fromkeys(figure.series for figure in figures)
    return sum(
        mean(
            math.log(figure.computed_s(op_s, reached) / figure.seconds) ** 2
            for figure in figures
            if figure.series == one
        )
        for one in series
    )


def fit(figures: Sequence[Figure]) -> tuple[float, float, float]:
    """Both constants, and the standard deviation."""
    found = [
        (error(figures, op / 4e6, reached / 50), op / 4e6, reached / 50)
        for op in range(121)
        for reached in range(50, 400)
    ]
    least, op_s, reached = min(found)
    series = len({figure.series for figure in figures})
    return op_s, reached, math.sqrt(least / max(1, series - 2))


def show(figure: Figure, band: Band) -> None:
    held = "" if band.low <= figure.seconds <= band.high else "  outside"
    words = f"{band.low:8.3f} {band.middle:8.3f} {band.high:8.3f}"
    print(
        f"{figure.gpu:10} {figure.what:38} {words} {figure.seconds:9.3f} {band.middle / figure.seconds - 1:+7.0%}{held}"
    )


def time() -> None:
    figures = fitted_to()
    op_s, reached, spread = fit(figures)
    print(
        f"constants        used: {OP_S * 1e6:.2f} µs a pass, {REACHED:.2f} √(FLOP ÷ byte), spread {SPREAD:.3f} over {SERIES} series"
    )
    print(f"                fitted: {op_s * 1e6:.2f} µs a pass, {reached:.2f} √(FLOP ÷ byte), spread {spread:.3f}")
    factor = margin(find_kind("H100 SXM"))
    print(
        f"                band of {BAND_SHARE:.0%}: × and ÷ {factor:.2f}, more beyond {BALANCES[0]:g} to {BALANCES[1]:g} FLOP a byte"
    )
    print(f"\n{'seconds':10} {'':38} {'low':>8} {'middle':>8} {'high':>8} {'measured':>9} {'off':>7}")
    for figure in figures:
        show(figure, figure.band())
    print("\neach card by constants that the other cards give")
    for gpu in dict.fromkeys(figure.gpu for figure in figures):
        others = [figure for figure in figures if figure.gpu != gpu]
        op_s, reached, _ = fit(others)
        for figure in figures:
            if figure.gpu == gpu:
                middle = figure.computed_s(op_s, reached)
                show(figure, Band(low=middle / margin(figure.kind), middle=middle, high=middle * margin(figure.kind)))
    print("\neach series by constants that the other series give")
    for series in dict.fromkeys(figure.series for figure in figures):
        op_s, reached, _ = fit([figure for figure in figures if figure.series != series])
        for figure in figures:
            if figure.series == series:
                middle = figure.computed_s(op_s, reached)
                show(figure, Band(low=middle / margin(figure.kind), middle=middle, high=middle * margin(figure.kind)))
    print(
        "\nnot fitted to: a picture of SDXL in 30 steps, not optimised (the card of stabilityai/stable-diffusion-xl-1.0-tensorrt)"
    )
    for gpu, seconds in (("A10", 9.399), ("A100 80GB", 3.704), ("H100 SXM", 2.496)):
        picture = denoise(SDXL, 1024, steps=30) + decode_picture(SDXL, 1024)
        drawn = Figure(
            series="", what="30 steps and the VAE", gpu=gpu, sample=picture, samples=1, microbatch=1, seconds=seconds
        )
        show(drawn, drawn.band())
    print("\na plain share of the peak instead: what each figure reached of its card's")
    for figure in figures:
        share = figure.samples * figure.sample.flops / figure.seconds / (figure.kind.tflops * 1e12)
        print(f"{figure.gpu:10} {figure.what:38} {share:8.1%}")


def host() -> None:
    """The host's part, at the low end, in the middle and at the high end of `LAUNCH_S`."""
    print(
        f"\nlaunched one by one, {', '.join(f'{each * 1e6:g}' for each in LAUNCH_S)} µs a pass over a layer, on the H100 of {OWN}"
    )
    print(f"{'seconds':10} {'':38} {'low':>8} {'middle':>8} {'high':>8} {'measured':>9} {'off':>7}")
    for figure, seconds in zip(ours(), (0.797, 0.856, 1.173, 1.642, 1.270), strict=True):
        launched = replace(figure, seconds=seconds, replayed=False)
        show(launched, launched.band())
        print(f"{'':49} {seconds / launched.sample.ops * 1e6:.0f} µs a pass")
    sample = lora_sample(lora(), SDXL) + forwards(encoder_layers(PUBLISHED_VAE, 1024))
    peer = Figure(
        series="",
        what="diffusers' script, batch 1",
        gpu="H100 SXM",
        sample=sample,
        samples=1,
        microbatch=1,
        seconds=0.737,
        replayed=False,
    )
    show(peer, peer.band())
    print("what published throughput leaves a host at most")
    for figure in (*mosaic(), *salad()):
        pieces = figure.samples // figure.microbatch
        print(f"{figure.gpu:10} {figure.what:38} {figure.seconds / pieces / figure.sample.ops * 1e6:8.0f} µs a pass")


def gpus() -> None:
    print("\nhow much longer a step takes for twice as many GPUs with half of its work each, from 8 to 128")
    found = []
    for name, rows, of in (
        ("table 1", table("mosaic_table1.csv")[:-1], "images_per_second"),
        ("U-Net, 256 px", table("mosaic_unet_only.csv"), "images_per_second_256"),
        ("U-Net, 512 px", table("mosaic_unet_only.csv"), "images_per_second_512"),
    ):
        rates = [float(row[of]) for row in rows]
        found.append((len(rates) - 1, 2 ** (len(rates) - 1) * rates[0] / rates[-1]))
        each = ", ".join(f"{2 * first / second:.2f}" for first, second in pairwise(rates))
        doublings, lost = found[-1]
        print(f"{name:16} {lost ** (1 / doublings):6.3f} each: {each}")
    print(f"{'mean':16} {mean(lost ** (1 / doublings) for doublings, lost in found):6.3f}")


def memory() -> None:
    print(f"\n{'GB, H100, SDXL LoRA at 1024²':49} {'low':>8} {'high':>8} {'measured':>9}")
    h100 = find_kind("H100 SXM")
    for batch, again, precision, taken in (
        (1, False, "full", 13.7),
        (1, True, "full", 7.2),
        (4, False, "full", 36.4),
        (4, True, "full", 10.3),
        (8, False, "full", 67.1),
        (1, True, "4bit", 4.3),
    ):
        settings = {
            "batch_size": batch,
            "microbatch": batch,
            "gradient_checkpointing": again,
            "base_precision": precision,
        }
        spec = lora(**settings, dropout=0.1)  # it is under autocast, as all were when this was measured
        found = forecast(spec, SDXL, h100).memory
        held = "" if found.low_gb <= taken <= found.high_gb else "  outside"
        words = f"batch {batch}{', checkpointing' if again else ''}, base in {precision}"
        print(f"{words:49} {found.low_gb:8.1f} {found.high_gb:8.1f} {taken:9.1f}{held}")


PARTS: dict[str, Callable[[], None]] = {"time": time, "host": host, "gpus": gpus, "memory": memory}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
