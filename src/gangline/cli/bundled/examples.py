"""`gangline examples`: photos, data, outlines, scripts and a model that come with Gangline."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from gangline.adapters.package import bundled
from gangline.cli.output import Output, OutputOption, out, print_json, say, table
from gangline.core.errors import BadInput, NotFound

ABOUT = {
    "assets/tiny-tagger": "A tiny ONNX tagger that sees only how red, green and blue a photo is, to try `gangline captions write`.",
    "assets/tiny-sdxl": "A tiny model in SDXL's architecture, of emoji: a base for any CPU.",
    "examples/subject": "Six photos of one subject, for `gangline train`.",
    "examples/other": "Two photos of another subject.",
    "examples/emoji": "Emoji with captions, for `gangline data convert`.",
    "examples/estimates": "Outlines for `gangline estimate`.",
    "examples/pools": "Programs that rent nodes from RunPod and Vast, for a pool of the driver `command`.",
    "examples/stock_script": "A DreamBooth script that knows nothing of Gangline, for `gangline exec`.",
    "examples/tiny_sdxl": "How the tiny model was made, step by step.",
}
app = typer.Typer(no_args_is_help=True)


@app.command("ls")
def list_examples_command(output: OutputOption = Output.text) -> None:
    """List the examples that come with Gangline. Commands take them by name: `gangline train examples/subject …`."""
    if output is Output.json:
        print_json([{"name": name, "about": about, "path": str(bundled(name))} for name, about in ABOUT.items()])
        return
    rows = table("name", "about")
    for name, about in ABOUT.items():
        rows.add_row(name, about)
    out.print(rows)


@app.command("copy")
def copy_examples_command(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Copy these examples, which `gangline examples ls` lists. The last part of a name is enough."
        ),
    ],
    to: Annotated[Path, typer.Option(help="Copy the examples into this folder (default: the current one).")] = Path(),
) -> None:
    """Copy examples, each under its name, to read or change them."""
    found = [_known(name) for name in names]
    for name in found:
        if (to / name).exists():
            raise BadInput(f"{to / name} exists already", hint="remove it, or pass another folder with --to")
    for name in found:
        try:
            shutil.copytree(bundled(name), to / name)
        except OSError as error:
            raise BadInput(f"{to / name} cannot be written: {error.strerror or error}") from None
        say(f"copied to {to / name}")


def _known(given: str) -> str:
    for name in ABOUT:
        if given.rstrip("/") in (name, name.rpartition("/")[2]):
            return name
    raise NotFound(f"there is no example {given}", hint="`gangline examples ls` lists all examples")
