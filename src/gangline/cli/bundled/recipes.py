"""`gangline recipes`: settings that come with Gangline, to train with or to begin one's own from."""

import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.adapters.package import PRESETS, RECIPES, bundled, bundled_presets
from gangline.cli.bundled.place import find_recipe
from gangline.cli.output import Output, OutputOption, out, print_json, table
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS
from gangline.core.specs.templates import about_recipe, settings_of_presets

app = typer.Typer(no_args_is_help=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    name: str
    command: str
    about: str
    """The first paragraph of its comment."""
    path: str


def complete_preset(incomplete: str) -> list[tuple[str, str]]:
    """Return what a shell offers."""
    return [(name, each.about) for name, each in bundled_presets().items() if name.startswith(incomplete)]


def read_presets(names: list[str]) -> dict[str, Any]:
    """Return their settings; where two set the same one, the later counts. Raises `BadInput`."""
    return settings_of_presets(bundled_presets(), names)


@app.command("ls")
def list_recipes_command(output: OutputOption = Output.text) -> None:
    """List the recipes that come with Gangline."""
    found = [_read(path) for folder in (RECIPES, PRESETS) for path in sorted(bundled(folder).glob("*.toml"))]
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
    return Recipe(name=path.stem, command=command, about=about_recipe(text), path=str(path))
