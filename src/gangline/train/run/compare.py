"""Compare two results: which tensors differ, and by how much. Tensors are compared if there are any, because files contain their dates."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from gangline.core.runs.interruption import Comparison, Difference

TENSORS = ".safetensors"
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
TensorEntry = dict[str, Any]


def compare_folders(expected: Path, found: Path) -> Comparison:
    """Compare all files below two folders."""
    names = _files(expected) | _files(found)
    with_tensors = sorted(name for name in names if name.endswith(TENSORS))
    others = [name for name in sorted(names) if not name.endswith(TENSORS) and not _same(expected / name, found / name)]
    if not with_tensors:
        unequal = tuple(Difference(file=name, because=_because(expected / name, found / name)) for name in others)
        return Comparison(compared=len(names), differences=unequal)
    compared, differences, off, whole = 0, list[Difference](), 0.0, 0.0
    for name in with_tensors:
        try:
            before, after = _tensors(expected / name), _tensors(found / name)
        except (OSError, SafetensorError) as error:
            differences.append(Difference(file=name, because=f"cannot be read: {error}"))
            continue
        compared += len(before.keys() | after.keys())
        differences += _differences(name, before, after)
        off += sum(_distance(before[key], after[key])[0] for key in before.keys() & after.keys())
        whole += sum(_distance(tensor, tensor)[1] for tensor in before.values())
    distance = (off / whole) ** 0.5 if whole else 0.0
    return Comparison(
        compared=max(compared, len(differences)),
        differences=tuple(differences),
        besides=tuple(others),
        relative_l2=distance,
    )


def _differences(file: str, expected: dict[str, TensorEntry], found: dict[str, TensorEntry]) -> Iterator[Difference]:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found or name not in expected:
            where = "interrupted" if name not in found else "uninterrupted"
            yield Difference(file=file, tensor=name, because=f"not in the {where} run's result")
            continue
        before, after = expected[name], found[name]
        kinds = [f"{tensor['dtype']} {list(tensor['shape'])}" for tensor in (before, after)]
        if kinds[0] != kinds[1]:
            yield Difference(file=file, tensor=name, because=f"{kinds[0]} became {kinds[1]}")
        elif before["data"] != after["data"]:
            off, whole = _distance(before, after)
            yield Difference(
                file=file, tensor=name, because="the bytes differ", relative_l2=(off / whole) ** 0.5 if whole else None
            )


def _distance(expected: TensorEntry, found: TensorEntry) -> tuple[float, float]:
    """Return ‖found − expected‖² and ‖expected‖²; zeros unless both are floating-point numbers of one shape."""
    before, after = _numbers(expected), _numbers(found)
    if before is None or after is None or before.shape != after.shape:
        return 0.0, 0.0
    return float(((after - before) ** 2).sum()), float((before**2).sum())


def _numbers(tensor: TensorEntry) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if tensor["dtype"] == "BF16":  # the upper half of a float32
        return (np.frombuffer(tensor["data"], np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    kind = FLOATS.get(tensor["dtype"])
    return None if kind is None else np.frombuffer(tensor["data"], kind).astype(np.float64)


def _tensors(path: Path) -> dict[str, TensorEntry]:
    return dict(deserialize(path.read_bytes()))


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _same(expected: Path, found: Path) -> bool:
    return expected.is_file() and found.is_file() and expected.read_bytes() == found.read_bytes()


def _because(expected: Path, found: Path) -> str:
    if not found.is_file():
        return "not in the interrupted run's result"
    return "the bytes differ" if expected.is_file() else "not in the uninterrupted run's result"
