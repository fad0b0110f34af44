"""Tensors that were prepared under a key: they are looked up among the inputs before they are made, and kept for other runs afterwards."""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file

from gangline.core.errors import Damaged
from gangline.core.runs import contract
from gangline.core.runs.contract import Prepared, parse_prepared
from gangline.train.checkpoints.manifest import check_file
from gangline.train.run.contract import RunDirectory
from gangline.train.run.digest import hashed_file
from gangline.train.tensors import Tensors

SUFFIX = ".safetensors"


class LeftOut(Exception):
    """Raised when a part of the base was not downloaded because its output is prepared, but the prepared tensors do not fit this machine.
    The trainer exits with `EXIT_LEFT_OUT`, and is started again once the part is there."""


def need(run: RunDirectory, parts: tuple[str, ...]) -> None:
    """Raise `LeftOut` if one of these parts of the base was not downloaded. Call it before their weights are loaded."""
    path = run.path / contract.LEFT_OUT
    missing = {*parts} & {*json.loads(path.read_text())} if path.exists() else set()
    if missing:
        raise LeftOut(
            f"{', '.join(sorted(missing))}: not downloaded, and the tensors that were prepared do not fit this machine"
        )


def find_prepared(run: RunDirectory, key: str) -> Path | None:
    """Return the folder that was prepared under `key`, with every byte checked, or None if there is none or it is damaged."""
    for folder in (run.inputs / contract.PREPARED / key, run.path / contract.PREPARED / key):
        if not folder.is_dir():
            continue
        try:
            _check(folder, key)
        except Damaged as error:
            print(f"the prepared tensors {key} are computed again: {error.message}", file=sys.stderr)  # noqa: T201 - the job's log
        else:
            return folder
    return None


def read_prepared(folder: Path, name: str) -> Tensors:
    """Return the tensors that were written as `name`."""
    return load_file(folder / f"{name}{SUFFIX}")


def write_prepared(run: RunDirectory, key: str, tensors: Mapping[str, Tensors]) -> Path:
    """Write `prepared/KEY/NAME.safetensors` for each name, and the manifest last, after which the agent shares it with other runs."""
    folder = run.path / contract.PREPARED / key
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, part in tensors.items():
        save_file({key: tensor.detach().cpu().contiguous() for key, tensor in part.items()}, folder / f"{name}{SUFFIX}")
    files = tuple(hashed_file(folder / f"{name}{SUFFIX}", f"{name}{SUFFIX}") for name in tensors)
    partial = folder / f".{contract.MANIFEST}"
    partial.write_text(json.dumps(Prepared(key=key, files=files).to_json(), indent=1))
    partial.rename(folder / contract.MANIFEST)
    return folder


def _check(folder: Path, key: str) -> None:
    try:
        value = json.loads((folder / contract.MANIFEST).read_text())
    except (OSError, ValueError):
        raise Damaged("it has no manifest") from None
    prepared = parse_prepared(value)
    if prepared.key != key:
        raise Damaged(f"its manifest is of {prepared.key}")
    for file in prepared.files:
        check_file(folder / file.path, file)
