"""`gangline bases`: models to start from, by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.client import make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    as_typed,
    facts,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.display import NAME_MAX, printable
from gangline.core.errors import BadInput, GanglineError
from gangline.core.specs.fields import Base, FilesBase, Prediction
from gangline.core.views import BaseView

if TYPE_CHECKING:
    from gangline.cli.jobs.plan.files import ModelChoice
    from gangline.compose.client import Client

LOOK_EVERY_S = 2.0
PREDICTIONS: tuple[str, ...] = get_args(Prediction)

NameArgument = Annotated[str, typer.Argument(help="Name a base that `gangline bases ls` lists.", show_default=False)]
app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_base_command(
    source: Annotated[
        str,
        typer.Argument(
            help="Add this model: a hub id (NAME/MODEL or NAME/MODEL@REVISION), a folder in diffusers' layout, or a "
            ".safetensors file.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Name the base (default: the last part of the source).", show_default=False)
    ] = None,
    vae: Annotated[
        str | None, typer.Option(help="Use this VAE instead of the base's own: a hub id, a folder or a file.")
    ] = None,
    licence: Annotated[
        str,
        typer.Option(
            help="State this licence (default: the one that the hub, the folder's README or the file's metadata states)."
        ),
    ] = "",
    prediction_type: Annotated[
        str,
        typer.Option(
            help="State what the base predicts, epsilon or v_prediction (default: recognised from its files)."
        ),
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait while the server copies a gated base.")] = False,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Add a base under a name. Files are uploaded, a revision on the hub is pinned, and the server copies a gated model once."""
    if prediction_type and prediction_type not in PREDICTIONS:
        raise BadInput(f"{prediction_type} is not a prediction type", hint=f"choose one of {', '.join(PREDICTIONS)}")
    from gangline.cli.jobs.plan.files import LocalFiles, find_base, find_vae

    source = here_or_bundled(source)
    client = make_client(server, token, project)
    said = {"licence": licence, "prediction_type": prediction_type}
    base, own_vae = find_base(source), find_vae(vae) if vae else None
    if isinstance(base, LocalFiles):
        said = facts_of(Path(source)) | {what: value for what, value in said.items() if value}
    found = client.bases.add(
        name or default_name(source),
        upload_base(client, base),
        vae=upload_base(client, own_vae) if own_vae else None,
        **said,
    )
    if not detach:
        found = wait_until_copied(client, found)
    print_base(found, output)


@app.command("ls")
def list_bases_command(
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the bases of a project."""
    found = list(make_client(server, token, project).bases.list())
    if output is Output.json:
        print_json(found)
        return
    rows = table("base", "family", "prediction", ">GB", "licence", "state", "from")
    for each in found:
        size = f"{each.bytes / 1e9:.2f}"
        rows.add_row(each.name, each.family, each.prediction_type, size, each.licence, state_of(each), from_of(each))
    out.print(rows)


@app.command("show")
def show_base_command(
    name: NameArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Show a base."""
    print_base(make_client(server, token, project).bases.get(name), output)


@app.command("rm")
def forget_base_command(
    name: NameArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Remove a base's name. Jobs that use the base continue, because they refer to its content, which is kept for them."""
    client = make_client(server, token, project)
    client.bases.get(name)
    client.bases.remove(name)
    if output is Output.json:
        print_json({"name": name, "forgotten": True})
    else:
        say(f"the name {name} is removed; jobs that use the base continue")


def default_name(source: str) -> str:
    from gangline.cli.jobs.plan.files import as_hub

    hub = as_hub(source)
    return hub.repo.rpartition("/")[2] if hub else Path(source).resolve().name.removesuffix(".safetensors")


def upload_base(client: "Client", model: "ModelChoice") -> Base:
    from gangline.cli.jobs.plan.files import LocalFiles
    from gangline.cli.jobs.submitting.send import UploadProgress

    return (
        FilesBase(files=client.files.upload(model.paths, model.below, progress=UploadProgress(len(model.paths))))
        if isinstance(model, LocalFiles)
        else model
    )


def facts_of(source: Path) -> dict[str, str]:
    """Read what a folder or a file shows of itself. Raises `BadInput` if it is not a base."""
    from gangline.cli.jobs.plan.base import licence_of_files
    from gangline.data.bases import describe_base

    model = describe_base(source)
    return {
        "family": model.family.name,
        "prediction_type": model.prediction_type,
        "because": printable(model.because),
        "licence": printable(licence_of_files(source, model))[:NAME_MAX],
    }


def wait_until_copied(client: "Client", found: BaseView) -> BaseView:
    """Wait for the server's copy and report its progress. Ctrl-C stops the waiting, not the copying."""
    from threading import Event

    shown = ""
    try:
        while found.state == "fetching":
            if found.why != shown:
                shown = found.why
                say(f"{found.name} is gated, so the server copies it: {shown}")
            Event().wait(LOOK_EVERY_S)
            found = client.bases.get(found.name)
    except KeyboardInterrupt:
        say(f"the server continues to copy; `{as_typed('gangline', 'bases', 'show', found.name)}` shows how far it is")
    if found.state == "failed":
        raise GanglineError(
            f"{found.name} could not be copied: {found.why}", hint="fix the cause and add the base again"
        )
    return found


def print_base(found: BaseView, output: Output) -> None:
    if output is Output.json:
        print_json(found)
        return
    rows = [
        ("base", found.name),
        ("from", from_of(found)),
        ("family", f"{found.family} ({found.because})" if found.because else found.family),
        ("prediction", found.prediction_type),
        ("licence", found.licence),
        ("bytes", f"{found.bytes:,}"),
        ("id", found.id),
        ("state", state_of(found)),
        ("added", format_time(found.made_ms)),
    ]
    if found.vae:
        rows.insert(2, ("vae", _place(found.vae)))
    out.print(facts(*rows))
    say(f"train with it:   {as_typed('gangline', 'train', 'PHOTOS', '--base', found.name, '--prompt')} …")


def from_of(found: BaseView) -> str:
    return _place(found.base)


def state_of(found: BaseView) -> str:
    return f"{found.state}: {found.why}" if found.why else found.state


def _place(model: dict) -> str:
    if model["source"] == "hub":
        return f"{model['repo']} at {model['revision'][:12]}"
    return f"{len(model['files'])} files" if len(model["files"]) > 1 else str(model["files"][0]["path"])
