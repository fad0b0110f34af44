"""Several subjects as a user writes them: tables of a recipe, `--subject`, or folders that are named like kohya's."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.core.datasets.roles import COUNTED, SUFFIXES
from gangline.core.errors import BadInput
from gangline.core.specs.sections.subjects import REPEATS_MAX, SubjectEntry
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.cli.jobs.plan.photos import SubjectInputs

SUBJECTS = "subjects"
NOTATION = "Write it like photos=FOLDER,prompt=TEXT,class_prompt=TEXT,class_photos=FOLDER,repeats=2,weight=0.5,masks=FOLDER,hold_out=NAME."
PATHS = ("photos", "class_photos", "masks", "hold_out")
"""What a table has instead of files."""
KEYS = (*PATHS, *(each.name for each in fields(SubjectEntry) if each.name != "folder"))
KEY = re.compile(r"(?:^|,)\s*(\w+)=")
ALONE = ("prompt", "class_prompt")
"""Settings that describe the only subject of a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSubjects:
    """Subjects with their files on this machine, the entries of the spec for them, and sentences for the user."""

    inputs: tuple["SubjectInputs", ...] = ()
    entries: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def given_subjects(settings: dict[str, Any], root: Path) -> GivenSubjects:
    """Return the subjects that the settings name, or else the folders of `root` if they are kohya's and there is no prompt; none if the job
    has only one. Paths are relative to `root`. Raises `BadInput`."""
    tables = settings.get(SUBJECTS)
    if not tables:
        found = [] if any(settings.get(name) for name in ALONE) else _of_numbered_folders(root, settings)
        told = ", ".join(f"'{table['prompt']}' ({counted(table['repeats'], 'repeat')})" for table in found)
        note = f"each folder of {root} is a subject, with the repeats and the prompt of its name: {told}"
        return _read(found, root, notes=(note,)) if found else GivenSubjects()
    for name in ("class_photos", "masks"):
        if settings.get(name):
            raise BadInput(f"{name} must be left out with subjects", hint=f"give {name} to each subject that has some")
    if not isinstance(tables, list):
        raise BadInput("subjects must be a list", hint="head each of its tables [[subjects]]")
    return _read([_table(given, number) for number, given in enumerate(tables)], root)


def entries_without_files(tables: object) -> list[dict[str, Any]]:
    """Return the entries of subjects whose folders are not looked at, with a folder for each. Raises `BadInput`."""
    found = [_table(given, number) for number, given in enumerate(tables)] if isinstance(tables, list) else []
    return [_entry(table, f"subject-{number}") for number, table in enumerate(found)]


def _entry(table: dict[str, Any], folder: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in PATHS} | {"folder": folder}


def parse_subject(text: str) -> dict[str, str]:
    """Return the settings of `--subject` as they were typed. A comma belongs to a value unless a name and `=` follow. Raises `BadInput`."""
    marks = list(KEY.finditer(text))
    if not marks or marks[0].start():
        raise BadInput(f"the subject {text!r} is not understood", hint=NOTATION)
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    found: dict[str, str] = {}
    for mark, end in zip(marks, ends, strict=True):
        if mark[1] in found:
            raise BadInput(f"the subject {text!r} has two of {mark[1]}", hint="leave one of them out")
        found[mark[1]] = text[mark.end() : end].strip()
    return found


def _table(given: Any, number: int) -> dict[str, Any]:
    """Return a subject's table, with every path checked for its type."""
    table = parse_subject(given) if isinstance(given, str) else given
    where = f"{SUBJECTS}.{number}"
    if not isinstance(table, dict):
        raise BadInput(f"{where} must be a table, not {table!r}", hint="head it [[subjects]]")
    for name in table:
        if name not in KEYS:
            raise BadInput(f"{where} has no field {name}", hint=f"it may have {', '.join(KEYS)}")
    if not table.get("photos"):
        raise BadInput(f"{where}.photos is missing", hint="give the folder of its photos")
    held_out = table.get("hold_out", [])
    table = table | {"hold_out": [held_out] if isinstance(held_out, str) else held_out}
    for name in PATHS:
        paths = table[name] if name == "hold_out" else [table.get(name, "")]
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise BadInput(f"{where}.{name} must be the path of a file or folder, not {table[name]!r}", hint="quote it")
    return table


def _read(tables: list[dict[str, Any]], root: Path, notes: tuple[str, ...] = ()) -> GivenSubjects:
    from gangline.cli.jobs.plan.photos import SubjectInputs  # reads pictures

    folders = list(_folders(tables, root))
    inputs = tuple(
        SubjectInputs(
            photos=root / table["photos"],
            into=folder,
            class_photos=root / table["class_photos"] if table.get("class_photos") else None,
            masks=root / table["masks"] if table.get("masks") else None,
            hold_out=tuple(table.get("hold_out", ())),
        )
        for table, folder in zip(tables, folders, strict=True)
    )
    entries = [_entry(table, folder) for table, folder in zip(tables, folders, strict=True)]
    return GivenSubjects(inputs=inputs, entries=entries, notes=notes)


def _folders(tables: list[dict[str, Any]], root: Path) -> Iterator[str]:
    """Yield the folder of each subject in the spec: the name of its folder here, with a number if another subject has that name."""
    before: dict[Path, int] = {}
    taken = Counter[str]()
    for number, table in enumerate(tables):
        here = (root / table["photos"]).resolve()
        if (other := before.setdefault(here, number)) != number:
            raise BadInput(
                f"{SUBJECTS}.{number}.photos is {table['photos']}, as that of {SUBJECTS}.{other}",
                hint="put the photos of each subject into a folder of its own",
            )
        name = table.get("folder") or here.name or "photos"
        taken[name.casefold()] += 1
        alike = taken[name.casefold()]
        yield f"{name}-{alike}" if alike > 1 else name


def _of_numbered_folders(root: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a table for each folder of `root`, if all are named like kohya's `10_sks dog` and no other photos are there; else none."""
    numbered = _numbered_folders(root)
    found = [
        {"photos": name, "folder": words, "prompt": words, "repeats": repeats}
        for name, (repeats, words) in numbered.items()
    ]
    for one in found:
        alike = [each["photos"] for each in found if each["prompt"].casefold() == one["prompt"].casefold()]
        if len(alike) > 1:
            raise BadInput(
                f"the folders {alike[0]} and {alike[1]} of {root} have the same words",
                hint="rename one of them, or pass --prompt to train on all photos as one subject",
            )
    if not found:
        return []
    classes = _classes(Path(settings["class_photos"])) if settings.get("class_photos") else {}
    masks = Path(settings["masks"]).absolute() if settings.get("masks") else None
    for words, folder in classes.items():
        if not any(_is_class_of(words, one["prompt"]) for one in found):
            raise BadInput(
                f"no subject is of the class of {folder}: no folder of photos has the words '{words}'",
                hint="name it after words of a subject, such as 1_dog for 10_sks dog",
            )
    return [_with_class(one, classes) | ({"masks": str(masks / one["photos"])} if masks else {}) for one in found]


def _numbered_folders(root: Path) -> dict[str, tuple[int, str]]:
    """Return the repeats and the words of every folder, by its name; none if no name has any. Raises `BadInput` if there is anything beside
    them but hidden files and texts."""
    if not root.is_dir():
        return {}
    found: dict[str, tuple[int, str]] = {}
    others = list[str]()
    try:
        entries = sorted(root.iterdir())
    except OSError as error:
        raise BadInput(f"{root} may not be read: {error.strerror}", hint="change its permissions") from None
    for path in entries:
        if path.is_dir() and not path.name.startswith("."):
            named = COUNTED.fullmatch(path.name)
            if named and named[2].strip() and 1 <= int(named[1]) <= REPEATS_MAX:
                found[path.name] = int(named[1]), named[2].strip()
            else:
                others.append(path.name)
        elif path.suffix.lower() in SUFFIXES:
            others.append(path.name)
    if found and others:
        raise BadInput(
            f"{root} has folders that are named like kohya's, such as {min(found)}, but also {others[0]}",
            hint="move or rename that, or pass --prompt to train on all photos as one subject",
        )
    return found


def _classes(root: Path) -> dict[str, Path]:
    """Return the folders of class photos by their words."""
    found = {words: root.absolute() / name for name, (_, words) in _numbered_folders(root).items()}
    if not found:
        raise BadInput(
            f"{root} has no folders of class photos that are named like those of the photos",
            hint="name them like 1_dog: words of a subject's folder, such as 10_sks dog",
        )
    return found


def _with_class(table: dict[str, Any], classes: dict[str, Path]) -> dict[str, Any]:
    """Return a subject's table with the photos of its class: those whose words are all in its prompt, of several the most words."""
    fitting = sorted(
        (words for words in classes if _is_class_of(words, table["prompt"])), key=lambda words: len(words.split())
    )
    return table | {"class_prompt": fitting[-1], "class_photos": str(classes[fitting[-1]])} if fitting else table


def _is_class_of(words: str, prompt: str) -> bool:
    return {*words.casefold().split()} <= {*prompt.casefold().split()}
