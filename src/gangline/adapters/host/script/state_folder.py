"""Create and lock the folder in which `gangline exec` keeps its own files for a checkpoint folder."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from gangline.core.errors import UserError


def make_folders(root: Path) -> Path:
    """Create the state folder and return it: beside the checkpoint folder, or inside it if that is another disk, so that hard links reach
    it."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{root} cannot be created: {error.strerror}",
            hint="--checkpoints must name a folder that the script can write to",
        ) from None
    for state in (state_beside(root.absolute()), root / ".gangline"):
        with suppress(OSError):
            state.mkdir(exist_ok=True)
            if state.stat().st_dev == root.stat().st_dev and os.access(state, os.W_OK):
                return state
    raise UserError(
        f"nothing can be written in {root}",
        hint="check that this user may write there, and that the disk is not mounted read-only",
    )


def state_beside(root: Path) -> Path:
    return root.with_name(f".{root.name}.gangline")


def lock(path: Path, root: Path) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(
            f"another gangline exec already uses {root}",
            hint="only one command may use a folder at a time: wait for the other one, or stop it",
        ) from None
    return handle
