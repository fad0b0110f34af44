"""`gangline samples`: how a job's subject appears, step by step."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.jobs.follow import wait_for_pictures, watching
from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, cost_alone, out, print_json, say, table
from gangline.compose.settings import existing
from gangline.core.errors import GanglineError, NotFound
from gangline.core.runs.contract import GRID, PHOTOS, SAMPLES
from gangline.core.views import JobView

if TYPE_CHECKING:
    from PIL import Image

FOLDER = f"{SAMPLES}/"
WORDS = {
    "negative_prompt": "negative prompt",
    "size": "size",
    "sampler": "sampler",
    "sampler_steps": "sampler steps",
    "guidance_scale": "guidance scale",
}
"""What may tell pictures of the same prompt and seed apart, by the name that a picture has for it."""
_Row = tuple[tuple[str, str], ...]
AGAIN = "`gangline jobs retry` trains again and renders new pictures"


def samples_command(
    job: JobArgument,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Download the pictures into this folder, and draw all of them in one grid.png."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job has ended and all pictures have arrived.")
    ] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List a job's sample pictures, or download them. More may arrive while it trains, and for a while after."""
    client, job = client_and_job(server, token, job)
    with watching(job, "samples", job, "--wait"):
        view = wait_for_pictures(client, job) if wait else client.jobs.get(job)
    found = [each for each in client.artifacts.list(job) if each.path.startswith(FOLDER) and each.path != FOLDER + GRID]
    if to is not None:
        if not any(each.path != FOLDER + PHOTOS for each in found):
            raise NotFound(f"{job} has no pictures yet: it is {view.summary.state}", hint=view.summary.because)
        existing(to)
        save_grid(client.files.download_all(found, to), to / GRID)
    if output is Output.json:
        rows = [{"path": each.path, "bytes": each.bytes, "sha256": each.sha256} for each in found]
        print_json({"job": job, "folder": str(to) if to else None, "samples": rows, "standing": view.samples})
        return
    listing = table("path", ">bytes")
    for each in found:
        listing.add_row(each.path, f"{each.bytes:,}")
    out.print(listing)
    say(samples_standing(view))
    if to is not None:
        say(f"{to / GRID} shows all pictures, step by step")
    if wait and view.samples.failed:
        raise GanglineError(f"some pictures were not rendered: {view.samples.because}", hint=AGAIN)


def samples_standing(view: JobView) -> str:
    """Describe how many pictures of a job are rendered and waiting, and what those cost that other nodes rendered."""
    of = view.samples
    sets = ((of.waiting, "waiting"), (of.failed, "failed"))
    others = (f"{count} {'set' if count == 1 else 'sets'} {what}" for count, what in sets if count)
    return ", ".join((f"{of.pictures} rendered", *others, cost_alone(of.cost_usd, of.cost_lacks)))


def save_grid(files: Sequence[Path], target: Path) -> None:
    """Save a sheet with a row for each prompt, seed and settings and a column for each step, below the training photos. Pictures
    whose metadata does not name their step are left out."""
    from PIL import Image

    from gangline.data.images.grid import GridRow, draw_grid

    places: dict[_Row, dict[int, Image.Image]] = {}
    for path in files:
        if path.suffix == ".png" and "step" in (text := _text_of(image := Image.open(path))):
            places.setdefault(_row_of(text), {})[int(text["step"])] = image
    steps = sorted({step for row in places.values() for step in row})
    rows = [GridRow(_label(row, [*places]), [found.get(step) for step in steps]) for row, found in places.items()]
    photos = next((path for path in files if path.name == PHOTOS), None)
    columns = [f"step {step}" if step else "base" for step in steps]
    draw_grid(rows, columns, Image.open(photos) if photos else None).save(target)


def _text_of(image: "Image.Image") -> dict[str, str]:
    """Return what a picture says about itself, with its size."""
    return {str(name): str(value) for name, value in image.info.items()} | {"size": f"{image.width} × {image.height}"}


def _row_of(text: dict[str, str]) -> _Row:
    return tuple((name, value) for name, value in sorted(text.items()) if name != "step")


def _label(row: _Row, rows: list[_Row]) -> str:
    """Return prompt and seed, and the settings in which the row differs from others of the same prompt and seed."""
    own = dict(row)
    alike = [other for each in rows if _subject_of(other := dict(each)) == _subject_of(own)]
    names = [name for name in WORDS if len({other.get(name, "") for other in alike}) > 1]
    told = ", ".join((f"seed {own['seed']}", *(f"{WORDS[name]} {own.get(name) or 'none'}" for name in names)))
    return f"{own['prompt']}  ({told})"


def _subject_of(text: dict[str, str]) -> tuple[str, str]:
    return text["prompt"], text["seed"]
