"""Find the job that a command's argument means."""

from typing import TYPE_CHECKING, Annotated

import typer

from gangline.cli.client import make_client

if TYPE_CHECKING:
    from gangline.compose.client import Client

COMPLETED_MAX = 50


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Return what a shell offers: `last`, and names and short ids of the newest jobs, each with what stands in `jobs ls`. Whatever is
    wrong, a shell that completes is no place to say it."""
    from itertools import islice

    from gangline.core.errors import GanglineError
    from gangline.core.jobs.naming import LAST, short

    try:
        jobs = list(islice(make_client(None, None).jobs.list(), COMPLETED_MAX))
    except GanglineError:
        return []
    offered = [(LAST, "the job that was submitted last")] if jobs else []
    for job in jobs:
        about = f"{job.phase or job.state} {job.steps_done} {job.name}"
        offered += [(short(job.id), about), (job.id, about)]
    return [(word, about) for word, about in offered if word.startswith(incomplete)]


JobArgument = Annotated[
    str,
    typer.Argument(
        help="Name the job by its id, the beginning or end of its id, its name, or `last`.",
        show_default=False,
        autocompletion=complete_job,
    ),
]


def client_and_job(server: str | None, token: str | None, given: str) -> "tuple[Client, str]":
    """Return whom to ask, and the id of the job that is meant."""
    client = make_client(server, token)
    return client, client.jobs.find(given)
