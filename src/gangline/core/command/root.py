"""Decide which files directly in the checkpoint folder are one checkpoint together."""

import re
from collections.abc import Iterable, Mapping

from gangline.core.command.version import SHOWN, STATE

IN_ROOT = re.compile(r".*\.(pt|pth|bin|safetensors)", re.IGNORECASE)
ANCHOR = re.compile(r".*\d\.\w+|(.*[-_.])?(latest|last|checkpoint|ckpt|resume)\.\w+", re.IGNORECASE)
"""At least one file must have such a name; otherwise none of the others is a checkpoint."""
OF_PIECES = re.compile(r".*-\d+-of-\d+\.\w+")
"""A sharded model, as its library writes it at the end of a training."""


def may_be_in_root(name: str) -> bool:
    """Return whether a file of this name may be part of a checkpoint directly in the checkpoint folder."""
    return (
        IN_ROOT.fullmatch(name) is not None and not name.startswith((".", "tmp")) and OF_PIECES.fullmatch(name) is None
    )


def newest_in_root(written_ns: Mapping[str, int]) -> frozenset[str]:
    """Return the files of the newest checkpoint: those with the newest number, and those without a number. The arguments are the files that
    may be part of one, with their modification times."""
    anchors = [name for name in written_ns if ANCHOR.fullmatch(name)]
    if not anchors:
        return frozenset()
    newest = max(
        (name for name in written_ns if last_number(name)), key=lambda name: (written_ns[name], name), default=""
    )
    return frozenset(name for name in written_ns if last_number(name) in ("", last_number(newest)))


def last_number(name: str) -> str:
    """Return the last number in the name without its suffix; empty if there is none."""
    stem = name.rpartition(".")[0]
    found = re.findall(r"\d+", stem)
    return found[-1] if found else ""


def whole_folder(paths: Iterable[str]) -> frozenset[str]:
    """Return the files that may be part of a checkpoint of the whole folder; none if nothing looks like training state."""
    found = frozenset(path for path in paths if not SHOWN.fullmatch(path))
    return found if any(STATE.fullmatch(path) for path in found) else frozenset()
