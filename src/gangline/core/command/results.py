"""Decide which files of a script's folder are results, and when each is uploaded: once it has settled and is worth it. All of this is
pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gangline.core.command.candidate import CheckpointCandidate, path_below
from gangline.core.command.layout import (
    HIDDEN,
    OF_ACCELERATE,
    OF_TRAINER,
    OPTIMISER,
    Rules,
    is_candidate,
    is_in_root,
    is_of_its_own,
    is_result,
)
from gangline.core.command.root import newest_in_root, whole_folder
from gangline.core.command.version import STATE, path_pattern

Turn = Literal["now", "quiet", "end", "well", "state"]
"""When a file may be uploaded: `now`: once it has settled; `quiet`: once nothing in its folder has changed for a while; `end`: when the
command ends in any way; `well`: when it ends with 0, as the file was a checkpoint, or part of one, at some time; `state`: never. If no
checkpoint was recognised, the last two are uploaded at any end."""
UploadWay = Literal["wait", "whole", "snapshot"]
FileMark = tuple[int, int, int]
"""Inode, size in bytes and modification time in ns: a file with another mark is another file or has other content."""

COMING = re.compile(r"(.*[-_.])?(tmp|temp|partial|part|incomplete)([-_.\d].*)?", re.IGNORECASE)
MODEL = ".safetensors"
"""A file that holds a model and nothing else: each step's is worth keeping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPace:
    """How often files are scanned and uploaded. Scanning takes less than 1/`idle` of a core, uploading one file repeatedly less than
    1/`idle_link` of the link. `again_s` is the least time between two uploads of a file, `quiet_s` how long a folder must be unchanged;
    files up to `small_bytes` may be uploaded as a copy."""

    scan_s: float = 2.0
    again_s: float = 60.0
    quiet_s: float = 60.0
    small_bytes: int = 16 * 2**20
    idle: float = 200.0
    idle_link: float = 20.0

    def pause_s(self, took_s: float) -> float:
        return max(self.scan_s, self.idle * took_s)


@dataclass(slots=True, kw_only=True)
class KnownFile:
    """What is known of a file: when it was found and when it changed last (seconds of a monotonic clock), the mark that was uploaded last,
    when that was, how many seconds it took, and the number of versions uploaded."""

    mark: FileMark
    found_s: float
    changed_s: float
    sent: FileMark | None = None
    sent_s: float | None = None
    took_s: float = 0.0
    version: int = 0


def turns(rules: Rules, candidates: Iterable[CheckpointCandidate], *, has_own: bool) -> dict[str, dict[str, Turn]]:
    """Return the turn of each file, by its name in the folder and its path below that. `has_own`: the script keeps its checkpoints under
    names of their own, so that files beside them are results."""
    visible = [each for each in candidates if not each.name.startswith(".")]
    if rules.layout == "folder" and not rules.complete_when:
        return _turns_of_whole_folder(visible)
    in_root = {each.name for each in visible if not each.folder and is_in_root(rules, each.name)}
    written_ns = {each.name: each.written_ns for each in visible if each.name in in_root}
    newest = frozenset[str]() if has_own else newest_in_root(written_ns)
    found = dict[str, dict[str, Turn]]()
    for each in visible:
        if newest and each.name in in_root:
            found[each.name] = {"": _turn_in_root(each.name, newest)}
        else:
            found[each.name] = _turns_of(rules, each)
    return found


def keeps_its_own(rules: Rules, candidates: Iterable[CheckpointCandidate]) -> bool:
    """Return whether there is a checkpoint, complete or not, under a name for checkpoints."""
    return any(is_candidate(rules, each.name, folder=each.folder) and is_of_its_own(rules, each) for each in candidates)


def goes_at_end(turn: Turn, *, killed: bool, recognised: bool) -> bool:
    """Return whether a file with this turn is uploaded at the end."""
    if turn in ("well", "state"):
        return not recognised or (turn == "well" and not killed)
    return True


def strangers(paths: Iterable[str]) -> list[str]:
    """Return the paths that look like training state, for when no checkpoint is recognised."""
    return sorted({path for path in paths if STATE.fullmatch(path)})


def advice(paths: list[str]) -> str:
    """Return which options make these files checkpoints."""
    pattern = path_pattern(paths[0]).replace("#", "*")
    return (
        f"--complete-when '{pattern}' makes it one once such a file exists; --layout folder makes the whole folder one"
    )


def way_of(known: KnownFile, turn: Turn, unchanged_s: float, now_s: float, pace: UploadPace) -> UploadWay:
    """Return how a file may be uploaded now; `unchanged_s` is how long its folder has been unchanged. A file that changes between two scans
    is uploaded as a copy."""
    if turn not in ("now", "quiet") or known.mark == known.sent:
        return "wait"
    if known.sent_s is not None and now_s - known.sent_s < max(pace.again_s, pace.idle_link * known.took_s):
        return "wait"
    if turn == "quiet":
        return "whole" if unchanged_s >= pace.quiet_s else "wait"
    if known.changed_s < now_s:
        return "whole"
    return "snapshot" if known.found_s < now_s and known.mark[1] <= pace.small_bytes else "wait"


def _turns_of_whole_folder(candidates: list[CheckpointCandidate]) -> dict[str, dict[str, Turn]]:
    """Return the turns if the whole folder is one checkpoint: files that are not part of it are results."""
    chosen = whole_folder(path_below(each.name, path) for each in candidates for path in each.files)
    return {
        each.name: {path: "state" if path_below(each.name, path) in chosen else "now" for path in each.files}
        for each in candidates
    }


def _turn_in_root(name: str, newest: frozenset[str]) -> Turn:
    """Upload a model once it is no longer part of the newest checkpoint; one that still is, at the end."""
    if name.endswith(MODEL):
        return "end" if name in newest else "now"
    return "well"


def _turns_of(rules: Rules, candidate: CheckpointCandidate) -> dict[str, Turn]:
    """Return the turns of one candidate; files that hold training state, or may come to hold it, wait for the end."""
    if is_candidate(rules, candidate.name, folder=candidate.folder):
        return dict.fromkeys(candidate.files, "quiet" if is_result(rules, candidate) else "state")
    if _is_coming(candidate.name):
        return dict.fromkeys(candidate.files, "end")
    states = {_folder(path) for path in candidate.files if _is_state(path or candidate.name)}
    return {
        path: "end" if _is_coming(path.rpartition("/")[2]) or _is_below(path, states) else "now"
        for path in candidate.files
    }


def _is_coming(name: str) -> bool:
    """Return whether a file or folder has a temporary name, as some have until they are complete."""
    return name.startswith(HIDDEN) or COMING.fullmatch(name) is not None


def _is_state(path: str) -> bool:
    return any(pattern.fullmatch(path) for pattern in (OF_ACCELERATE, OF_TRAINER, OPTIMISER))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _is_below(path: str, folders: set[str]) -> bool:
    return bool(folders) and any(folder in ("", _folder(path)) or path.startswith(f"{folder}/") for folder in folders)
