"""`gangline recipes`: settings that come with Gangline, to train with or to begin one's own from."""

import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.adapters.package import RECIPES, bundled
from gangline.cli.bundled.place import PRESETS, find_recipe
from gangline.cli.output import Output, OutputOption, out, print_json, table
from gangline.core.errors import BadInput
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    name: str
    command: str
    about: str
    """The first paragraph of its comment."""
    path: str


def presets() -> dict[str, Path]:
    """Return the recipes that ask for no base, prompt or photos, by their names. Several can be combined."""
    return {path.stem: path for path in sorted(bundled(PRESETS).glob("*.toml"))}


def complete_preset(incomplete: str) -> list[tuple[str, str]]:
    """Return what a shell offers."""
    return [(name, _read(path).about) for name, path in presets().items() if name.startswith(incomplete)]


def read_presets(names: list[str]) -> dict[str, Any]:
    """Return their settings; where two set the same one, the later counts. Raises `BadInput`."""
    known = presets()
    settings: dict[str, Any] = {}
    for name in names:
        if name not in known:
            hint = f"choose one of {', '.join(known)}; `gangline recipes show NAME` explains one"
            raise BadInput(f"there is no preset {name}", hint=hint)
        settings |= tomllib.loads(known[name].read_text())
    return settings


@app.command("ls")
def list_recipes_command(output: OutputOption = Output.text) -> None:
    """List the recipes that come with Gangline."""
    found = [_read(path) for path in (*sorted(bundled(RECIPES).glob("*.toml")), *presets().values())]
    if output is Output.json:
        print_json([asdict(recipe) for recipe in found])
        return
    rows = table("name", "about")
    for recipe in found:
        rows.add_row(recipe.name, recipe.about)
    out.print(rows)


@app.command("show")
def show_recipe_command(
    name: Annotated[str, typer.Argument(help="Print this recipe, which `gangline recipes ls` lists, or this file.")],
    output: OutputOption = Output.text,
) -> None:
    """Print a recipe. `gangline recipes show NAME > mine.toml` starts a recipe of your own."""
    path = find_recipe(name)
    text = path.read_text()
    if output is Output.json:
        print_json(asdict(_read(path)) | {"settings": tomllib.loads(text)})
    else:
        typer.echo(text, nl=False)


def _read(path: Path) -> Recipe:
    text = path.read_text()
    kind = KINDS[tomllib.loads(text).get("kind", DEFAULT_KIND)]
    command = kind.command.replace("RECIPE", path.stem)
    if path.parent.name == Path(PRESETS).name:
        command = command.replace("--recipe", "--preset")
    return Recipe(name=path.stem, command=command, about=" ".join(_first_comment(text)), path=str(path))


def _first_comment(text: str) -> Iterator[str]:
    """Yield the lines of the comment that a recipe begins with, up to its first empty line."""
    for line in text.splitlines():
        if not line.startswith("#") or not line.strip("# "):
            return
        yield line.strip("# ")
