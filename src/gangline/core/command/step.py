"""Find the step of a checkpoint: from its own JSON files, else from its name. A number that may mean something else is ignored.

Checkpoints without a step are ordered by modification time.
"""

import re
from collections.abc import Iterable

from gangline.core.command.candidate import ROOT, CheckpointCandidate
from gangline.core.runs.contract import MANIFEST

STATES = ("trainer_state.json", "train_state.json", MANIFEST)
"""Small JSON files that contain the step."""
KEYS = ("global_step", "current_step", "step")
MARK = "{step}"
"""The place of the number in the user's pattern; `*` matches anything else."""

SAID = re.compile(r"step[-_=]?(\d+)", re.IGNORECASE)
OF_ONETRAINER = re.compile(r".*-backup-(\d+)-\d+-\d+")
LAST = re.compile(r"(?:.*?[-_=. ])??([a-z]*)[-_=.]?(\d+)(?:-rolling)?", re.IGNORECASE)
NO_STEPS = ("e", "ep", "epoch", "epochs", "v", "ver", "version", "sd", "part", "run", "seed")
"""Words before a number that counts something other than steps."""
EPOCH_OF_KOHYA = re.compile(r".*-\d{6}")
SUFFIX = re.compile(r"\.(ckpt|pt|pth|bin|safetensors)$", re.IGNORECASE)


def step_of(candidate: CheckpointCandidate, pattern: str = "") -> int | None:
    """Return the step; None if it is unknown. If the user gave a `pattern`, only that decides."""
    names = sorted(candidate.files) if candidate.name == ROOT else [candidate.name]
    if pattern:
        paths = names if candidate.name == ROOT else [*names, *(f"{candidate.name}/{path}" for path in candidate.files)]
        return _greatest(_by_pattern(pattern, path) for path in paths)
    for state in STATES:
        told = candidate.files[state].told if state in candidate.files else None
        said = [told.get(key) for key in KEYS] if isinstance(told, dict) else []
        found = next((value for value in said if isinstance(value, int) and value >= 0), None)
        if found is not None:
            return found
    return _greatest(step_of_name(name) for name in names)


def step_of_name(name: str) -> int | None:
    stem = SUFFIX.sub("", name)
    if said := SAID.findall(stem):
        return int(said[-1])
    if backup := OF_ONETRAINER.fullmatch(stem):
        return int(backup[1])
    last = LAST.fullmatch(stem)
    if last is None or last[1].lower() in NO_STEPS or EPOCH_OF_KOHYA.fullmatch(stem):
        return None
    return int(last[2])


def _by_pattern(pattern: str, path: str) -> int | None:
    expression = "".join(
        r"(\d+)" if part == MARK else "[^/]*" if part == "*" else re.escape(part)
        for part in re.split(r"(\{step\}|\*)", pattern)
    )
    found = re.fullmatch(expression, path)
    return int(found[1]) if found else None


def _greatest(found: Iterable[int | None]) -> int | None:
    return max((each for each in found if each is not None), default=None)
