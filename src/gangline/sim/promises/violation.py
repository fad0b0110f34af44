"""Define the error for a broken promise, which says when it broke."""

import json
from typing import NoReturn

from gangline.sim.store import SimStore
from gangline.sim.world import World


class Violation(AssertionError):
    """A broken promise: the service has a fault."""


def fail(world: World, promise: int, what: str) -> NoReturn:
    raise Violation(f"promise {promise}, seed {world.seed}, {world.now_s:.3f} s: {what}")


def object_hashes(store: SimStore, checkpoint: str) -> dict[str, str]:
    """Return the SHA-256 of each object of a checkpoint, by its key."""
    prefix, manifest = store.look("SELECT prefix, manifest FROM checkpoint WHERE id = ?", checkpoint)[0]
    return {f"{prefix}/{file['path']}": file["sha256"] for file in json.loads(manifest)["files"]}
