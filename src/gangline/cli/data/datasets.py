"""`gangline datasets`: photos with captions and masks under a name, in versions that never change."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.client import make_client
from gangline.cli.data.dataset_tables import (
    counts_of,
    print_dataset,
    print_datasets,
    print_version,
    removal_in_words,
    say_findings,
)
from gangline.cli.jobs.kept.removal import YesOption
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    as_typed,
    is_confirmed,
    out,
    print_json,
    say,
)
from gangline.core.datasets.names import check_dataset_name, is_dataset_name, parse_dataset_reference
from gangline.core.datasets.views import DatasetVersionView
from gangline.core.errors import BadInput
from gangline.core.words import counted, size_words

if TYPE_CHECKING:
    from gangline.compose.client import Client
    from gangline.wire.transfers import ProgressCallback, PushedVersion, TransferProgress

SKIPPED_SHOWN = 5

NamedArgument = Annotated[
    str,
    typer.Argument(
        help="Name a data set that `gangline datasets ls` lists, or a version of it, as NAME@3.",
        metavar="NAME[@VERSION]",
        show_default=False,
    ),
]
app = typer.Typer(no_args_is_help=True)


@app.command("push")
def push_dataset_command(
    photos: Annotated[
        str,
        typer.Argument(
            help="Upload the photos in this folder or .zip, with captions beside them (.txt, metadata.jsonl) and masks in its "
            "folder `masks`.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Name the data set (default: the name of the folder).", show_default=False)
    ] = None,
    masks: Annotated[
        str | None,
        typer.Option(help="Take the masks from this folder, one picture for each photo, white where the loss counts."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait while the server checks the photos.")] = False,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Upload photos as a new version of a data set. The photos of the newest version again are that version.

    A file that is stored already is not sent again, so after a break the same command continues. The server then checks every photo,
    and the command prints what it found: photos that look alike, blurred and small ones. The exit code is 2 if a photo cannot be used.
    """
    from gangline.cli.jobs.places.addresses import unpacked

    given = Path(here_or_bundled(photos))
    named = name or default_dataset_name(given)
    client = make_client(server, token, project)
    with unpacked(given) as folder:
        pushed = push_folder(client, check_dataset_name(named), folder, Path(masks) if masks else None)
    version = pushed.version
    stored = f"{pushed.stored:,} {'was' if pushed.stored == 1 else 'were'} stored already"
    summary = (
        f"{version.reference}: {counts_of(version)}, {size_words(version.bytes)}; {pushed.sent:,} uploaded, {stored}"
    )
    if output is Output.text:
        out.print(summary)
        if not version.made:
            say(f"{version.reference} has these photos already; nothing was added")
    if version.state == "checking" and not detach:
        version = wait_until_checked(client, version)
    if output is Output.json:
        print_json({"version": version, "sent": pushed.sent, "stored": pushed.stored})
    elif not detach:
        say_findings(version)
    if version.state == "refused":
        raise BadInput(
            f"{version.reference} cannot be used: {version.because}",
            hint="take that file out, or replace it, and push again",
        )
    if output is Output.text:
        say(f"train on it:   {as_typed('gangline', 'train', version.reference, '--prompt')} …")


@app.command("ls")
def list_datasets_command(
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the data sets of a project, each with its newest version."""
    found = list(make_client(server, token, project).datasets.list())
    if output is Output.json:
        print_json(found)
    else:
        print_datasets(found)


@app.command("show")
def show_dataset_command(
    named: NamedArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show the versions of a data set, or one version and what its check found."""
    wanted, client = parse_dataset_reference(named), make_client(server, token, project)
    if wanted.number is not None:
        version = client.datasets.get(wanted.name, wanted.number)
        if output is Output.json:
            print_json(version)
        else:
            print_version(version)
        return
    versions = client.datasets.versions(wanted.name)
    if output is Output.json:
        print_json(list(versions))
    else:
        print_dataset(versions)
        say_findings(client.datasets.get(wanted.name, versions[0].number))


@app.command("pull")
def pull_dataset_command(
    named: NamedArgument,
    folder: Annotated[str, typer.Argument(help="Write the files below this folder.", show_default=False)],
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Download a version of a data set, by default the newest that is ready, and check each file against its SHA-256.

    A file that is there already and right is not downloaded again, so after a break the same command continues.
    """
    wanted, to = parse_dataset_reference(named), Path(folder)
    client = make_client(server, token, project)
    version = client.datasets.find(str(wanted))
    with _progress("downloading", version.bytes) as progress:
        found = client.datasets.pull(version.name, version.number, to, progress=progress)
    if output is Output.json:
        print_json({"name": version.name, "number": version.number, "folder": str(to.resolve()), "pulled": found})
    else:
        here = found.files - found.downloaded
        out.print(
            f"{version.reference} is in {to}: {counted(found.files, 'file')}, {size_words(found.bytes)}; "
            f"{found.downloaded:,} downloaded, {here:,} {'was' if here == 1 else 'were'} there already"
        )


@app.command("rm")
def remove_dataset_command(
    named: NamedArgument,
    yes: YesOption = False,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Remove a data set with all of its versions, or one version. Files that no job and no other version uses are deleted.

    The command first says what it will delete, and asks for confirmation. While a job that names it has not ended, it is refused.
    """
    wanted, client = parse_dataset_reference(named), make_client(server, token, project)
    going = client.datasets.removal(wanted.name, wanted.number)
    if not yes and not is_confirmed("delete", removal_in_words(going)):
        say("nothing was deleted")
        raise typer.Exit(1)
    gone = client.datasets.remove(wanted.name, wanted.number, versions=going.versions)
    if output is Output.json:
        print_json(gone)
    else:
        say(f"{wanted} is removed; the server deletes files that nothing else uses, some 200 in a minute")


def default_dataset_name(photos: Path) -> str:
    """Return the name of a folder or a zip. Raise `BadInput` if a data set cannot have it."""
    name = photos.resolve().name
    name = name[: -len(".zip")] if name.lower().endswith(".zip") else name
    if not is_dataset_name(name):
        raise BadInput(
            f"{name} is not a valid name for a data set", hint="pass --name with letters, digits and hyphens"
        )
    return name


def push_folder(client: "Client", name: str, folder: Path, masks: Path | None = None) -> "PushedVersion":
    """Upload a folder of photos as a version. What is left out is said. Raise `BadInput`."""
    from gangline.data.images.sets.folders import find_dataset_files

    found = find_dataset_files(folder, masks)
    for skipped in found.skipped[:SKIPPED_SHOWN]:
        say(str(skipped))
    if len(found.skipped) > SKIPPED_SHOWN:
        say(f"{len(found.skipped) - SKIPPED_SHOWN:,} other files are skipped, too")
    with _progress("uploading", sum(path.stat().st_size for path in found.files.values())) as progress:
        return client.datasets.push(name, found.files, progress=progress)


def wait_until_checked(client: "Client", version: DatasetVersionView) -> DatasetVersionView:
    """Wait for the server's check. Ctrl-C stops the waiting, not the check."""
    try:
        return client.datasets.wait(version.name, version.number)
    except KeyboardInterrupt:
        say(
            f"the server continues to check; `{as_typed('gangline', 'datasets', 'show', version.reference)}` shows how far it is"
        )
        return client.datasets.get(version.name, version.number)


@contextmanager
def _progress(what: str, total: int) -> "Iterator[ProgressCallback]":
    """Show a bar of bytes on a terminal."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from gangline.cli.output import err

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as shown:
        bar = shown.add_task(what, total=total)

        def move(moved: "TransferProgress") -> None:
            shown.update(bar, completed=moved.bytes_done)

        yield move
