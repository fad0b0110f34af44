"""`gangline run`: any command as a job on the fleet."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.client import make_client
from gangline.cli.jobs.lists.labels import LabelOption
from gangline.cli.jobs.settings import with_settings_of
from gangline.cli.jobs.submitting.send import UploadProgress, submit_and_watch
from gangline.cli.jobs.train import with_options
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, say
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.jobs.lists.labels import parse_labels
from gangline.core.parsing import to_json
from gangline.core.specs.command import CommandSpec, parse_command
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.compose.client import Client

CODE_BYTES_MAX = 50 * 10**6
GIT = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")


@with_settings_of(CommandSpec)
def run_command(
    command: Annotated[
        list[str],
        typer.Argument(
            help="Run this command, written after --; `{checkpoint}` in it is replaced by the path of the checkpoint to "
            "resume from.",
            show_default=False,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Bring this folder to the node, given as NAME:FOLDER: it is NAME in the working directory. Repeat it for "
            "several."
        ),
    ] = None,
    code: Annotated[
        Path,
        typer.Option(
            help="Bring the files of this folder into the working directory: those that git knows or would add, else all."
        ),
    ] = Path(),
    no_code: Annotated[bool, typer.Option("--no-code", help="Bring no code.")] = False,
    requirements: Annotated[
        Path | None,
        typer.Option(
            help="Install the packages of this file, as `pip install -r` does, into a virtual environment that the node keeps."
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name the job (default: the script).")] = "",
    label: LabelOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job and do not wait for its end.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
    *,
    settings: dict[str, Any],
    needs: dict[str, Any],
) -> None:
    """Run any training command on the fleet, and resume it from its newest checkpoint wherever a node takes it next.

    What the command saves in --checkpoints is recognised as `gangline exec` recognises it; all else there is a result.
    `gangline docs run` explains it. Ctrl-C stops watching the job, never the job itself. The exit code is 0 if the job succeeded, 1 if
    it failed, 130 after Ctrl-C.
    """
    client, labels = make_client(server, token), parse_labels(label or [])
    wanted = with_options({}, settings | {"command": command}, needs)
    folders = [_data(each) for each in data or ()]
    files = [] if no_code else code_files(code)
    stand_ins: dict[str, Any] = {"data": [{"name": name, "files": [to_json(STAND_IN)]} for name, _ in folders]}
    if requirements:
        if not requirements.is_file():
            raise BadInput(f"--requirements: there is no file {requirements}")
        stand_ins["requirements"] = to_json(STAND_IN)
    parse_command(wanted | stand_ins, options=True)  # before anything is uploaded
    spec = parse_command(wanted | upload(client, code, files, folders, requirements), options=True)
    submit_and_watch(client, spec, name, labels, detach, output)


def upload(
    client: "Client",
    code: Path,
    files: list[Path],
    folders: list[tuple[str, Path]],
    requirements: Path | None = None,
) -> dict[str, Any]:
    """Upload code and data by content. Return the fields of the spec that name them."""
    brought = {name: sorted(path for path in folder.rglob("*") if path.is_file()) for name, folder in folders}
    progress = UploadProgress(len(files) + sum(map(len, brought.values())) + bool(requirements))
    if files:
        say(f"uploading {counted(len(files), 'file')} of code from {code.absolute()}")

    def send(paths: list[Path], root: Path) -> list[dict[str, Any]]:
        return [to_json(file) for file in _sent(client, paths, root, progress)]

    packages = {"requirements": send([requirements], requirements.parent)[0]} if requirements else {}
    return packages | {
        "code": send(files, code),
        "data": [{"name": name, "files": send(brought[name], folder)} for name, folder in folders],
    }


def _sent(client: "Client", paths: list[Path], root: Path, progress: UploadProgress) -> tuple[File, ...]:
    return client.files.upload(paths, root, progress=progress) if paths else ()


def code_files(folder: Path) -> list[Path]:
    """Return the files of code in a folder: in a git repository those that git knows or would add, else all. Raises `BadInput`."""
    if not folder.is_dir():
        raise BadInput(f"--code {folder} is not a folder", hint="pass the folder with the script, or --no-code")
    found = _known_to_git(folder)
    by_git = found is not None
    if found is None:
        found = [
            path
            for path in folder.rglob("*")
            if not any(part.startswith(".") for part in path.relative_to(folder).parts)
        ]
    files = sorted(path for path in found if path.is_file())
    size = sum(path.stat().st_size for path in files)
    if size > CODE_BYTES_MAX:
        what = "git knows or would add" if by_git else "it has"
        raise BadInput(
            f"the files that {what} in {folder.absolute()} have {size / 1e6:.0f} MB, and code may have {CODE_BYTES_MAX / 1e6:.0f} MB",
            hint="run it in the folder of the script, name that with --code, pass data with --data, or pass --no-code",
        )
    return files


def _known_to_git(folder: Path) -> list[Path] | None:
    try:
        done = subprocess.run(GIT, cwd=folder, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    if done.returncode:
        return None
    return [folder / name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]


def _data(given: str) -> tuple[str, Path]:
    name, colon, folder = given.partition(":")
    if not colon or not name or not folder:
        raise BadInput(f"--data {given} does not name a folder", hint="write NAME:FOLDER, e.g. images:photos/of-my-cat")
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise BadInput(
            f"--data {given}: there is no folder {path}", hint="write NAME:FOLDER; the folder must exist here"
        )
    if not any(each.is_file() for each in path.rglob("*")):
        raise BadInput(f"--data {given}: {path} has no files")
    return name, path
