"""Find what comes with Gangline: recipes, examples, the tiny model and the guides.

A checkout has them at its root, their one home. A wheel holds a copy under `gangline/share`. The same names work from either."""

from collections.abc import Callable
from pathlib import Path

from gangline.adapters.package import FOLDERS, PRESETS, RECIPES, bundled
from gangline.cli.output import say
from gangline.core.errors import NotFound


def _say_note(sentence: str) -> None:
    say(f"note: {sentence}")


def here_or_bundled(given: str, tell: Callable[[str], object] = _say_note) -> str:
    """Return `given`, a path or an address, or the path of what comes with Gangline under that name if nothing is here.

    So `examples/subject` means the same in a checkout and beside an installed wheel. `tell` gets a sentence about it."""
    path = Path(given)
    if path.is_absolute() or path.exists() or path.parts[:1] not in [(folder,) for folder in FOLDERS]:
        return given
    found = bundled(*path.parts)
    if ".." in path.parts or not found.exists():
        return given
    tell(f"{given} is not in this folder, so the one that comes with Gangline is used")
    return str(found)


def find_recipe(given: str) -> Path:
    """Return the file of a recipe: a path, or the name of one that comes with Gangline. Raises `NotFound`."""
    path = path_or_recipe(given)
    if not path.is_file():
        hint = "give a TOML file, or a name that `gangline recipes ls` lists"
        raise NotFound(f"there is no recipe {given}", hint=hint)
    return path


def path_or_recipe(given: str) -> Path:
    """Return the path itself, unless nothing is there and a recipe of that name comes with Gangline."""
    path = Path(here_or_bundled(given))
    if path.exists() or path.name != given:
        return path
    return next((named for folder in (RECIPES, PRESETS) if (named := bundled(folder, f"{given}.toml")).is_file()), path)
