"""Find the experiment that a command's argument means."""

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.client import make_client
from gangline.core.errors import BadInput, NotFound
from gangline.core.jobs.naming import LAST, SHORT_MIN

if TYPE_CHECKING:
    from gangline.compose.client import Client

LOOKED_AT_MAX = 500
"""Names and parts of ids are looked up among this many of the newest experiments; a whole id is found among all."""


def _complete(incomplete: str) -> list[tuple[str, str]]:
    """Return what a shell offers: `last`, and the names and ids of the newest experiments."""
    from gangline.core.errors import GanglineError

    try:
        found = list(islice(make_client(None, None).experiments.list(), 50))
    except GanglineError:
        return []
    offered = [(LAST, "the experiment that was submitted last")] if found else []
    offered += [(each.id, f"{each.state} {each.name}") for each in found]
    return [(word, about) for word, about in offered if word.startswith(incomplete)]


ExperimentArgument = Annotated[
    str,
    typer.Argument(
        metavar="EXPERIMENT",
        help="Name the experiment by its id, the beginning or end of its id, its name, or `last`.",
        show_default=False,
        autocompletion=_complete,
    ),
]


def client_and_experiment(server: str | None, token: str | None, given: str) -> "tuple[Client, str]":
    """Return whom to ask, and the id of the experiment that is meant."""
    client = make_client(server, token)
    return client, find_experiment(client, given)


def find_experiment(client: "Client", given: str) -> str:
    """Return the id of an experiment. Raise `NotFound` if none is meant, `BadInput` if several are."""
    if given.startswith("experiment-") and (whole := _whole(client, given)):
        return whole
    known = [(each.id, each.name) for each in islice(client.experiments.list(), 1 if given == LAST else LOOKED_AT_MAX)]
    exact = [known[0][0]] if given == LAST and known else []
    named = [each for each, name in known if name == given]
    long_enough = len(given.removeprefix("experiment-")) >= SHORT_MIN
    parts = [each for each, _ in known if long_enough and _is_part(given, each)]
    meant = exact or named or parts
    if len(meant) > 1:
        raise BadInput(
            f"{given} matches several experiments, the newest first: {', '.join(meant[:10])}", hint="give an id"
        )
    if meant:
        return meant[0]
    if given == LAST:
        raise NotFound("no experiment was submitted yet", hint="`gangline train --vary` submits one")
    raise NotFound(f"there is no experiment {given}", hint="`gangline experiments ls` lists them")


def _whole(client: "Client", given: str) -> str | None:
    """Return the id if this is a whole one: asking for one experiment costs the server less than a list."""
    if not (given.isascii() and given.replace("-", "").isalnum()):
        return None
    try:
        return client.experiments.get(given).id
    except NotFound:
        return None


def _is_part(given: str, experiment: str) -> bool:
    return experiment.startswith((given, f"experiment-{given}")) or experiment.endswith(given)
