"""`gangline backup`: a server's database and keys in a file, and back."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gangline.cli.output import Output, OutputOption, out, print_json, say
from gangline.compose.settings import read_server_settings
from gangline.core.server.backups import BackupManifest, check_in_words
from gangline.core.server.settings import ServerSettings
from gangline.core.words import counted

EXIT_NOT_WHOLE = 1
_Home = Annotated[
    Path | None,
    typer.Option(
        "--home", help="Use the server whose data is in this folder (default: GANGLINE_HOME).", show_default=False
    ),
]
_SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Read the settings from this file (default: GANGLINE_SETTINGS, else gangline.toml in the server's folder).",
        show_default=False,
    ),
]

app = typer.Typer(no_args_is_help=True)


@app.command("create")
def create_backup_command(
    file: Annotated[Path, typer.Argument(help="Write this file; it must not exist.", show_default=False)],
    home: _Home = None,
    settings: _SettingsFile = None,
    output: OutputOption = Output.text,
) -> None:
    """Write the database and the keys of a server into one file, while it runs. The files in its object store are not in it."""
    from gangline.compose.backups import back_up

    made = back_up(_settings(home, settings), file)
    if output is Output.json:
        print_json(_described(made) | {"file": str(file), "bytes": file.stat().st_size})
        return
    out.print(f"{file}: {counted(made.rows, 'row')}, schema {made.schema}, keys: {', '.join(made.keys) or 'none'}")
    say(
        "It opens every project: keep it as safe as a password. Not in it: the object store, settings, secrets of pools."
    )


@app.command("restore")
def restore_backup_command(
    file: Annotated[Path, typer.Argument(help="Read this backup.", show_default=False)],
    home: _Home = None,
    settings: _SettingsFile = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a database and keys that are there. What is in them is lost.")
    ] = False,
    output: OutputOption = Output.text,
) -> None:
    """Put a backup into the database and the home of a server that is stopped: all of it, or nothing. Jobs that ran when it was made
    wait for a node again."""
    from gangline.compose.backups import restore

    found = restore(_settings(home, settings), file, replace=replace)
    if output is Output.json:
        print_json(_described(found.manifest) | {"ended_attempts": found.ended, "lost_pools": found.lost_pools})
        return
    out.print(f"restored {counted(found.manifest.rows, 'row')}; {counted(found.ended, 'running attempt')} ended")
    say("Keys that were revoked, and pools that were paused or removed, after the backup was made are active again.")
    if found.lost_pools:
        say(
            f"Nobody knows these pools any more, and their providers still bill their nodes: {', '.join(found.lost_pools)}. "
            "End the nodes there."
        )
    say("Run `gangline backup check`, then start the server.")


@app.command("check")
def check_backup_command(
    home: _Home = None, settings: _SettingsFile = None, output: OutputOption = Output.text
) -> None:
    """Check a database for damage, and the object store for every file that it refers to. The exit code is 1 where something is missing."""
    from gangline.compose.backups import check

    found = check(_settings(home, settings))
    if output is Output.json:
        print_json(asdict(found) | {"whole": found.is_whole})
    else:
        for line in check_in_words(found):
            out.print(line)
    if not found.is_whole:
        raise typer.Exit(EXIT_NOT_WHOLE)


def _settings(home: Path | None, settings: Path | None) -> ServerSettings:
    return read_server_settings({"server.home": home, "server.settings": settings}).settings


def _described(made: BackupManifest) -> dict[str, object]:
    return {
        "version": made.version,
        "schema": made.schema,
        "made_ms": made.made_ms,
        "rows": made.rows,
        "keys": sorted(made.keys),
    }
