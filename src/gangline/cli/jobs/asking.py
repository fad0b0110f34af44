"""`gangline jobs save`, `sample` and `finish`: what is asked of a job while it runs."""

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, print_json, say
from gangline.core.views import JobView


def save_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Have a running job save a checkpoint now, and continue. If its node is lost before, the next one does it."""
    client, job = client_and_job(server, token, job)
    _tell(client.jobs.save(job), "its node saves a checkpoint when it hears of this, with its next heartbeat", output)


def sample_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Have pictures rendered of what a job has now, by another node if one has time, else by its own. `gangline samples` shows them."""
    client, job = client_and_job(server, token, job)
    _tell(
        client.jobs.sample(job),
        "pictures of what it has now are rendered; `gangline samples` shows them when they are there",
        output,
    )


def finish_job_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """End a job now with what it has: its node takes no more steps and writes the result. One that waits gets a node for that."""
    client, job = client_and_job(server, token, job)
    _tell(
        client.jobs.finish(job),
        "it ends with the result of the steps that it has taken, once its node hears of this",
        output,
    )


def _tell(found: JobView, what: str, output: Output) -> None:
    if output is Output.json:
        print_json(found)
    else:
        say(f"{found.summary.id} is {found.summary.state}: {what}")
