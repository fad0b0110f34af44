"""`gangline captions`: read and write the captions of photos, as a table or with a model."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.captions.job import captions_of_job, check_request, only_missing
from gangline.cli.captions.photos import captioned_photos, shown_captions, take_over
from gangline.cli.captions.table import read_table, write_table
from gangline.cli.captions.version import DatasetPhotos
from gangline.cli.client import make_client
from gangline.cli.jobs.follow import follow_job, tell_end, watching
from gangline.cli.jobs.lists.labels import LabelOption
from gangline.cli.jobs.plan.files import LocalFiles
from gangline.cli.jobs.settings import with_settings_of
from gangline.cli.jobs.train import EXIT_JOB_FAILED, UploadProgress, with_options
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    as_typed,
    check_place,
    out,
    print_json,
    say,
)
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN
from gangline.core.jobs.lists.labels import parse_labels
from gangline.core.parsing import to_json
from gangline.core.specs.caption import CaptionSpec, parse_caption
from gangline.core.words import counted

TABLE_BYTES_MAX = 200_000_000
PhotosArgument = Annotated[
    str,
    typer.Argument(
        help="Take the photos of this folder, or of a data set, NAME or NAME@VERSION: changed captions make a new version of it.",
        show_default=False,
        metavar="PHOTOS",
    ),
]
OverwriteCaptionsOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace captions that photos have, too (default: keep them).")
]
app = typer.Typer(no_args_is_help=True)


@app.command("export")
def export_command(
    photos: PhotosArgument,
    to: Annotated[
        Path | None, typer.Option("--to", help="Write the table to this file (default: standard output).")
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Print the captions as a table in CSV, with the columns `photo` and `caption`.

    A cell that a spreadsheet would run as a formula has an apostrophe before it, which `captions import` takes away again.
    """
    captions = shown_captions(captioned_photos(make_client(server, token, project), photos))
    if to is not None:
        check_place(to, "--to")
        to.write_text(
            write_table(captions), encoding="utf-8-sig"
        )  # without the mark, Excel reads it in another encoding
        say(f"{to} has the captions of {counted(len(captions), 'photo')}")
    elif output is Output.json:
        print_json([{"photo": photo, "caption": caption} for photo, caption in captions.items()])
    else:
        for line in write_table(captions).splitlines():
            out.print(line)


@app.command("import")
def import_command(
    photos: PhotosArgument,
    table: Annotated[
        Path | None, typer.Argument(help="Read this table, as `captions export` writes it.", show_default=False)
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="Take the captions that this job of `captions write` has written, instead of a table."),
    ] = None,
    overwrite: OverwriteCaptionsOption = False,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Take the captions from a table in CSV, or from a job. Photos that it does not name keep theirs; an empty cell deletes a caption.

    A table replaces captions. Those of a job are for photos that have none by now, unless --overwrite is given.
    """
    if (table is None) == (job is None):
        raise BadInput(
            "there is no table to read" if table is None else "a table and --job exclude each other",
            hint=f"give the table's file ({as_typed('gangline', 'captions', 'import', photos, 'captions.csv')}), or --job JOB",
        )
    if overwrite and job is None:
        raise BadInput("--overwrite goes with --job", hint="a table replaces the captions of the photos that it names")
    client = make_client(server, token, project)
    found = captioned_photos(client, photos)
    if table is not None:
        take_over(found, read_table(_text(table), found.paths, str(table)), output, project)
    elif job is not None:
        written = captions_of_job(client, client.jobs.find(job), found.paths)
        take_over(found, only_missing(found, written, overwrite=overwrite), output, project)


@app.command("edit")
def edit_command(
    photos: PhotosArgument,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Open the captions as a table in your editor ($VISUAL or $EDITOR), and take over what you saved."""
    from gangline.compose.settings import editor_words

    found = captioned_photos(make_client(server, token, project), photos)
    with TemporaryDirectory(prefix="gangline-") as at:
        table = Path(at) / "captions.csv"
        table.write_text(write_table(shown_captions(found)), encoding="utf-8")
        editor = editor_words()
        try:
            ended = subprocess.run([*editor, str(table)], check=False).returncode
        except OSError as error:
            raise BadInput(f"the editor {editor[0]} cannot be started: {error.strerror}", hint="set EDITOR") from None
        if ended:
            raise BadInput(f"the editor ended with exit code {ended}, so no caption was changed")
        take_over(found, read_table(_text(table), found.paths, table.name), output, project)


@app.command("write")
@with_settings_of(CaptionSpec)
def write_command(
    photos: PhotosArgument,
    model: Annotated[
        str,
        typer.Option(
            help="Write captions with the model in this folder: an ONNX tagger of the WD family (model.onnx, selected_tags.csv), or an "
            "image-text-to-text model of transformers (.safetensors).",
            show_default=False,
        ),
    ],
    overwrite: OverwriteCaptionsOption = False,
    name: Annotated[str, typer.Option(help="Name the job (default: the folder).")] = "",
    label: LabelOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job and do not wait for its end.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    project: ProjectOption = None,
    output: OutputOption = Output.text,
    *,
    settings: dict[str, Any],
    needs: dict[str, Any],
) -> None:
    """Let a node write captions for the photos that have none, and take them over.

    The job is one of kind `caption`: it waits for a node, is resumed when its node vanishes, and costs what its node costs. Ctrl-C stops
    watching it; `gangline captions import PHOTOS --job JOB` takes its captions over later.
    """
    client, labels = make_client(server, token, project), parse_labels(label or [])
    found = captioned_photos(client, photos)
    stated = {} if overwrite else found.stated(say)
    wanted = [photo for photo in found.paths if photo not in stated]
    folder = Path(here_or_bundled(model))
    models = model_files(folder)
    given = with_options({}, settings, needs) | {"photos": [to_json(STAND_IN)]}
    unsent = {"model": {"files": [to_json(file) for file in LocalFiles(folder, models).unsent()]}}
    checked = to_json(parse_caption(given | unsent, options=True))  # before anything is uploaded
    if not wanted:
        say(f"every photo of {photos} has a caption; --overwrite writes new ones")
        return
    check_request(checked | found.as_unsent(wanted), len(wanted))
    progress = UploadProgress(len(wanted) + len(models))
    fields = found.sent(wanted, progress)
    sent = {"model": {"files": [to_json(file) for file in client.files.upload(models, folder, progress=progress)]}}
    spec = to_json(parse_caption(given | sent, options=True)) | fields
    job = client.jobs.submit(spec, name=name or f"captions of {found.place}", labels=labels).summary
    options = [*(["--overwrite"] if overwrite else []), *(["--project", project] if project else [])]
    again = ("captions", "import", photos, "--job", job.id, *options)
    with watching(job.id, *again):
        say(f"{job.id} is queued: {job.because}")
        if detach:
            say(f"take its captions over once it has ended:  {as_typed('gangline', *again)}")
            print_json(job) if output is Output.json else out.print(job.id)
            return
        ended = follow_job(client, job.id)
    tell_end(ended.summary)
    if ended.summary.state != "succeeded":
        raise typer.Exit(EXIT_JOB_FAILED)
    if isinstance(found, DatasetPhotos):
        found = captioned_photos(client, photos)  # the newest version may be another one by now, with more captions
    asked = {*wanted}
    written = captions_of_job(client, job.id, [photo for photo in found.paths if photo in asked])
    take_over(found, only_missing(found, written, overwrite=overwrite), output, project)


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model, without hidden ones such as the hub's `.cache`. Raise `BadInput` if it is not a folder."""
    if not folder.is_dir():
        raise BadInput(f"--model {folder} is not a folder", hint="give the folder of the tagger or captioner")
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > TABLE_BYTES_MAX:
            raise BadInput(f"{path} is too large for a table of captions")
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8", hint="save the table as CSV in UTF-8") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
