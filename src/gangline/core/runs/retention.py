"""Which checkpoints a job keeps."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A committed checkpoint; newest first is their order. `pinned`: somebody needs it, however old it is."""

    id: str
    step: int
    verified: bool
    pinned: bool = False


def to_prune(checkpoints: list[Kept], *, keep: int) -> list[Kept]:
    """All but the newest `keep`, those that are pinned and the last verified one, once there is one. `checkpoints` are newest
    first."""
    last_verified = next((checkpoint for checkpoint in checkpoints if checkpoint.verified), None)
    if last_verified is None:
        return []
    older = (checkpoint for checkpoint in checkpoints[keep:] if not checkpoint.pinned)
    return [checkpoint for checkpoint in older if checkpoint is not last_verified]
