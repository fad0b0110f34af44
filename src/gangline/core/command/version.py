"""Tell versions of one checkpoint apart: files that the script overwrites in place, and files that it adds late.

The files of the previous version are remembered, also across processes. So a mixture of two versions is recognised no matter when the
script pauses and for how long: a rule may ask what was written after what, but never how old something is.
"""

import re
from collections.abc import Collection, Iterable

from gangline.core.command.candidate import ROOT, CheckpointCandidate

STATE = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|pkl|npz|npy|distcp|h5|msgpack)", re.IGNORECASE)
"""Names of files that certainly hold training state."""
SHOWN = re.compile(
    r"(.*/)?(events\.out\.tfevents.*|[^/]*\.(png|jpe?g|webp|gif|mp4|log|wandb))|(.*/)?\.[^/]*/.*|\.[^/]*", re.IGNORECASE
)
"""Files for people, and hidden ones: never part of a checkpoint."""
NOTES = re.compile(r".*\.(csv|tsv|txt|md|jsonl?|ya?ml|toml|html)", re.IGNORECASE)
"""Files that describe a checkpoint: they may be written at any time and say nothing about its version."""
MAY_COME = "the script may still add to it"
UNTOUCHED = "no training state in it has changed since it was uploaded"


def tells_nothing(path: str) -> bool:
    """Return whether the file may be written again without a new version."""
    return bool(NOTES.fullmatch(path) or SHOWN.fullmatch(path))


def path_pattern(path: str) -> str:
    """Return the path without its numbers, which are those of a step, a rank or a shard."""
    return re.sub(r"\d+", "#", path)


def path_patterns(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(map(path_pattern, paths))


def has_number(name: str) -> bool:
    """Return whether the script gives each checkpoint a name of its own, by a number."""
    return path_pattern(name) != name


def may_change(candidate: CheckpointCandidate) -> bool:
    """Return whether the script may still add or rewrite a file of a checkpoint that looks complete. A checkpoint that every save
    overwrites must be taken before the next save, so this is False once it is known what a save writes."""
    return candidate.due is None or has_number(candidate.name)


def changed(candidate: CheckpointCandidate) -> frozenset[str]:
    """Return the files that were written since the previous version; all if there is none."""
    return frozenset(candidate.files) if candidate.fresh is None else candidate.fresh


def is_late(candidate: CheckpointCandidate) -> bool:
    """Return whether it is the previous version plus files that were added."""
    fresh, before = candidate.fresh, candidate.before
    return bool(fresh) and before is not None and adds_only(candidate.name, fresh or (), before, candidate.files)


def adds_only(name: str, fresh: Collection[str], before: Collection[str], now: Collection[str]) -> bool:
    """Return whether `fresh` only adds files to those `before`; `now` are all paths. Directly in the checkpoint folder, a file of the same
    kind with another number is another checkpoint."""
    news = set(fresh) - set(before)
    if not news or not set(before) <= set(now) or not all(map(tells_nothing, set(fresh) - news)):
        return False
    return name != ROOT or not path_patterns(news) & path_patterns(before)


def is_untouched(candidate: CheckpointCandidate) -> bool:
    """Return whether only logs, notes and images were written since the previous version."""
    fresh, before = candidate.fresh, candidate.before
    if not fresh or before is None or not before.keys() <= candidate.files.keys():
        return False
    return fresh <= before.keys() and all(map(tells_nothing, fresh))


def lacks_of_version(candidate: CheckpointCandidate, last: re.Pattern[str], *, by_names: bool = True) -> str:
    """Return what a new version still lacks, in words. `last` matches the paths of what the script writes last. `by_names`: files that
    `tells_nothing` may change without a new version."""
    if candidate.fresh is not None and not candidate.fresh:
        return ""  # this version was taken already
    if is_late(candidate):
        return "" if candidate.settled else MAY_COME
    if by_names and is_untouched(candidate):
        return UNTOUCHED
    if mixed := _mixed(candidate, last):
        return mixed
    if candidate.due is None or candidate.patient:
        return ""
    lacking = sorted(candidate.due - path_patterns(changed(candidate)))
    if not lacking:
        return ""
    old = any(path_pattern(path) == lacking[0] for path in candidate.files)
    return (
        f"{lacking[0]} is still from the previous version"
        if old
        else f"{lacking[0]}, which the previous version had, is missing"
    )


def _mixed(candidate: CheckpointCandidate, last: re.Pattern[str]) -> str:
    """Return a message if two versions are mixed: a last file is still of the previous version, or a file was rewritten after the last
    files."""
    before, fresh = candidate.before, candidate.fresh
    if before is None or fresh is None:
        return ""
    ends = [path for path in sorted(candidate.files) if last.fullmatch(path)]
    same = next((path for path in ends if path not in fresh), None)
    if same is not None:
        return f"{same or candidate.name} is still from the previous version"
    ended_ns = max((candidate.files[path].written_ns for path in ends), default=0)
    ended_before_ns = max((before[path] for path in ends if path in before), default=0)
    for path in sorted(fresh & before.keys()) if ended_before_ns else ():
        in_order = before[path] <= ended_before_ns and not tells_nothing(path)
        if in_order and candidate.files[path].written_ns > ended_ns:
            return f"{path} was written again after {ends[-1]}"
    return ""
