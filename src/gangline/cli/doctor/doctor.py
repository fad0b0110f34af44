"""`gangline doctor`: what is wrong with this machine, its server and its way there, and what to do."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from gangline.cli.doctor import box, machine
from gangline.cli.doctor.findings import Finding, FindingState, wrong
from gangline.cli.doctor.server import check_server
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, facts, out, print_json, say
from gangline.compose.access import read_access
from gangline.compose.machine import shown_gpu
from gangline.compose.settings import read_settings
from gangline.core.display import printable
from gangline.core.errors import GanglineError
from gangline.core.server.programs import DEFAULT_SERVER

EXIT_WRONG = 1
STYLES = {FindingState.ok: "green", FindingState.note: "yellow", FindingState.wrong: "bold red"}


def doctor_command(
    home: Annotated[
        Path | None,
        typer.Option(
            help="Check the server whose data is in this folder (default: GANGLINE_HOME).", show_default=False
        ),
    ] = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Check this machine, the server that it would use, and a server that runs here, and say what to fix.

    The command checks versions, packages, GPU, driver, disk and memory; address, TLS, clock and key; settings, database and object store.
    It changes nothing. The exit code is 1 if something is wrong.
    """
    found = []
    for finding in _findings(home or read_settings().home, server, token):
        found.append(finding)
        if output is Output.text:
            out.print(facts(*_rows(finding)))
    if output is Output.json:
        print_json([asdict(finding) for finding in found])
    count = sum(finding.state is FindingState.wrong for finding in found)
    say("nothing is wrong" if not count else f"{count} {'thing is' if count == 1 else 'things are'} wrong")
    if count:
        raise typer.Exit(EXIT_WRONG)


def _findings(home: Path, server: str | None, token: str | None) -> Iterator[Finding]:
    from gangline.adapters.host.host import memory_bytes

    settings = read_settings()
    yield machine.versions()
    yield machine.packages()
    yield from machine.room(home, memory_bytes())
    yield from machine.check_training(shown_gpu())
    local = None
    try:
        local = read_access(home)
    except GanglineError as error:
        yield wrong("access", error.message, error.hint)
    named = server or settings.server
    address = named or (local.url if local else DEFAULT_SERVER)
    key = token or settings.token or (local.operator_key if local and local.url == address else "")
    yield from check_server(address, key, settings.project, named=bool(named))
    if box.is_here(home):
        yield from box.serving(home)


def _rows(finding: Finding) -> Iterator[tuple[str, str | Text]]:
    mark = Text(f"{finding.state:5}", style=STYLES[finding.state])
    yield f"{finding.about:9}", Text.assemble(mark, "  ", printable(finding.says))
    if finding.hint:
        yield "", Text.assemble(("       hint: ", "bold cyan"), printable(finding.hint))
