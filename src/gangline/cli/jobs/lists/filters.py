"""The options that select jobs by what a list of them can be filtered by."""

import re
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from gangline.core.display import is_text
from gangline.core.errors import BadInput
from gangline.core.jobs.lists.filters import parse_label_filters

AGE = re.compile(r"(\d{1,6})([smhdw])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class ListedState(StrEnum):
    queued = "queued"
    running = "running"
    paused = "paused"
    succeeded = "succeeded"
    failed = "failed"
    canceled = "canceled"


StateOption = Annotated[
    list[ListedState] | None,
    typer.Option("--state", help="Select jobs in this state. Repeat it for several states.", show_default=False),
]
LabelFilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE|KEY",
        help="Select jobs with this label, or with this key and any value. Repeat it: a job must have all of them.",
        show_default=False,
    ),
]
OwnerOption = Annotated[
    str,
    typer.Option(
        "--owner", help="Select jobs of this key: its id, its name, or `me` for your own.", show_default=False
    ),
]
JobKindOption = Annotated[
    str, typer.Option("--kind", help="Select jobs of this kind: lora, scratch, command, caption.", show_default=False)
]
SinceOption = Annotated[
    str,
    typer.Option(
        "--since",
        help="Select jobs submitted since then: an age (90s, 30m, 2h, 7d, 2w) or 2026-01-31T18:00:00Z.",
        show_default=False,
    ),
]
UntilOption = Annotated[
    str, typer.Option("--until", help="Select jobs submitted before then, written as for --since.", show_default=False)
]
SearchOption = Annotated[
    str,
    typer.Option(
        "--search",
        metavar="TEXT",
        help="Select jobs whose name, id, prompts, base or labels contain this text, in capitals or not.",
        show_default=False,
    ),
]


def as_filters(
    state: list[ListedState] | None,
    label: list[str] | None,
    owner: str,
    kind: str,
    since: str,
    until: str,
    search: str,
) -> dict[str, Any]:
    """Return the filters as the client takes them, with times of their own for ages. Raise `BadInput`."""
    parse_label_filters(label or [])
    for option, text in (
        ("--owner", owner),
        ("--kind", kind),
        ("--since", since),
        ("--until", until),
        ("--search", search),
    ):
        check_text(text, option)
    return {
        "state": [each.value for each in state or ()],
        "label": label or (),
        "owner": owner,
        "kind": kind,
        "since": moment(since, "--since"),
        "until": moment(until, "--until"),
        "search": search,
    }


def check_text(text: str, option: str) -> None:
    if not is_text(text):
        raise BadInput(f"{option}: {text!r} is not valid Unicode", hint="type it again")


def moment(given: str, option: str) -> str:
    """Return a time as the server reads it; an age is counted back from now. Raise `BadInput`."""
    age = AGE.fullmatch(given)
    if age:
        now = datetime.fromtimestamp(time.time(), UTC)
        try:
            then = now - timedelta(seconds=int(age[1]) * SECONDS[age[2]])
        except OverflowError:
            raise BadInput(f"{option} {given!r} is before the year 1", hint="write 2h, 7d or 100w") from None
        return then.isoformat(timespec="milliseconds")
    if given and not given[:4].isdecimal():
        raise BadInput(f"{option} {given!r} is neither an age nor a time", hint="write 2h, 7d or 2026-01-31T18:00:00Z")
    return given
