"""Decide when a checkpoint of a user's training script is complete: rules by the library that writes it.

A rule takes what a scan found and returns what is missing; no rule asks how old something is. A file counts once nobody has it open for
writing and it is complete by its own format (`gangline.core.command.completeness`). A checkpoint that is overwritten later is a new
version of it (`gangline.core.command.version`).

| layout        | a checkpoint is             | the file that is written last                                                 |
|---------------|-----------------------------|-------------------------------------------------------------------------------|
| `accelerate`  | a folder                    | `random_states_N.pkl` of each process; objects that the script registered may follow |
| `kohya`       | a folder `…-state`          | as with `accelerate`                                                          |
| `simpletuner` | a folder `checkpoint-N`, `checkpoint-N-rolling` | `.guard`                                                  |
| `hf-trainer`  | a folder `checkpoint-N`     | `trainer_state.json`, and `rng_state….pth` of each process                    |
| `lightning`   | a file `….ckpt`, or a folder of that name with shards | `.metadata` and `meta.pt`                           |
| `dcp`         | a folder of shards by torch.distributed.checkpoint | `.metadata`                                            |
| `onetrainer`  | a folder `…-backup-STEP-EPOCH-EPOCHSTEP` | its settings, `onetrainer_config/….json`                         |
| `manifest`    | a folder                    | `manifest.json`, as the trainer contract says (gangline.core.runs.contract)   |
| `files`       | the files with the newest number, and those without one, in no folder | none: each kind of file must be written again |
| `folder`      | everything in the checkpoint folder | as with `files`                                                       |
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, get_args

from gangline.core.command.candidate import ROOT, CheckpointCandidate
from gangline.core.command.root import may_be_in_root
from gangline.core.command.version import MAY_COME, STATE, lacks_of_version, may_change
from gangline.core.errors import Damaged
from gangline.core.runs.contract import MANIFEST, parse_manifest
from gangline.core.specs.command import LayoutName

LAYOUTS: tuple[LayoutName, ...] = get_args(LayoutName)
IN_ROOT: tuple[LayoutName, ...] = ("files", "folder")
"""Layouts whose checkpoint lies directly in the checkpoint folder, as `ROOT`."""

OF_ACCELERATE = re.compile(r"random_states_(\d+)\.pkl")
OF_LIGHTNING = "pytorch-lightning_version"
"""A key that every Lightning checkpoint contains (pytorch_lightning.trainer.connectors.checkpoint_connector)."""
OPTIMISER = re.compile(r"(.*/)?(optimizer[^/]*\.(bin|pt)|[^/]*optim_states\.pt)|optimizer[^/]*/.*")
OF_TRAINER = re.compile(r"rng_state(?:_(\d+))?\.pth")
WEIGHTS = re.compile(r"(.*/)?([^/]*\.safetensors|(pytorch_model|diffusion_pytorch_model|adapter_model)[^/]*\.bin)")
SHARD = re.compile(r"(.*/)?__\d+_\d+\.distcp")
INDEX = ".index.json"
SHARDS_END = ".metadata"
HIDDEN = (".", "tmp-", "tmp_", "_tmp")
MAY_BE_ONE = re.compile(
    r"(.*[-_.])?(checkpoint|ckpt|step|epoch|iter|state|last|latest|best|resume)[-_=.]?\d*(-rolling)?|.*\.ckpt|\d+"
    r"|.*-backup-\d+-\d+-\d+",
    re.IGNORECASE,
)
IS_ONE = re.compile(r"checkpoint[-_]\d+(-rolling)?|.*-state|.*\.ckpt|.*-backup-\d+-\d+-\d+", re.IGNORECASE)
OFTEN_ONE = re.compile(r"(step|epoch)[-_]\d+", re.IGNORECASE)
"""Three patterns of names: `MAY_BE_ONE` for names that a checkpoint may have, `IS_ONE` for names that libraries give only to checkpoints,
and `OFTEN_ONE` for names that scripts also give to folders of images."""
OF_ONETRAINER = "onetrainer_config/"
OF_ONETRAINER_ALL = ("args.json", "concepts.json", "samples.json")
GUARD = ".guard"
NONE = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The user's settings. `processes` is how many processes write together, as far as is known. `complete_when` is a pattern of paths
    relative to the checkpoint folder; `step` is a pattern of names that says where the step stands (gangline.core.command.step)."""

    layout: LayoutName | Literal["auto"] = "auto"
    complete_when: str = ""
    processes: int = 1
    step: str = ""


def lacks(rules: Rules, candidate: CheckpointCandidate) -> str:
    """Return what is missing, in words; empty if the checkpoint is complete."""
    if not candidate.files:
        return "it is empty"
    odd = next((path for path, seen in sorted(candidate.files.items()) if seen.odd), None)
    if odd is not None:
        return f"{odd or candidate.name} {candidate.files[odd].odd}"
    unsound = next((path for path, seen in sorted(candidate.files.items()) if not seen.sound), None)
    if unsound is not None:
        return f"{unsound or candidate.name} is not completely written"
    if rules.complete_when:
        lacking, last = _lacks_match(rules.complete_when, candidate)
        candidate = replace(candidate, due=None)  # the pattern alone decides
    elif layout := layout_of(rules, candidate):
        lacking, last = _RULES[layout](candidate, rules.processes), _LAST[layout]
        candidate = candidate if layout != "manifest" else replace(candidate, due=None)
        if not lacking and layout in _SETTLE and not candidate.settled and may_change(candidate):
            lacking = MAY_COME
    else:
        return "nothing shows that it is a checkpoint"
    return lacking or lacks_of_version(candidate, last, by_names=not rules.complete_when)


def holds_state(candidate: CheckpointCandidate) -> bool:
    """Return whether one of its files looks like training state."""
    return any(STATE.fullmatch(path or candidate.name) for path in candidate.files)


def is_of_its_own(rules: Rules, candidate: CheckpointCandidate) -> bool:
    """Return whether the script keeps its checkpoints under names like this one; then files directly in the checkpoint folder are
    results."""
    if candidate.name == ROOT:
        return False
    known = layout_of(rules, candidate) is not None
    return known or (candidate.folder and IS_ONE.fullmatch(candidate.name) is not None)


def is_in_root(rules: Rules, name: str) -> bool:
    """Return whether a file of this name, directly in the checkpoint folder, may be part of the checkpoint there."""
    return not rules.complete_when and rules.layout in ("auto", "files") and may_be_in_root(name)


def is_candidate(rules: Rules, name: str, *, folder: bool) -> bool:
    """Return whether something of this name may be, or become, a checkpoint by itself. Anything else is left to the script."""
    if name.startswith(HIDDEN) or name.endswith((".tmp", ".partial")):
        return False
    if rules.complete_when:
        first, _, rest = rules.complete_when.partition("/")
        return fnmatchcase(name, first) and bool(rest) == folder
    if rules.layout in IN_ROOT:
        return False
    if rules.layout == "lightning" or not folder:
        return name.endswith(".ckpt") and rules.layout in ("auto", "lightning")
    return name.endswith("-state") if rules.layout == "kohya" else MAY_BE_ONE.fullmatch(name) is not None


def is_result(rules: Rules, candidate: CheckpointCandidate) -> bool:
    """Return whether a candidate with a checkpoint's name is something else that the script was asked for, and not an incomplete
    checkpoint."""
    if rules.complete_when:
        return not (candidate.files or IS_ONE.fullmatch(candidate.name) or OFTEN_ONE.fullmatch(candidate.name))
    marked = any(
        OF_ACCELERATE.fullmatch(path) or OF_TRAINER.fullmatch(path) or OPTIMISER.fullmatch(path)
        for path in candidate.files
    )
    known = layout_of(Rules(), candidate) is not None or marked
    if candidate.name == ROOT:
        return False
    if not candidate.folder:
        return rules.layout != "lightning" and not known
    begun = not candidate.files or any(WEIGHTS.fullmatch(path) for path in candidate.files)
    return not (known or IS_ONE.fullmatch(candidate.name) or (begun and OFTEN_ONE.fullmatch(candidate.name)))


def layout_of(rules: Rules, candidate: CheckpointCandidate) -> LayoutName | None:
    """Return the layout that the user named, else the one that the file names show; None if it is too early to tell."""
    if rules.layout != "auto":
        return rules.layout
    names = candidate.files.keys()
    if candidate.name.endswith(".ckpt"):
        return "lightning" if candidate.folder or candidate.files[""].told == OF_LIGHTNING else None
    if candidate.name == ROOT:
        return "files"
    if MANIFEST in names:
        return "manifest"
    if GUARD in names:
        return "simpletuner"
    if any(OF_ACCELERATE.fullmatch(name) for name in names):
        return "kohya" if candidate.name.endswith("-state") else "accelerate"
    if "trainer_state.json" in names:
        return "hf-trainer"
    if any(name.startswith(OF_ONETRAINER) for name in names):
        return "onetrainer"
    return "dcp" if candidate.folder and any(SHARD.fullmatch(name) for name in names) else None


def script_of(command: Collection[str]) -> str:
    """Return what a command line trains with: its script or module without the launcher, else the program."""
    words = list(command)
    for before, word in zip(["", *words], words, strict=False):
        if before == "-m" and not word.startswith(("accelerate", "torch.distributed", "deepspeed")):
            return word
        if word.endswith(".py"):
            return word.rpartition("/")[2]
    return words[0].rpartition("/")[2] if words else ""


def _lacks_match(pattern: str, candidate: CheckpointCandidate) -> tuple[str, re.Pattern[str]]:
    """Return what is missing, and a pattern of the matching files by their paths inside the checkpoint."""
    paths = {path: f"{candidate.name}/{path}" if candidate.folder else candidate.name for path in candidate.files}
    found = [re.escape(path) for path, whole in paths.items() if _matches(whole, pattern)]
    return "" if found else f"nothing matches {pattern}", re.compile("|".join(found))


def _matches(path: str, pattern: str) -> bool:
    """Match as a shell does: `*` matches no slash."""
    parts, patterns = path.split("/"), pattern.split("/")
    return len(parts) == len(patterns) and all(
        fnmatchcase(part, each) for part, each in zip(parts, patterns, strict=True)
    )


def _lacks_of_accelerate(candidate: CheckpointCandidate, processes: int) -> str:
    found = {int(match[1]) for path in candidate.files if (match := OF_ACCELERATE.fullmatch(path))}
    lacking = _lacks_weights(candidate) or _lacks_one_of_each(found, processes, "random_states_{}.pkl")
    return lacking or _lacks_optimiser(candidate)


def _lacks_of_simpletuner(candidate: CheckpointCandidate, processes: int) -> str:
    return _lacks_of_accelerate(candidate, processes) or ("" if GUARD in candidate.files else f"{GUARD} is missing")


def _lacks_of_onetrainer(candidate: CheckpointCandidate, processes: int) -> str:
    lacking = next((name for name in OF_ONETRAINER_ALL if f"{OF_ONETRAINER}{name}" not in candidate.files), "")
    return f"{OF_ONETRAINER}{lacking} is missing" if lacking else ""


def _lacks_of_shards(candidate: CheckpointCandidate, processes: int) -> str:
    if not any(SHARD.fullmatch(path) for path in candidate.files):
        return "shards are missing"
    return _lacks_weights(candidate)


def _lacks_of_root(candidate: CheckpointCandidate, processes: int) -> str:
    return "" if holds_state(candidate) else "none of its files looks like training state"


def _lacks_of_trainer(candidate: CheckpointCandidate, processes: int) -> str:
    if "trainer_state.json" not in candidate.files:
        return "trainer_state.json is missing"
    found = {match[1] for path in candidate.files if (match := OF_TRAINER.fullmatch(path))}
    lacking = _lacks_weights(candidate) or _lacks_optimiser(candidate)
    if lacking or (processes == 1 and None in found):
        return lacking
    numbers = {int(number) for number in found if number is not None}
    return _lacks_one_of_each(numbers, processes, "rng_state_{}.pth" if processes > 1 or numbers else "rng_state.pth")


def _lacks_of_lightning(candidate: CheckpointCandidate, processes: int) -> str:
    if not candidate.folder:
        return ""
    lacking = next((name for name in (SHARDS_END, "meta.pt") if name not in candidate.files), "")
    return f"{lacking} is missing" if lacking else ""


def _lacks_of_manifest(candidate: CheckpointCandidate, processes: int) -> str:
    if MANIFEST not in candidate.files:
        return f"{MANIFEST} is missing"
    try:
        manifest = parse_manifest(candidate.files[MANIFEST].told)
    except Damaged as error:
        return error.message
    for file in manifest.files:
        if file.path not in candidate.files:
            return f"{file.path}, which its manifest lists, is missing"
        if candidate.files[file.path].bytes != file.bytes:
            return f"{file.path} does not have the length that its manifest lists"
    return ""


def _lacks_weights(candidate: CheckpointCandidate) -> str:
    """Check for weights of any kind, all shards that an index names, and the final file of each folder of shards."""
    for path, seen in candidate.files.items():
        if path.endswith(INDEX):
            below = path.rpartition("/")[0]
            named = seen.told.get("weight_map", {}).values() if isinstance(seen.told, dict) else ()
            for shard in sorted({f"{below}/{name}".lstrip("/") for name in named}):
                if shard not in candidate.files:
                    return f"{shard}, which {path} lists, is missing"
        if match := SHARD.fullmatch(path):
            end = f"{match[1] or ''}{SHARDS_END}"
            if end not in candidate.files:
                return f"{end} is missing"
    sharded = any(SHARD.fullmatch(path) or "_model_states.pt" in path for path in candidate.files)
    return "" if sharded or any(WEIGHTS.fullmatch(path) for path in candidate.files) else "weights are missing"


def _lacks_optimiser(candidate: CheckpointCandidate) -> str:
    found = any(OPTIMISER.fullmatch(path) or SHARD.fullmatch(path) for path in candidate.files)
    return "" if found else "the optimiser's state is missing"


def _lacks_one_of_each(found: set[int], processes: int, name: str) -> str:
    wanted = range(max(processes, max(found, default=0) + 1))
    lacking = next((number for number in wanted if number not in found), None)
    return "" if lacking is None else f"{name.format(lacking)} is missing"


_RULES: dict[LayoutName, Callable[[CheckpointCandidate, int], str]] = {
    "accelerate": _lacks_of_accelerate,
    "kohya": _lacks_of_accelerate,
    "simpletuner": _lacks_of_simpletuner,
    "dcp": _lacks_of_shards,
    "onetrainer": _lacks_of_onetrainer,
    "files": _lacks_of_root,
    "folder": _lacks_of_root,
    "lightning": _lacks_of_lightning,
    "hf-trainer": _lacks_of_trainer,
    "manifest": _lacks_of_manifest,
}
_LAST: dict[LayoutName, re.Pattern[str]] = {
    "accelerate": OF_ACCELERATE,
    "kohya": OF_ACCELERATE,
    "simpletuner": re.compile(re.escape(GUARD)),
    "dcp": re.compile(r"(.*/)?\.metadata"),
    "onetrainer": re.compile(rf"{OF_ONETRAINER}.*"),
    "files": NONE,
    "folder": NONE,
    "lightning": re.compile(r"|\.metadata|meta\.pt"),
    "hf-trainer": re.compile(rf"trainer_state\.json|{OF_TRAINER.pattern}"),
    "manifest": re.compile(re.escape(MANIFEST)),
}
"""What each library writes last: an overwritten checkpoint is a new version only once these files are new."""
_SETTLE = ("accelerate", "kohya", "onetrainer", "files", "folder")
"""Layouts without a reliable last file: more may follow, so the candidate must settle."""
