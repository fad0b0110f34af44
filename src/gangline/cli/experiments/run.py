"""`gangline experiments run`: submit the experiment of a TOML file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.bundled.recipes import read_presets
from gangline.cli.client import make_client
from gangline.cli.experiments.grid_file import GridFile, naming_file, read_grid
from gangline.cli.jobs.places.addresses import addresses_of, dataset_of, unpacked
from gangline.cli.jobs.submitting.send import submit_experiment_of
from gangline.cli.jobs.train import plan_lora, read_recipe, with_base, with_options
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption
from gangline.core.errors import BadInput, NotFound
from gangline.core.parsing import InvalidSpec


def run_experiment_command(
    file: Annotated[Path, typer.Argument(help="Read the experiment from this TOML file.", show_default=False)],
    photos: Annotated[
        str,
        typer.Option(
            help="Train on the photos of this folder, .zip or data set instead of the file's.", show_default=False
        ),
    ] = "",
    name: Annotated[
        str, typer.Option(help="Name the experiment (default: as the file, else the prompt).", show_default=False)
    ] = "",
    plan: Annotated[
        bool, typer.Option("--plan", help="Check everything and show the plan and the price, but submit nothing.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit the experiment and do not wait for its end.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Submit the experiment of a file: photos, settings, and how its jobs differ.

    `gangline docs experiments` explains the file. Ctrl-C stops watching the experiment, never its jobs.
    """
    grid = read_grid(file)
    client, at = make_client(server, token), photos or grid.photos
    if addresses_of(at) is not None:
        raise BadInput(f"{file}: photos are those of a folder, a .zip or a data set", hint="download them first")
    with naming_file(file, BadInput, NotFound):
        wanted = with_base(_settings(grid), client.bases.get)

    def asked(spec: dict[str, Any]) -> dict[str, Any]:
        return grid.asked(spec) | ({"name": name} if name else {})

    version = dataset_of(client, at)
    if version is not None:
        from gangline.cli.jobs.places.fetched import plan_of_dataset

        with naming_file(file, InvalidSpec):
            made = plan_of_dataset(client, wanted, version)
        submit_experiment_of(client, made, asked, plan=plan, detach=detach, output=output)
        return
    notes: list[str] = []
    with unpacked(Path(here_or_bundled(at, notes.append))) as folder:
        with naming_file(file, InvalidSpec):
            made = plan_lora(folder, wanted, notes)
        submit_experiment_of(client, made, asked, plan=plan, detach=detach, output=output)


def _settings(grid: GridFile) -> dict[str, Any]:
    own = read_recipe(grid.recipe or None, variables=grid.variables, option="variables.")
    needs = grid.settings.get("needs", {})
    given = {name: value for name, value in grid.settings.items() if name != "needs"}
    return with_options(read_presets([*grid.preset]) | own, given, needs)
