"""`gangline captions`: read and write the captions of photos, as a table or with a model."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.captions.folder import PhotoFolder
from gangline.cli.captions.table import read_table, write_table
from gangline.cli.client import make_client
from gangline.cli.jobs.follow import follow_job, tell_end, watching
from gangline.cli.jobs.lists.labels import LabelOption
from gangline.cli.jobs.settings import with_settings_of
from gangline.cli.jobs.train import EXIT_JOB_FAILED, UploadProgress, with_options
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    as_typed,
    check_place,
    out,
    print_json,
    say,
)
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.jobs.lists.labels import parse_labels
from gangline.core.parsing import to_json
from gangline.core.specs.caption import CaptionSpec, caption_path, parse_caption
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client

TABLE_BYTES_MAX = 200_000_000
PhotosArgument = Annotated[
    Path, typer.Argument(help="Take the photos of this folder.", show_default=False, metavar="PHOTOS")
]
app = typer.Typer(no_args_is_help=True)


@app.command("export")
def export_command(
    photos: PhotosArgument,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the table to this file (default: standard output).")
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Print the captions as a table in CSV, with the columns `photo` and `caption`.

    A cell that a spreadsheet would run as a formula has a quote before it, which `captions import` takes away again.
    """
    captions = PhotoFolder(photos).read()
    if to is not None:
        check_place(to, "--to")
        to.write_text(write_table(captions))
        say(f"{to} has the captions of {counted(len(captions), 'photo')}")
    elif output is Output.json:
        print_json([{"photo": photo, "caption": caption} for photo, caption in captions.items()])
    else:
        for line in write_table(captions).splitlines():
            out.print(line)


@app.command("import")
def import_command(
    photos: PhotosArgument,
    table: Annotated[Path, typer.Argument(help="Read this table, as `captions export` writes it.", show_default=False)],
    output: OutputOption = Output.text,
) -> None:
    """Take the captions from a table in CSV. Photos that it does not name keep theirs; an empty cell deletes a caption."""
    folder = PhotoFolder(photos)
    _put(folder, read_table(_text(table), folder.paths, str(table)), output)


@app.command("edit")
def edit_command(photos: PhotosArgument, output: OutputOption = Output.text) -> None:
    """Open the captions as a table in your editor ($VISUAL or $EDITOR), and take over what you saved."""
    from gangline.compose.settings import editor_words

    folder = PhotoFolder(photos)
    with TemporaryDirectory(prefix="gangline-") as at:
        table = Path(at) / "captions.csv"
        table.write_text(write_table(folder.read()))
        editor = editor_words()
        try:
            ended = subprocess.run([*editor, str(table)], check=False).returncode
        except OSError as error:
            raise BadInput(f"the editor {editor[0]} cannot be started: {error.strerror}", hint="set EDITOR") from None
        if ended:
            raise BadInput(f"the editor ended with exit code {ended}, so no caption was changed")
        _put(folder, read_table(_text(table), folder.paths, table.name), output)


@app.command("write")
@with_settings_of(CaptionSpec)
def write_command(
    photos: PhotosArgument,
    model: Annotated[
        Path,
        typer.Option(
            help="Write captions with the model in this folder: an ONNX tagger of the WD family (model.onnx, selected_tags.csv), or an "
            "image-text-to-text model of transformers (.safetensors).",
            show_default=False,
        ),
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Write captions for photos that have one, too.")
    ] = False,
    name: Annotated[str, typer.Option(help="Name the job (default: the folder).")] = "",
    label: LabelOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
    *,
    settings: dict[str, Any],
    needs: dict[str, Any],
) -> None:
    """Let a node write captions for the photos that have none, and put them beside the photos.

    The job is one of kind `caption`: it waits for a node, is resumed when its node vanishes, and costs what its node costs. Ctrl-C stops
    watching it; `gangline artifacts JOB --to PHOTOS` downloads its captions later.
    """
    folder, client, labels = PhotoFolder(photos), make_client(server, token), parse_labels(label or [])
    captions = folder.read()
    wanted = [path for path, photo in zip(folder.files, folder.paths, strict=True) if overwrite or not captions[photo]]
    models = model_files(model)
    given = with_options({}, settings, needs)
    stand_in = {"photos": [to_json(STAND_IN)], "model": {"files": [_unsent(path, model) for path in models]}}
    parse_caption(given | stand_in, options=True)  # before anything is uploaded
    if not wanted:
        say(f"every photo of {photos} has a caption; --overwrite writes new ones")
        return
    progress = UploadProgress(len(wanted) + len(models))
    inputs = {
        "photos": [to_json(file) for file in client.files.upload(wanted, folder.folder, progress=progress)],
        "model": {"files": [to_json(file) for file in client.files.upload(models, model, progress=progress)]},
    }
    spec = parse_caption(given | inputs, options=True)
    job = client.jobs.submit(spec, name=name or f"captions of {folder.title}", labels=labels).summary
    with watching(job.id):
        say(f"{job.id} is queued: {job.because}")
        ended = follow_job(client, job.id)
    tell_end(ended.summary)
    if ended.summary.state != "succeeded":
        raise typer.Exit(EXIT_JOB_FAILED)
    _put(folder, captions_of_job(client, job.id, [file.path for file in spec.photos]), output)


def captions_of_job(client: "Client", job: str, photos: list[str]) -> dict[str, str]:
    """Download the captions that a job wrote, by their photos."""
    with TemporaryDirectory(prefix="gangline-") as at:
        client.artifacts.download(job, Path(at))
        found = {photo: Path(at) / caption_path(photo) for photo in photos}
        return {photo: path.read_text().strip() for photo, path in found.items() if path.is_file()}


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model. Raise `BadInput` if it is no folder."""
    if not folder.is_dir():
        raise BadInput(f"--model {folder} is not a folder", hint="give the folder of the tagger or captioner")
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))


def _unsent(path: Path, below: Path) -> dict[str, Any]:
    return to_json(File(path=path.relative_to(below).as_posix(), bytes=path.stat().st_size, sha256=STAND_IN.sha256))


def _put(folder: PhotoFolder, captions: dict[str, str], output: Output) -> None:
    before = folder.read()
    changed = {photo: caption for photo, caption in captions.items() if before[photo] != caption}
    folder.put(changed)
    if output is Output.json:
        print_json([{"photo": photo, "caption": caption} for photo, caption in changed.items()])
    say(
        f"{counted(len(changed), 'caption')} changed; `{as_typed('gangline', 'captions', 'export', str(folder.folder))}` prints all"
    )


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > TABLE_BYTES_MAX:
            raise BadInput(f"{path} is too large for a table of captions")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8", hint="save the table as CSV in UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
