"""Decide when the server ends an attempt that sends heartbeats but makes no progress."""

from dataclasses import dataclass

from gangline.core.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAttempt:
    """A live attempt. Its times are milliseconds UTC: of its claim, its first step, its latest new step and its latest commit. It is to
    save a checkpoint every `save_s` seconds. Only a program that `reports_steps` is watched; a command is by its own runner."""

    phase: str
    step: int
    started_ms: int
    training_ms: int | None
    stepped_ms: int
    committed_ms: int | None
    save_s: float
    reports_steps: bool = True


def no_progress(watched: WatchedAttempt, now_ms: int, up_since_ms: int, policy: Policy) -> str | None:
    """Return why the attempt is ended, or None. Time while the server was down does not count."""
    if not watched.reports_steps:
        return None
    if watched.training_ms is None:
        return _late("no step", watched.started_ms, now_ms, up_since_ms, policy.start_s)
    if watched.phase == "training":
        stalled = _late(f"no step after {watched.step}", watched.stepped_ms, now_ms, up_since_ms, policy.stall_s)
        if stalled:
            return stalled
    since = watched.committed_ms or watched.training_ms
    return _late(
        "no new checkpoint in the object store", since, now_ms, up_since_ms, max(policy.commit_s, 2 * watched.save_s)
    )


def _late(what: str, since_ms: int, now_ms: int, up_since_ms: int, bound_s: float) -> str | None:
    waited_s = (now_ms - max(since_ms, up_since_ms)) / 1000
    return f"{what} for {waited_s / 60:.0f} min" if waited_s > bound_s else None
