"""Which files that lie in the folder of all themselves, in no folder of their own, are a checkpoint together."""

import re
from collections.abc import Iterable, Mapping

from gangline.core.command.version import SHOWN, STATE

IN_ROOT = re.compile(r".*\.(pt|pth|bin|safetensors)", re.IGNORECASE)
ANCHOR = re.compile(r".*\d\.\w+|(.*[-_.])?(latest|last|checkpoint|ckpt|resume)\.\w+", re.IGNORECASE)
"""Of whatever else lies there, nothing is a checkpoint without one of these."""
OF_PIECES = re.compile(r".*-\d+-of-\d+\.\w+")
"""A model in pieces, as its library leaves it at the end."""


def may_be_in_root(name: str) -> bool:
    """Whether a file of this name may be a part of a checkpoint in the folder of all."""
    return (
        IN_ROOT.fullmatch(name) is not None and not name.startswith((".", "tmp")) and OF_PIECES.fullmatch(name) is None
    )


def newest_in_root(written_ns: Mapping[str, int]) -> frozenset[str]:
    """Of files that may be, by when each was written: those of the newest number, and those that have none."""
    anchors = [name for name in written_ns if ANCHOR.fullmatch(name)]
    if not anchors:
        return frozenset()
    newest = max(
        (name for name in written_ns if last_number(name)), key=lambda name: (written_ns[name], name), default=""
    )
    return frozenset(name for name in written_ns if last_number(name) in ("", last_number(newest)))


def last_number(name: str) -> str:
    """The last number of its stem; empty where it has none."""
    stem = name.rpartition(".")[0]
    found = re.findall(r"\d+", stem)
    return found[-1] if found else ""


def whole_folder(paths: Iterable[str]) -> frozenset[str]:
    """Of everything in the folder what a checkpoint may need; nothing, where nothing of it looks like state."""
    found = frozenset(path for path in paths if not SHOWN.fullmatch(path))
    return found if any(STATE.fullmatch(path) for path in found) else frozenset()
