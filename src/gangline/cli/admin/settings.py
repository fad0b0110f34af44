"""`gangline settings`: what a server would run with, and whether its settings file is right."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.output import Output, OutputOption, out, print_json, say, table
from gangline.compose.settings import read_server_settings, read_settings_of_box, read_worker_settings
from gangline.core.server.merging import list_settings

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        help="Read the settings from this file (default: GANGLINE_SETTINGS, else gangline.toml in the server's folder).",
        show_default=False,
    ),
]
ReadHomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Read the settings of the server whose data is in this folder (default: GANGLINE_HOME).",
        show_default=False,
    ),
]

app = typer.Typer(no_args_is_help=True)


@app.command("show")
def show_settings_command(
    file: FileArgument = None,
    home: ReadHomeOption = None,
    worker: Annotated[
        bool, typer.Option("--worker", help="Show the settings of a worker, not those of a server.")
    ] = False,
    output: OutputOption = Output.text,
) -> None:
    """Print every setting with its value, where the value comes from, its default, its unit and its meaning."""
    read = (
        read_worker_settings({"worker.settings": file}, beside=home)
        if worker
        else read_server_settings({"server.settings": file, "server.home": home})
    )
    found = list_settings(read.settings, read.sources)
    if output is Output.json:
        print_json(found)
        return
    rows = table("setting", "value", "source", "meaning")
    for each in found:
        rows.add_row(
            f"{each.section}.{each.name}",
            f"{setting_text(each.value)} {each.unit}",
            f"{Path(each.source).name} (default: {setting_text(each.default)})" if each.source else "default",
            each.meaning,
        )
    out.print(rows)


@app.command("check")
def check_settings_command(
    file: FileArgument = None, home: ReadHomeOption = None, output: OutputOption = Output.text
) -> None:
    """Check a settings file as a server and a worker read it, and list everything that is wrong; the exit code is then 2."""
    read = read_settings_of_box({"server.settings": file, "server.home": home})
    listed = list_settings(read.settings, read.sources)
    found = [each for each in listed if each.source and each.value != each.default and each.name != "settings"]
    if output is Output.json:
        print_json({f"{each.section}.{each.name}": each.value for each in found})
        return
    say(f"the settings are valid; {len(found)} of them differ from the defaults")
    for each in found:
        out.print(
            f"{each.section}.{each.name} = {setting_text(each.value)} {each.unit} (default: {setting_text(each.default)})"
        )


def setting_text(value: Any) -> str:
    """Write a value as the file has it; nothing where there is none."""
    if value in (None, "", ()):
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)
