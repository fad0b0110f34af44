"""`gangline notify`: who receives what happens to jobs."""

import sys
from datetime import UTC, datetime
from shlex import quote
from typing import Annotated, cast, get_args

import typer

from gangline.cli.client import make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ProjectOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    say,
    table,
)
from gangline.core.errors import BadInput
from gangline.core.notices.kinds import NOTICES, NoticeKind
from gangline.core.notices.views import EndpointView, NewEndpoint, NoticeChannel

CHANNELS: tuple[NoticeChannel, ...] = get_args(NoticeChannel)
HOUR_S = 3600
LOG_MAX = 50
EndpointArgument = Annotated[
    str, typer.Argument(help="Name the endpoint by its name or its id.", show_default=False, metavar="ENDPOINT")
]
NoticeKindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        help="Send this kind of notice (repeatable; default: those of the channel). `gangline notify kinds` lists them.",
    ),
]
IntervalOption = Annotated[
    float | None,
    typer.Option(
        "--every-minutes",
        min=0,
        max=1440,
        help="Send at most one message in this many minutes (default for people: 10).",
    ),
]
QuietOption = Annotated[
    str | None,
    typer.Option(help="Send nothing in these hours, e.g. '22:00-07:00 Europe/Berlin' (default: none)."),
]
app = typer.Typer(no_args_is_help=True)


@app.command("add")
def add_endpoint_command(
    channel: Annotated[str, typer.Argument(help=f"Send by this channel: {', '.join(CHANNELS)}.", show_default=False)],
    address: Annotated[
        str,
        typer.Argument(
            help="Send to this https:// URL or mail address; - reads it from standard input, as some are secrets.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Name the endpoint (default: the channel, and a number if that is taken).")
    ] = None,
    on: NoticeKindOption = None,
    every_minutes: IntervalOption = None,
    quiet: QuietOption = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Add an endpoint: it receives what happens from now on. A webhook's signing secret is printed only once."""
    made = make_client(server, token, project).endpoints.add(
        sys.stdin.readline().strip() if address == "-" else address,
        name=name or "",
        channel=_channel(channel),
        kinds=_kinds(on),
        interval_s=None if every_minutes is None else every_minutes * 60,
        quiet=quiet or "",
    )
    _show_new(made, output, f"{made.endpoint.name} receives {', '.join(made.endpoint.kinds)}")


@app.command("ls")
def list_endpoints_command(
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List the project's endpoints, what waits for them, and when something last arrived there."""
    found = list(make_client(server, token, project).endpoints.list())
    if output is Output.json:
        print_json(found)
        return
    rows = table("endpoint", "channel", "to", "receives", "state", "waiting", "arrived", "because")
    for endpoint in found:
        rows.add_row(
            endpoint.name,
            endpoint.channel,
            endpoint.to,
            ", ".join(endpoint.kinds),
            _state(endpoint),
            str(endpoint.waiting),
            format_time(endpoint.delivered_ms),
            endpoint.because,
        )
    out.print(rows)


@app.command("kinds")
def list_kinds_command(output: OutputOption = Output.text) -> None:
    """List the kinds of notices that an endpoint can receive."""
    if output is Output.json:
        print_json({kind: meaning.says for kind, meaning in NOTICES.items()})
        return
    rows = table("kind", "what happened")
    for kind, meaning in NOTICES.items():
        rows.add_row(kind, meaning.says)
    out.print(rows)


@app.command("set")
def change_endpoint_command(
    endpoint: EndpointArgument,
    name: Annotated[str | None, typer.Option(help="Give it this name.")] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            help="Send this kind of notice, and no other (repeat it for each; default: those as before). `gangline notify kinds` "
            "lists them.",
        ),
    ] = None,
    every_minutes: IntervalOption = None,
    quiet: QuietOption = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Change an endpoint; what no option names stays. `--quiet ''` ends its quiet hours."""
    interval_s = None if every_minutes is None else every_minutes * 60
    found = make_client(server, token, project).endpoints.set(
        endpoint, name=name, kinds=_kinds(on) if on else None, interval_s=interval_s, quiet=quiet
    )
    _show(found, output, f"{found.name} receives {', '.join(found.kinds)}")


@app.command("enable")
def enable_endpoint_command(
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Let a disabled endpoint receive what happens from now on. `gangline notify replay` sends what happened meanwhile."""
    found = make_client(server, token, project).endpoints.set(endpoint, state="active")
    _show(found, output, f"{found.name} receives what happens from now on")


@app.command("disable")
def disable_endpoint_command(
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Send an endpoint nothing more, and drop what waits for it. It stays in the list."""
    found = make_client(server, token, project).endpoints.set(endpoint, state="disabled")
    _show(found, output, f"{found.name} is sent nothing more; `gangline notify enable {found.name}` changes that")


@app.command("test")
def test_endpoint_command(
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Send a test message to an endpoint, and print what came of it."""
    found = make_client(server, token, project).endpoints.test(endpoint)
    if output is Output.json:
        print_json(found)
    elif found.delivered:
        say(f"the message arrived: {found.because}")
    if not found.delivered:
        raise BadInput(f"the message did not arrive: {found.because}")


@app.command("rm")
def remove_endpoint_command(
    endpoint: EndpointArgument,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Remove an endpoint with its log."""
    client = make_client(server, token, project)
    found = client.endpoints.get(endpoint)
    client.endpoints.remove(found.id)
    if output is Output.json:
        print_json({"id": found.id, "removed": True})
    else:
        say(f"{found.name} is removed")


@app.command("log")
def show_notice_log_command(
    endpoint: EndpointArgument,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many notices.")] = LOG_MAX,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """List what was sent to an endpoint and what waits, newest first, and what came of each."""
    notices = make_client(server, token, project).endpoints.log(endpoint)
    found = [notice for notice, _ in zip(notices, range(limit), strict=False)]
    if output is Output.json:
        print_json(found)
        return
    rows = table("message", "job", "notice", "happened", "state", "tries", "next try", "because")
    for notice in found:
        rows.add_row(
            notice.id,
            notice.job,
            notice.notice or "–",
            format_time(notice.at_ms),
            notice.state,
            str(notice.tries),
            format_time(notice.due_ms),
            notice.because,
        )
    out.print(rows)


@app.command("replay")
def replay_notices_command(
    endpoint: EndpointArgument,
    message: Annotated[
        str | None, typer.Argument(help="Send this message again, by its id in the log.", show_default=False)
    ] = None,
    after: Annotated[int | None, typer.Option(min=0, help="Send all facts after this number.")] = None,
    since: Annotated[
        datetime | None, typer.Option(help="Send all facts since this time, in UTC.", show_default=False)
    ] = None,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Send again what an endpoint received, or should have received: one message, or all facts after a number or since a time."""
    client = make_client(server, token, project)
    if message is not None and (after is not None or since is not None):
        raise BadInput("one message and many contradict each other", hint="name a message, or --after or --since")
    if message is not None:
        found = client.endpoints.replay_message(endpoint, message)
    elif after is None and since is None:
        raise BadInput("nothing to send again is named", hint="name a message, --after or --since")
    else:
        since_ms = 0 if since is None else round(since.replace(tzinfo=UTC).timestamp() * 1000)
        found = client.endpoints.replay_facts(endpoint, after=after or 0, since_ms=since_ms)
    if output is Output.json:
        print_json(found)
    else:
        say(f"{found.replayed} notices are sent again to {endpoint}")
        if found.more:
            say("as many notices wait for it as may; there may be more to send again when some have been delivered:")
            say(f"  gangline notify replay {quote(endpoint)} --after {found.through}{_since(since)}")


@app.command("rotate")
def rotate_secret_command(
    endpoint: EndpointArgument,
    hours: Annotated[
        float, typer.Option(min=0, max=720, help="Sign with the old secret, too, for this many hours.")
    ] = 24.0,
    project: ProjectOption = None,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Make a new signing secret for a webhook. It is printed only once."""
    made = make_client(server, token, project).endpoints.rotate(endpoint, old_s=hours * HOUR_S)
    _show_new(made, output, f"messages to {made.endpoint.name} are signed with a new secret")


def _since(since: datetime | None) -> str:
    return "" if since is None else f" --since {quote(since.isoformat())}"


def _channel(given: str) -> NoticeChannel:
    if given not in CHANNELS:
        raise BadInput(f"there is no channel {given}", hint=f"choose one of {', '.join(CHANNELS)}")
    return cast(NoticeChannel, given)


def _kinds(on: list[str] | None) -> list[NoticeKind]:
    unknown = [kind for kind in on or () if kind not in NOTICES]
    if unknown:
        raise BadInput(f"there is no kind of notice {unknown[0]}", hint="`gangline notify kinds` lists them")
    return [kind for kind in NOTICES if kind in (on or ())]


def _state(endpoint: EndpointView) -> str:
    if endpoint.state == "active" and endpoint.failing_since_ms is not None:
        return f"failing since {format_time(endpoint.failing_since_ms)}"
    return endpoint.state


def _show(found: EndpointView, output: Output, words: str) -> None:
    if output is Output.json:
        print_json(found)
    else:
        say(words)


def _show_new(made: NewEndpoint, output: Output, words: str) -> None:
    if output is Output.json:
        print_json(made)
        return
    say(words)
    if made.secret:
        say("give its receiver this signing secret, which is shown only this once:")
        out.print(made.secret)
