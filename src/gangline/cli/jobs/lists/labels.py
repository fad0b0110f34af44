"""`gangline jobs label`, and the option `--label` of commands that submit."""

from collections.abc import Mapping
from typing import Annotated

import typer

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, print_json, say
from gangline.core.display import printable
from gangline.core.jobs.lists.labels import parse_changes

LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        help="Label the job, so that `gangline jobs ls --label` finds it. Repeat it for several.",
        show_default=False,
    ),
]


def labels_in_words(labels: Mapping[str, str]) -> str:
    return ", ".join(printable(f"{key}={value}") for key, value in labels.items())


def label_job_command(
    job: JobArgument,
    changes: Annotated[
        list[str],
        typer.Argument(
            help="Set KEY=VALUE; remove a label with KEY- (a trailing hyphen).", metavar="KEY=VALUE|KEY-..."
        ),
    ],
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Set or remove labels of a job, also of one that has ended. Its settings stay as they are."""
    wanted = parse_changes(changes)
    client, job = client_and_job(server, token, job)
    found = client.jobs.label(job, wanted)
    if output is Output.json:
        print_json(found)
        return
    labels = found.summary.labels
    say(f"{job} is labelled {labels_in_words(labels)}" if labels else f"{job} has no labels")
