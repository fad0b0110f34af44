"""Read an experiment from a TOML file; each error names the file and the key."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen

from gangline.cli.jobs.train import PATHS
from gangline.core.errors import BadInput, UserError
from gangline.core.experiments.terms import RUNS_MAX, STRICT, ExperimentTerms, RandomSettings
from gangline.core.jobs.lists.labels import JobLabels
from gangline.core.parsing import InvalidSpec, parse_as, to_json
from gangline.core.specs.changes import check_value

KIND = "lora"
HINT = "`gangline docs experiments` has an example of each key"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFile(ExperimentTerms):
    """An experiment as its file has it. `settings` are those that all jobs have in common, over those of `preset` and `recipe`."""

    __pydantic_config__: ClassVar[Any] = STRICT
    photos: str = ""
    name: str = ""
    recipe: str = ""
    preset: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    vary: dict[str, list[Any]] = field(default_factory=dict)
    list: Annotated[tuple[dict[str, Any], ...], MaxLen(RUNS_MAX)] = ()
    random: RandomSettings | None = None
    seeds: Annotated[int, Ge(1), Le(RUNS_MAX)] = 1
    labels: JobLabels = field(default_factory=dict)

    def asked(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the experiment as it is submitted, given the spec that its jobs have in common."""
        terms = ("name", "seeds", "at_once", "budget_usd", "measure", "labels")
        tables = {name: to_json(value) for name in ("random", "halving") if (value := getattr(self, name)) is not None}
        given = {name: getattr(self, name) for name in terms}
        return given | {"spec": spec, "vary": self.vary, "list": self.list} | tables


def read_grid(path: Path) -> GridFile:
    """Return the experiment of a file, its paths relative to the file's folder. Raise `BadInput`."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"the experiment {path} cannot be read: {_why_unreadable(error)}", hint=HINT) from None
    try:
        grid: GridFile = parse_as(GridFile, read, options=True)
    except InvalidSpec as error:
        raise BadInput(f"{path}: {error.message}", hint=HINT) from None
    differing = [name for name in ("vary", "list", "random") if getattr(grid, name)]
    if len(differing) > 1:
        raise BadInput(f"{path}: {' and '.join(differing)} both say how the jobs differ", hint="keep one of them")
    if not differing and grid.seeds == 1:
        raise BadInput(f"{path}: nothing says how the jobs differ", hint="add [vary], [[list]] or [random], or seeds")
    if not grid.photos:
        raise BadInput(f"{path}: photos is missing", hint='write photos = "my-photos", a folder beside the file')
    return _beside(_checked(grid, path), path.parent)


@contextmanager
def naming_file(path: Path, *kinds: type[UserError]) -> Iterator[None]:
    """Let errors of these kinds, which are about what an experiment's file says, name the file."""
    try:
        yield
    except kinds as error:
        raise BadInput(f"{path}: {error.message}", hint=error.hint or HINT) from None


def _why_unreadable(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return "it is not a text file" if isinstance(error, UnicodeDecodeError) else str(error)


def _check_settings(grid: GridFile, path: Path) -> None:
    """Raise `BadInput` for a setting of all jobs that there is none of, or that does not take its value."""
    place, needs = f"{path}: settings", grid.settings.get("needs", {})
    if not isinstance(needs, dict):
        raise BadInput(f"{place}.needs must be a table", hint="write needs = { gpu_memory_gb = 16 }")
    for name, value in grid.settings.items():
        if name in GridFile.__dataclass_fields__:
            raise BadInput(f"{place} {name}: there is no such setting", hint=f"{name} belongs at the top of the file")
        if name not in PATHS:  # on this machine, these are paths
            check_value(KIND, name, value, place)
    for name, value in needs.items():
        check_value(KIND, f"needs.{name}", value, place)


def _checked(grid: GridFile, path: Path) -> GridFile:
    """Return the experiment with each value as its setting has it. Raise `BadInput` for a setting that there is none of."""
    _check_settings(grid, path)
    for name, values in grid.vary.items():
        if not values:
            raise BadInput(f"{path}: vary.{name} has no value", hint=f"write {name} = [8, 16], or remove it")
    vary = {name: [_value(name, value, f"{path}: vary") for value in values] for name, values in grid.vary.items()}
    rows = tuple(
        {name: _value(name, value, f"{path}: list.{number}") for name, value in row.items()}
        for number, row in enumerate(grid.list)
    )
    for name, drawn in (grid.random.vary if grid.random else {}).items():
        for choice in drawn.choices or (drawn.min,):
            _value(name, choice, f"{path}: random.vary")
    return replace(grid, vary=vary, list=rows)


def _value(name: str, value: Any, place: str) -> Any:
    if not isinstance(value, dict):
        return check_value(KIND, name, value, place)
    raise BadInput(f"{place}: {name} is a table", hint=f'write a setting of a table as "{name}.KEY"')


def _beside(grid: GridFile, folder: Path) -> GridFile:
    """Return the experiment with its photos and its recipe found beside the file, where they are there."""
    found: Mapping[str, str] = {
        name: str(folder / given)
        for name in ("photos", "recipe")
        if (given := getattr(grid, name)) and not Path(given).is_absolute() and (folder / given).exists()
    }
    return replace(grid, **found)
