"""Which checkpoints a job keeps."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A committed checkpoint; newest first is their order."""

    id: str
    step: int
    verified: bool


def to_prune(checkpoints: list[Kept], *, keep: int) -> list[Kept]:
    """All but the newest `keep` and the last verified one, once there is one. `checkpoints` are newest first."""
    last_verified = next((checkpoint for checkpoint in checkpoints if checkpoint.verified), None)
    if last_verified is None:
        return []
    return [checkpoint for checkpoint in checkpoints[keep:] if checkpoint is not last_verified]
