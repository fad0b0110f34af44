"""Pack results of which there are more than the service lists one by one."""

import os
import tarfile
from itertools import chain, count
from pathlib import Path

REST = "other_files.tar"


def pack_rest(output: Path, most: int) -> tuple[int, str]:
    """Pack the smallest files into one archive, so that at most this many files are left. Return how many are packed, and the
    archive's name."""
    found = sorted((path.stat().st_size, path) for path in output.rglob("*") if path.is_file())
    if len(found) <= most:
        return 0, ""
    packed, partial = [path for _, path in found[: len(found) - most + 1]], output.with_name(f".{REST}")
    with tarfile.open(partial, "w") as archive:
        for path in sorted(packed):
            archive.add(path, path.relative_to(output))
            path.unlink()
    return len(packed), partial.rename(_free(output / REST)).name


def _free(place: Path) -> Path:
    """Return this path, or one beside it that no result has."""
    numbered = (place.with_name(f"{place.stem}_{number}{place.suffix}") for number in count(2))
    return next(path for path in chain([place], numbered) if not os.path.lexists(path))
