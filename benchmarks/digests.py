"""The bits that each mode of the trainers ends with: `python benchmarks/digests.py`, or beside another checkout of this repository:
`python benchmarks/digests.py --beside ../older`.

A mode is a short run of the tiny base as a process of its own. Its losses, the tensors of its checkpoint in the middle and those of its
result are each a SHA-256; beside another checkout, both run on this machine in turns, and what differs is printed. Digests
are comparable on one machine only: other kernels and other versions of libraries sum in another order.

--only      modes whose names contain one of these
--beside    the other checkout, whose `src` is run by this one's interpreter and libraries
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image, ImageDraw
from rich.console import Console
from rich.table import Table
from safetensors import deserialize
from tests.inputs import BASE, ROOT, SUBJECT, file_at
from tests.train.sets import data_set, reference, with_latents

STEPS, SAVED_AT, SIDE = 6, 3, 64
SHAPES = ((64, 40), (40, 64), (64, 64))
V = {"prediction_type": "v_prediction", "zero_terminal_snr": True}
CLASS = {"class_prompt": "cat face", "class_images": 2, "class_sample_steps": 2}
LORA: dict[str, dict[str, Any]] = {
    "ε-prediction": {},
    "v-prediction": V,
    "min-SNR": {"min_snr_gamma": 5.0},
    "text encoders": {"train_text_encoder": True, "text_encoder_learning_rate": 5e-4},
    "prior preservation": CLASS,
    "EMA": {"ema_decay": 0.9},
    "buckets": {"aspect_buckets": True, "crop": "random", "crops": 2, "flip": True},
    "accumulation": {"batch_size": 3, "microbatch": 2},
    "DoRA": {"dora": True},
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16"},
    "4 bit": {"base_precision": "4bit"},
    "dropout": {"dropout": 0.3},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "masks": {"mask": "alpha"},
    "noise offset, captions dropped": {"noise_offset": 0.05, "caption_drop": 0.4},
    "warm-up and cosine": {"warmup_steps": 2, "schedule": "cosine"},
    "8-bit AdamW": {"optimizer": "adamw8bit"},
    "Prodigy": {"optimizer": "prodigy", "learning_rate": 1.0},
    "schedule-free": {"optimizer": "schedule_free", "warmup_steps": 2},
    "all at once": {
        "aspect_buckets": True,
        "flip": True,
        **CLASS,
        "batch_size": 3,
        "microbatch": 2,
        "min_snr_gamma": 5.0,
        "train_text_encoder": True,
        "ema_decay": 0.95,
        "caption_drop": 0.2,
        "schedule": "linear",
    },
}
PHASE = {"steps": STEPS, "resolution": 32, "batch_size": 4}
SCRATCH: dict[str, tuple[int, dict[str, Any]]] = {
    "scratch, one rank": (1, {}),
    "scratch, two ranks": (2, {}),
    "scratch, two ranks, FSDP": (2, {"parallel": "fsdp"}),
    "scratch, text encoders": (1, {"new": ("unet", "text_encoders"), "train_text_encoders": True}),
    "scratch, fp16": (1, {"precision": "fp16"}),
    "scratch, phases": (
        1,
        {"phases": [PHASE | {"steps": 4}, PHASE | {"steps": 2, "microbatch": 3, "warmup_steps": 2}]},
    ),
    "scratch, min-SNR, v, no EMA": (1, V | {"min_snr_gamma": 5.0, "ema_decay": None}),
    "VAE": (1, {"part": "vae", "new": ("vae",)}),
}


@dataclass(frozen=True)
class Mode:
    name: str
    kind: str
    ranks: int
    spec: dict[str, Any]


@dataclass(frozen=True)
class Digests:
    """Of the loss and the norm of each step, of the tensors of the checkpoint after `SAVED_AT`, and of the result's."""

    losses: str
    checkpoint: str
    result: str

    def differences(self, other: "Digests") -> list[str]:
        return [name for name, digest in asdict(self).items() if digest != asdict(other)[name]]


# ------------------------------------------------------------------------------------------------------------- the modes


@dataclass(frozen=True)
class Inputs:
    """What all runs train on: photos of three shapes, and a data set whose latents are there."""

    folder: Path

    @property
    def photos(self) -> Path:
        return self.folder / "photos"

    def make(self) -> list[Mode]:
        self.photos.mkdir()
        for number, path in enumerate(sorted(SUBJECT.glob("*.png"))[:5]):
            with Image.open(path) as image:
                photo = image.convert("RGB").resize(SHAPES[number % 3])
                opaque = Image.new("L", photo.size, color=60)
                ImageDraw.Draw(opaque).ellipse((4, 4, photo.width - 4, photo.height - 8), fill=255)
                photo.putalpha(opaque)
                photo.save(self.photos / f"{number}.png")
        files = [asdict(file_at(path, BASE)) for path in sorted(BASE.rglob("*")) if path.is_file()]
        base = {"files": files}
        photos = [asdict(file_at(path, self.photos)) for path in sorted(self.photos.iterdir())]
        common = {"base": base, "steps": STEPS, "seed": 7, "learning_rate": 1e-3, "checkpoint_every_steps": 1}
        lora = common | {"kind": "lora", "photos": photos, "prompt": "sks cat, emoji, round", "resolution": SIDE}
        lora |= {"rank": 4, "batch_size": 2, "sample_result": False}
        shapes = data_set(self.folder)
        latents, pictures = asdict(reference(with_latents(shapes, BASE, 32))), asdict(reference(shapes))
        scratch = {name: value for name, value in common.items() if name != "steps"} | {"kind": "scratch"}
        scratch |= {"data": [latents], "phases": [PHASE], "new": ("unet",), "ema_decay": 0.9, "caption_drop": 0.1}
        made = [Mode(name, "lora", 1, lora | settings) for name, settings in LORA.items()]
        for name, (ranks, settings) in SCRATCH.items():
            data = {"data": [pictures]} if settings.get("part") == "vae" else {}
            made.append(Mode(name, "scratch", ranks, scratch | data | settings | {"needs": {"slots": ranks}}))
        return made


# ---------------------------------------------------------------------------------------------------------------- a run

RUN = """
import runpy, sys
from gangline.core.specs.kinds import KINDS
sys.argv = [KINDS[sys.argv[1]].program, *sys.argv[2:]]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def run(mode: Mode, checkout: Path, inputs: Inputs, folder: Path) -> Digests:
    """Raise `RuntimeError` with the end of its log if the run fails."""
    (folder / "inputs").mkdir(parents=True)
    (folder / "inputs" / "base").symlink_to(BASE)
    (folder / "inputs" / "photos").symlink_to(inputs.photos)
    (folder / "spec.json").write_text(json.dumps(mode.spec))
    threads = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-c", RUN, mode.kind, str(folder)]
    with (folder / "log").open("wb") as log:
        ended = subprocess.run(command, env=os.environ | threads, stdout=log, stderr=subprocess.STDOUT, check=False)
    if ended.returncode:
        raise RuntimeError(
            f"{mode.name} of {checkout} ended with {ended.returncode}:\n{(folder / 'log').read_text()[-3000:]}"
        )
    return Digests(
        losses=digest(losses(folder / "progress.jsonl")),
        checkpoint=digest(checkpoint(folder / "checkpoints" / f"{SAVED_AT:06d}")),
        result=digest(result(folder / "output")),
    )


def losses(progress: Path) -> Iterator[tuple[str, bytes]]:
    for line in progress.read_text().splitlines():
        report = json.loads(line)
        if report.get("loss") is not None:
            yield f"{report['step']:06d}", repr((report["loss"], report["metrics"]["gradient_norm"])).encode()


def result(output: Path) -> Iterator[tuple[str, bytes]]:
    for path in output.rglob("*.safetensors"):
        for name, tensor in deserialize(path.read_bytes()):
            yield f"{path.relative_to(output)} {name}", tensor["data"]


def checkpoint(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the tensors of a checkpoint by names that do not depend on how it is laid out in files."""
    for path in folder.glob("*.safetensors"):
        kind, _, rank = path.stem.partition("-")
        for name, tensor in deserialize(path.read_bytes()):
            yield f"{kind}/{name.removeprefix(f'{kind}/')} {int(rank or 0)}", tensor["data"]


def digest(parts: Iterable[tuple[str, bytes]]) -> str:
    total = hashlib.sha256()
    for name, content in sorted(parts):
        total.update(f"{name} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()[:16]


# -------------------------------------------------------------------------------------------------------------- figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the digests of what each mode of the trainers computes.")
    parser.add_argument("--only", nargs="*", default=[""], help="modes whose names contain one of these")
    parser.add_argument("--beside", type=Path, help="another checkout of this repository")
    asked = parser.parse_args()
    checkouts = [ROOT] if asked.beside is None else [asked.beside.resolve(), ROOT]
    columns = ("losses", "checkpoint", "result", *([f"as by {asked.beside.name}"] if asked.beside else []))
    table, unequal = Table("mode", *columns), 0
    with TemporaryDirectory() as folder:
        inputs = Inputs(Path(folder))
        chosen = [mode for mode in inputs.make() if any(part in mode.name for part in asked.only)]
        for number, mode in enumerate(chosen):
            found = [run(mode, of, inputs, Path(folder) / f"{number}-{place}") for place, of in enumerate(checkouts)]
            differences = found[0].differences(found[-1])
            unequal += bool(differences)
            same = [f"no: {', '.join(differences)}" if differences else "yes"] if asked.beside else []
            table.add_row(mode.name, *asdict(found[-1]).values(), *same)
            print(f"{number + 1} of {len(chosen)}: {mode.name}", *same, file=sys.stderr, flush=True)
    Console(width=120).print(table)
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
