"""This machine by itself: versions, packages, disk, memory, and what it needs to train."""

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from shutil import disk_usage

from gangline.cli.doctor.findings import Finding, note, ok, wrong
from gangline.core.runs.proof import ASPECTS, DISK, MEMORY, shortages
from gangline.core.specs.kinds import KINDS, LIBRARIES
from gangline.version import VERSION

EXTRAS = {
    "server": ("fastapi", "uvicorn", "httptools", "aiosmtplib", "jinja2", "prometheus_client"),
    "postgres": ("psycopg", "psycopg_pool"),
    "train": LIBRARIES["train"],
    "captions": LIBRARIES["captions"],
    "data": LIBRARIES["data"],
    "s3": ("botocore", "obstore"),
    "exec": ("botocore", "obstore", "standardwebhooks"),
    "trackers": ("tensorboard", "wandb"),
    "figures": ("matplotlib",),
    "kubernetes": ("kubernetes",),
}
"""The packages of each extra, by the names under which they are imported."""

CPU_BUILD = "+cpu"


def versions() -> Finding:
    says = f"Gangline {VERSION}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return note(
            "versions",
            says,
            "this machine can be a client: it can ask a server; servers, workers and trainers run on Linux",
        )
    return ok("versions", says)


def packages() -> Finding:
    missing = {extra: [name for name in names if find_spec(name) is None] for extra, names in EXTRAS.items()}
    lacking = [extra for extra, names in missing.items() if names]
    if not lacking:
        return ok("packages", f"everything is installed ({', '.join(EXTRAS)})")
    there = [extra for extra in EXTRAS if extra not in lacking]
    says = f"installed: {', '.join(there) or 'only the client'}; not installed: {', '.join(lacking)}"
    return note("packages", says, f"install what this machine needs with pip install 'gangline[{','.join(lacking)}]'")


def room(folder: Path, memory_bytes: int) -> Iterator[Finding]:
    """Yield what is free of the disk that `folder` is on, or will be, and of memory."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free_bytes = disk_usage(there).free
    found = shortages(disk_free_bytes=free_bytes, folder=str(folder), memory_bytes=memory_bytes)
    says = {DISK: f"{free_bytes / 1e9:.0f} GB free for {folder}", MEMORY: f"{memory_bytes / 1e9:.0f} GB"}
    for about, fine in says.items():
        yield wrong(about, found[about]) if about in found else ok(about, fine)


def check_training(gpu: dict[str, str]) -> Iterator[Finding]:
    """Yield how it is with the card, and with each kind of job; libraries are loaded and the card computes, as on a worker that starts.

    `gpu` is the first card as its driver describes it; empty where there is none."""
    if find_spec("torch") is None:
        yield note(
            "training",
            "torch is not installed, so this machine cannot train",
            "to train here, run pip install 'gangline[train]'",
        )
        return
    from gangline.train.proof.libraries import prove, start_cards

    torch = _version_of("torch")
    if not gpu:
        says = (
            f"there is no GPU (nvidia-smi shows none); torch {torch} trains on the CPU, which is enough for tiny models"
        )
        yield note("card", says)
    elif torch.endswith(CPU_BUILD):
        yield wrong(
            "card",
            f"{_card(gpu)}, but torch {torch} is a build for CPUs",
            "install a build of torch for CUDA: `gangline docs install` says which",
        )
        return
    proof = prove(start_cards(gpu.get("gpu", "")))
    aspects = {aspect: proof["problems"][aspect] for aspect in ASPECTS if aspect in proof["problems"]}
    for sentence in aspects.values():
        yield wrong(
            "card",
            sentence,
            "check that torch's build is for this driver: `gangline docs install` says which to install",
        )
    if gpu and not aspects:
        yield ok("card", f"{_card(gpu)}; torch {torch}; {', '.join(proof['measured'].values())}")
    for name in KINDS:
        lack = proof["problems"].get(name)
        yield (
            note("training", f"{name} jobs cannot run: {lack}")
            if lack
            else ok("training", f"{name} jobs can run: their libraries load")
        )


def _card(gpu: dict[str, str]) -> str:
    return f"{gpu.get('gpu')} with {gpu.get('gpu_memory')}, driver {gpu.get('driver')}"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "without a version"
