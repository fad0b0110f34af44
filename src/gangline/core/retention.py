"""Which checkpoints a job keeps."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A committed checkpoint; newest first is their order."""

    id: str
    step: int
    verified: bool


def to_prune(checkpoints: list[Kept], *, keep: int) -> list[Kept]:
    """All but the newest `keep`, and never the last verified one. `checkpoints` are newest first."""
    kept, rest = checkpoints[:keep], checkpoints[keep:]
    if not any(checkpoint.verified for checkpoint in kept):
        last_verified = next((checkpoint for checkpoint in rest if checkpoint.verified), None)
        rest = [checkpoint for checkpoint in rest if checkpoint is not last_verified]
    return rest
