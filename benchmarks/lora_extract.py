"""Peak memory and time of `gangline lora extract` for a pair of checkpoints of a published size, beside the files' size:
`python benchmarks/lora_extract.py [FAMILY] [ONE_IN] [RANK]` (sdxl, 8, 32).

The base is a single file of zeros (fp16), the tuned one is random in one of every ONE_IN layers that are compared, and equal elsewhere, so
that the pair takes little of the disk and of the time: each layer of both is read, but only those that differ are decomposed. `libraries`
is the memory of a process that imports what the command imports, and reads nothing.
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import json
import resource
import struct
import subprocess
import time
from math import prod
from tempfile import TemporaryDirectory

import numpy as np
from tests.train.bases import in_original_layout
from tests.train.model.test_bases import published

from gangline.core.models.lora_names import IN_A_TRANSFORMER

LIBRARIES = "from gangline.train.lora.files import extract"
COMMAND = """
import sys
from pathlib import Path
from gangline.train.lora.files.extract import extract_lora
base, tuned, to, rank = sys.argv[1:]
made = extract_lora(Path(base), Path(tuned), Path(to), int(rank))
print(made.layers, made.equal)
"""


def main(family: str, one_in: int, rank: int) -> None:
    unet, vae, encoders = published(family)
    tensors = {name: tuple(t.shape) for name, t in in_original_layout(unet, vae, encoders, family).items()}
    with TemporaryDirectory() as folder:
        base, tuned = (sparse(Path(folder) / f"{name}.safetensors", tensors) for name in ("base", "tuned"))
        fill(tuned, tensors, one_in)
        libraries = peak_gb("-c", LIBRARIES)
        started = time.monotonic()
        words = run("-c", COMMAND, str(base), str(tuned), str(Path(folder) / "lora.safetensors"), str(rank))
        seconds = time.monotonic() - started
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        size = base.stat().st_size / 2**30
        print(f"{family}: two files of {size:.2f} GiB; layers that differ and that do not: {words}")
        print(f"peak {peak:.2f} GiB, libraries {libraries:.2f} GiB, {seconds:.0f} s at rank {rank}")


def sparse(path: Path, shapes: dict[str, tuple[int, ...]]) -> Path:
    entries, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * prod(shape)
        entries[name] = {"dtype": "F16", "shape": shape, "data_offsets": [start, end]}
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + end)
    return path


def fill(path: Path, shapes: dict[str, tuple[int, ...]], one_in: int) -> None:
    random = np.random.default_rng(0)
    with path.open("r+b") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        entries = json.loads(file.read(length))
        ends = tuple(f".{end}.weight" for end in IN_A_TRANSFORMER)
        names = [name for name in shapes if name.startswith("model.diffusion_model.") and name.endswith(ends)]
        for name in names[::one_in]:
            file.seek(8 + length + entries[name]["data_offsets"][0])
            file.write((random.standard_normal(prod(shapes[name]), np.float32) * 0.01).astype(np.float16).tobytes())


def run(*words: str) -> str:
    return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout.strip()


def peak_gb(*words: str) -> float:
    run(*words)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0] if given else "sdxl", *(int(value) for value in (given[1:] + ["8", "32"][len(given[1:]) :])))
