"""How large the images of `deploy/` are: `python benchmarks/images.py [--folder FOLDER]`, as root, with buildah and mmdebstrap.

It builds both on Debian with Python, the worker with torch for CPUs, and prints megabytes (10⁶ bytes, unpacked) beside what is allowed:
of the server all of its image, of the worker its own layers, without Python, torch and what torch needs.
"""

import argparse
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import shutil
import time
from tempfile import mkdtemp

from tests.deploy.images import Workshop, why_not

SERVER_BYTES_MAX, WORKER_BYTES_MAX = 250_000_000, 600_000_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, help="build in this folder and leave the images there")
    chosen = options.parse_args()
    if why := why_not():
        raise SystemExit(why)
    folder = chosen.folder or Path(mkdtemp(prefix="gangline-images-", dir="/var/tmp"))
    try:
        measure(folder)
    finally:
        if chosen.folder is None:
            shutil.rmtree(folder)


def measure(folder: Path) -> None:
    workshop = Workshop(folder)
    workshop.make_base()
    for name, most in (("server", SERVER_BYTES_MAX), ("worker", WORKER_BYTES_MAX)):
        began_s = time.monotonic()
        image = workshop.build(name)
        took_s = time.monotonic() - began_s
        base, *more = workshop.bytes_of_layers(image)
        print(f"{name:7} {counted(name, [base, *more]) / 1e6:6.1f} MB of {most / 1e6:.0f} MB; layers ", end="")
        print(" + ".join(f"{size / 1e6:.1f}" for size in (base, *more)), f"MB; built in {took_s:.0f} s")


def counted(name: str, layers: list[int]) -> int:
    """Return the bytes that the limit is for."""
    return sum(layers) if name == "server" else layers[-1]


if __name__ == "__main__":
    main()
