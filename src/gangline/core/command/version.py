"""Which version of a checkpoint somebody's script is at: files that are written over in their place, and files that come late.

The files of the version before are remembered, also by the next process. So a mixture of two versions is known, whenever the script
pauses and however long: a rule here may ask what was written after what, never how old something is.
"""

import re
from collections.abc import Collection, Iterable

from gangline.core.command.candidate import ROOT, CheckpointCandidate

STATE = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|pkl|npz|npy|distcp|h5|msgpack)", re.IGNORECASE)
"""Names of files that hold what training goes on from, for sure."""
SHOWN = re.compile(
    r"(.*/)?(events\.out\.tfevents.*|[^/]*\.(png|jpe?g|webp|gif|mp4|log|wandb))|(.*/)?\.[^/]*/.*|\.[^/]*", re.IGNORECASE
)
"""What a script shows, and what is hidden: nothing of a checkpoint."""
NOTES = re.compile(r".*\.(csv|tsv|txt|md|jsonl?|ya?ml|toml|html)", re.IGNORECASE)
"""What tells of a checkpoint: it may be written at any time, and says nothing of a version."""
MAY_COME = "the script may still add to it"
UNTOUCHED = "nothing that training goes on from has changed since it was sent"


def tells_nothing(path: str) -> bool:
    """Whether it may be written again and the version stays what it is."""
    return bool(NOTES.fullmatch(path) or SHOWN.fullmatch(path))


def path_pattern(path: str) -> str:
    """The path without its numbers, which are a step's, a rank's or a shard's."""
    return re.sub(r"\d+", "#", path)


def kinds_of(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(map(path_pattern, paths))


def has_number(name: str) -> bool:
    """Whether another checkpoint of its script has another name."""
    return path_pattern(name) != name


def may_change(candidate: CheckpointCandidate) -> bool:
    """Whether its script may still add to it, or write a file of it again, where it looks complete. What is written over by the next save
    is taken before that, once it is known what a save writes."""
    return candidate.due is None or has_number(candidate.name)


def changed(candidate: CheckpointCandidate) -> frozenset[str]:
    """The files that were written since the version before; all of them, where none is known."""
    return frozenset(candidate.files) if candidate.fresh is None else candidate.fresh


def is_late(candidate: CheckpointCandidate) -> bool:
    """Whether it is the version before, and a file that this did not have."""
    fresh, before = candidate.fresh, candidate.before
    return bool(fresh) and before is not None and adds_only(candidate.name, fresh or (), before, candidate.files)


def adds_only(name: str, fresh: Collection[str], before: Collection[str], now: Collection[str]) -> bool:
    """Whether `fresh`, of the paths that there are `now`, only come to those `before`. In the folder of all another number is another
    checkpoint."""
    news = set(fresh) - set(before)
    if not news or not set(before) <= set(now) or not all(map(tells_nothing, set(fresh) - news)):
        return False
    return name != ROOT or not kinds_of(news) & kinds_of(before)


def is_untouched(candidate: CheckpointCandidate) -> bool:
    """Whether nothing was written since the version before but what tells of it: logs, notes, pictures."""
    fresh, before = candidate.fresh, candidate.before
    if not fresh or before is None or not before.keys() <= candidate.files.keys():
        return False
    return fresh <= before.keys() and all(map(tells_nothing, fresh))


def lacks_of_version(candidate: CheckpointCandidate, last: re.Pattern[str], *, by_names: bool = True) -> str:
    """What still lacks of a new version, in words. `last` matches the paths of what the script writes after all else. `by_names`: a file
    that `tells_nothing` may change and the version stays what it is."""
    if candidate.fresh is not None and not candidate.fresh:
        return ""  # the very version that was taken
    if is_late(candidate):
        return "" if candidate.settled else MAY_COME
    if by_names and is_untouched(candidate):
        return UNTOUCHED
    if mixed := _mixed(candidate, last):
        return mixed
    if candidate.due is None or candidate.patient:
        return ""
    lacking = sorted(candidate.due - kinds_of(changed(candidate)))
    if not lacking:
        return ""
    old = any(path_pattern(path) == lacking[0] for path in candidate.files)
    return f"{lacking[0]} is of the version before" if old else f"{lacking[0]} lacks, which the one before it had"


def _mixed(candidate: CheckpointCandidate, last: re.Pattern[str]) -> str:
    """Whether a file that was written again stands beside a last file of the version before."""
    before, fresh = candidate.before, candidate.fresh
    if before is None or fresh is None:
        return ""
    ends = [path for path in sorted(candidate.files) if last.fullmatch(path)]
    same = next((path for path in ends if path not in fresh), None)
    if same is not None:
        return f"{same or candidate.name} is of the version before"
    ended_ns = max((candidate.files[path].written_ns for path in ends), default=0)
    ended_before_ns = max((before[path] for path in ends if path in before), default=0)
    for path in sorted(fresh & before.keys()) if ended_before_ns else ():
        in_order = before[path] <= ended_before_ns and not tells_nothing(path)
        if in_order and candidate.files[path].written_ns > ended_ns:
            return f"{path} was written again after {ends[-1]}"
    return ""
