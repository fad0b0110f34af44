"""Pack results of which there are more than the service lists one by one."""

import os
import tarfile
from itertools import chain, count
from pathlib import Path

REST = "other_files.tar"


def pack_rest(output: Path, most: int) -> int:
    """Pack the smallest files into one archive, so that at most this many files are left. Return how many are packed."""
    found = sorted((path.stat().st_size, path) for path in output.rglob("*") if path.is_file())
    packed = [path for _, path in found[: len(found) - most + 1]] if len(found) > most else []
    if packed:
        with tarfile.open(output.with_name(f".{REST}"), "w") as archive:
            for path in sorted(packed):
                archive.add(path, path.relative_to(output))
                path.unlink()
        output.with_name(f".{REST}").rename(_free(output / REST))
    return len(packed)


def _free(place: Path) -> Path:
    """Return this path, or one beside it that no result has."""
    numbered = (place.with_name(f"{place.stem}_{number}{place.suffix}") for number in count(2))
    return next(path for path in chain([place], numbered) if not os.path.lexists(path))
