"""Preparing photos beside the bare decoder: `python benchmarks/photos.py [--photos 300] [--rounds 3]`.

Photos of 12 megapixels are made up (JPEG, quality 90, 4:2:0). In turns, as many photos a second as
  decoder   Pillow decodes alone, in as many processes as ours has: nothing else is done with the pixels
  + cut     the same with the cut to 1024 × 1024 pixels that every trainer needs
  ours      `decoded` as a run has it: cut, brought to the trainer, which throws them away
  latents   all that a run does before its first step, with a VAE; the tiny base's where there is no card, else SDXL's with random weights
  one       one process that decodes each photo twice, once for its size: as Gangline 1 did, without the VAE
  plan      what `gangline train --plan` does: each photo is decoded and looked at, by a few threads
  plan, 1   the same by one thread
and the most memory that ours took, trainer and processes, for these photos and for four times as many (hard links).
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import numpy as np
from PIL import Image

from gangline.data.images.ahead import PROCESSES_MAX, decoded
from gangline.data.images.buckets import Size, cut_view, views
from gangline.data.images.decoding import Asked
from gangline.data.images.photos import READERS, find_photos
from gangline.data.images.pixels import read_photo, upright_size
from gangline.posix import cores

SIZE = (4000, 3000)
DIFFERENT = 12
TARGET = Size(width=1024, height=1024)
BASE = Path(__file__).parents[1] / "assets" / "tiny-sdxl"


def make_photo(path: Path, number: int) -> None:
    """Something large, something fine and some noise: 3 to 4 MB, as a camera's."""
    rng = np.random.default_rng(number)
    small = Image.fromarray(rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
    fine = Image.fromarray(rng.integers(0, 255, (1000, 1333, 3), dtype=np.uint8)).resize(SIZE, Image.Resampling.BICUBIC)
    noise = rng.normal(0, 6, (SIZE[1], SIZE[0], 1))
    pixels = np.asarray(Image.blend(small, fine, 0.15), dtype=np.float32) + noise
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, "JPEG", quality=90)


def make_photos(folder: Path, count: int) -> list[Path]:
    """A few are made, the others are links to them: the disk's cache holds all, so decoding is what takes time."""
    made = [folder / f"{number:05d}.jpg" for number in range(count)]
    for number, path in enumerate(made):
        if number < DIFFERENT:
            make_photo(path, number)
        else:
            path.hardlink_to(made[number % DIFFERENT])
    return made


def asked_of(path: Path) -> Asked:
    width, height = upright_size(path)
    return Asked(photo=path, mask=None, views=tuple(views(Size(width=width, height=height), TARGET)))


def bare(path: Path) -> None:
    with Image.open(path) as image:
        image.load()


def bare_and_cut(path: Path) -> None:
    with Image.open(path) as image:
        image.load()
        cut_view(image, views(Size(width=image.width, height=image.height), TARGET)[0])


def by_processes(work: Callable[[Path], None], photos: list[Path], processes: int) -> float:
    """Photos a second, once the processes are there."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(work, photos[: 4 * processes]))
        started_s = time.monotonic()
        list(pool.map(work, photos))
        return len(photos) / (time.monotonic() - started_s)


def ours(photos: list[Path], processes: int) -> float:
    """Their sizes and their start count, too."""
    started_s = time.monotonic()
    with closing(decoded([asked_of(path) for path in photos], processes)) as coming:
        assert sum(1 for _ in coming) == len(photos)
    return len(photos) / (time.monotonic() - started_s)


def one(photos: list[Path], _: int) -> float:
    some = photos[: max(10, len(photos) // 10)]
    started_s = time.monotonic()
    for path in some:
        size = read_photo(path).size
        cut_view(read_photo(path), views(Size(width=size[0], height=size[1]), TARGET)[0])
    return len(some) / (time.monotonic() - started_s)


def planned(photos: list[Path], threads: int) -> float:
    started_s = time.monotonic()
    found = find_photos(photos[0].parent, threads=threads)
    return len(found.photos) / (time.monotonic() - started_s)


def with_latents(photos: list[Path], _: int) -> float:
    """In a process of its own, whose libraries are loaded before the clock starts."""
    command = [sys.executable, __file__, "--latents", str(photos[0].parent), "--photos", str(len(photos))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def make_latents(folder: Path, count: int) -> None:
    import torch

    from gangline.core.files import File
    from gangline.core.specs.fields import HubBase
    from gangline.core.specs.lora import LoraSpec
    from gangline.train.lora.prepare import encode_examples, plan_pictures
    from gangline.train.model.base import load_base
    from gangline.train.run import numerics

    numerics.choose_kernels(repeatable=True)
    device = numerics.device()
    base = load_base(BASE, device, torch.float32)
    if device.type == "cuda":
        from diffusers import AutoencoderKL

        sdxl: dict[str, Any] = {
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
            "block_out_channels": (128, 256, 512, 512),
            "layers_per_block": 2,
            "latent_channels": 4,
        }
        vae: Any = AutoencoderKL(**sdxl)
        base.__dict__["vae"] = vae.to(device)
    names = sorted(path.name for path in folder.glob("*.jpg"))[:count]
    files = tuple(File(path=name, bytes=1, sha256="0" * 64) for name in names)
    resolution = TARGET.width if device.type == "cuda" else 64
    spec = LoraSpec(base=HubBase(repo="a/b"), photos=files, prompt="x", resolution=resolution)
    (folder / "inputs").mkdir(exist_ok=True)
    if not (folder / "inputs" / "photos").exists():
        (folder / "inputs" / "photos").symlink_to(folder)
    base.vae.encode(torch.zeros(1, 3, resolution, resolution, device=device))
    started_s = time.monotonic()
    planned = plan_pictures(spec, folder / "inputs", base.side_unit)
    pictures = [picture for of_size in planned.values() for picture in of_size]
    with closing(decoded([picture.asked for picture in pictures], min(cores(), PROCESSES_MAX))) as coming:
        encode_examples(base, pictures, coming)
    print(len(pictures) / (time.monotonic() - started_s))


def memory_mb(photos: list[Path], processes: int) -> tuple[float, float]:
    """The most that the trainer's side took beyond what it had, and that the largest of the processes took."""
    command = [sys.executable, __file__, "--memory", str(photos[0].parent), "--photos", str(len(photos))]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(words[-2]), float(words[-1])


def take_memory(folder: Path, count: int) -> None:
    asked = [asked_of(path) for path in sorted(folder.glob("*.jpg"))[:count]]
    before = peak_mb()
    with closing(decoded(asked, min(cores(), PROCESSES_MAX))) as coming:
        for _ in coming:
            pass
    print(peak_mb() - before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3)


def peak_mb() -> float:
    """Since this program began: getrusage would count what its parent had when it forked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def show(photos: list[Path], rounds: int, folder: Path) -> None:
    processes = min(cores(), PROCESSES_MAX)
    sides: dict[str, Callable[[], float]] = {
        "decoder": lambda: by_processes(bare, photos, processes),
        "+ cut": lambda: by_processes(bare_and_cut, photos, processes),
        "ours": lambda: ours(photos, processes),
        "latents": lambda: with_latents(photos, processes),
        "one": lambda: one(photos, processes),
        "plan": lambda: planned(photos, READERS),
        "plan, 1": lambda: planned(photos, 1),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(side())
    mb = statistics.mean(path.stat().st_size for path in photos[:DIFFERENT]) / 1e6
    print(
        f"{len(photos)} photos of 12 megapixels ({mb:.1f} MB), {processes} processes, {READERS} threads, {rounds} rounds"
    )
    middle = {name: statistics.median(rates) for name, rates in found.items()}
    for name, rates in found.items():
        share = middle[name] / middle["decoder"]
        print(
            f"{name:8} {middle[name]:7.2f} photos/s ({min(rates):.2f} to {max(rates):.2f})  {share:.2f} of the decoder"
        )
    print(f"10,000 photos: {10_000 / middle['latents'] / 60:.0f} min, before {10_000 / middle['one'] / 60:.0f} min")
    many = folder / "many"
    many.mkdir()
    more = [many / f"{number:05d}.jpg" for number in range(4 * len(photos))]
    for number, path in enumerate(more):
        path.hardlink_to(photos[number % len(photos)])
    for some in (photos, more):
        own, child = memory_mb(some, processes)
        print(f"{len(some)} photos: {own:.0f} MB in the trainer, {child:.0f} MB in the largest process")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latents", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.latents or given.memory:
        make_latents(given.latents, given.photos) if given.latents else take_memory(given.memory, given.photos)
        return
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        (Path(folder) / "photos").mkdir()
        show(make_photos(Path(folder) / "photos", given.photos), given.rounds, Path(folder))


if __name__ == "__main__":
    main()
