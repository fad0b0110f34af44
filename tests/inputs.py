"""The photos and the base of this repository, for tests and benchmarks. It imports nothing that only tests need."""

import hashlib
from pathlib import Path

from gangline.core.files import File

ROOT = Path(__file__).parents[1]
BASE = ROOT / "assets" / "tiny-sdxl"
SUBJECT = ROOT / "examples" / "subject"


def file_at(path: Path, below: Path) -> File:
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    return File(path=str(path.relative_to(below)), bytes=path.stat().st_size, sha256=sha256)
