"""What every test shares: one thread for torch, quiet libraries, no network, and the photos and base of this repository."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import hashlib
from pathlib import Path

from gangline.core.files import File

ROOT = Path(__file__).parents[1]
BASE = ROOT / "assets" / "tiny-sdxl"
SUBJECT = ROOT / "examples" / "subject"


def file_at(path: Path, below: Path) -> File:
    content = path.read_bytes()
    return File(path=str(path.relative_to(below)), bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
