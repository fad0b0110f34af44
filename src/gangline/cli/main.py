"""`gangline`: the command line's entry. A command is imported when it runs, so that `--help` is quick."""

import sys
from typing import Annotated, Any

import typer

from gangline.cli.lazy import LazyCommand, LazyGroup
from gangline.cli.output import say, say_error
from gangline.core.errors import BadInput, GanglineError
from gangline.version import VERSION

EXIT_USER_ERROR = 2
EXIT_ABORTED = 1
COMMANDS = {
    "train": LazyCommand(
        "gangline.cli.jobs.train:train_command", "Train a subject-driven (DreamBooth) LoRA of a Stable Diffusion model."
    ),
    "scratch": LazyCommand(
        "gangline.cli.jobs.scratch:scratch_command",
        "Train a U-Net, with or without its text encoders, or a VAE on data sets.",
    ),
    "run": LazyCommand(
        "gangline.cli.tools.run:run_command",
        "Run any training command on the fleet, and resume it from its newest checkpoint wherever a node takes it next.",
    ),
    "open": LazyCommand(
        "gangline.cli.page.open:open_command",
        "Open the page of the server in a browser, signed in with the key of this command. The link works once, for five "
        "minutes.",
    ),
    "jobs": LazyCommand("gangline.cli.jobs.jobs:app", "List, show and control jobs."),
    "report": LazyCommand(
        "gangline.cli.reports.report:report_command",
        "Report what jobs took: interruptions, minutes, dollars, waste by cause, waits. It takes all jobs, or those that "
        "meet every filter.",
    ),
    "costs": LazyCommand(
        "gangline.cli.reports.costs:costs_command",
        "Show what a span of time cost by day, pool, job, cause, project, node, user or GPU. Every sum is of the ledger. An operator "
        "who names no project sees all of them.",
    ),
    "costs thresholds": LazyCommand(
        "gangline.cli.reports.thresholds:app",
        "Set, list and remove amounts of money: endpoints get a notice when costs come near them, or cross them.",
    ),
    "queue": LazyCommand(
        "gangline.cli.jobs.lists.queue:queue_command",
        "Show which jobs wait, in the order in which nodes would take them, why, and what would help. An operator who "
        "names no project sees all of them.",
    ),
    "experiments": LazyCommand(
        "gangline.cli.experiments.experiments:app",
        "Submit, compare and steer jobs over a grid of settings, and draw their pictures on one sheet.",
    ),
    "checkpoints": LazyCommand(
        "gangline.cli.jobs.kept.checkpoints:app", "List, pin and unpin the checkpoints of a job."
    ),
    "storage": LazyCommand(
        "gangline.cli.jobs.kept.storage:storage_command",
        "Show the project's stored files by kind, how long they are kept, what they cost, and the largest jobs.",
    ),
    "events": LazyCommand(
        "gangline.cli.jobs.events:events_command",
        "Show what happened to the jobs of the project, in one numbered stream, or follow it.",
    ),
    "logs": LazyCommand(
        "gangline.cli.jobs.logs:logs_command",
        "Print the output of a job's trainers, over all attempts. Ctrl-C never stops the job.",
    ),
    "metrics": LazyCommand(
        "gangline.cli.jobs.metrics:metrics_command",
        "Show a job's newest metrics, and its loss over time.",
    ),
    "artifacts": LazyCommand(
        "gangline.cli.jobs.kept.artifacts:artifacts_command",
        "List a job's results, or download them and check each against its SHA-256.",
    ),
    "samples": LazyCommand(
        "gangline.cli.jobs.samples:samples_command",
        "List a job's sample pictures, or download them. More may arrive while it trains, and for a while after.",
    ),
    "merge": LazyCommand(
        "gangline.cli.data.merge:merge_command",
        "Merge a LoRA into its base, and write one .safetensors file in the original layout.",
    ),
    "lora": LazyCommand(
        "gangline.cli.data.lora:app", "Describe, convert, merge and resize LoRAs, and extract one from two checkpoints."
    ),
    "bases": LazyCommand("gangline.cli.data.bases:app", "Add, list and remove named base models."),
    "datasets": LazyCommand(
        "gangline.cli.data.datasets:app", "Push, list, show, pull and remove data sets of photos, in versions."
    ),
    "nodes": LazyCommand(
        "gangline.cli.admin.nodes:app", "List and show the nodes; drain, quarantine and release them."
    ),
    "pools": LazyCommand(
        "gangline.cli.tools.explain:app", "Make, list and change the pools that nodes are rented for (for operators)."
    ),
    "data": LazyCommand(
        "gangline.cli.data.data:app", "Convert, encode, inspect and list data sets for training from scratch."
    ),
    "captions": LazyCommand(
        "gangline.cli.captions.captions:app",
        "Export, import and edit the captions of photos, or let a tagger or captioner write them.",
    ),
    "budget": LazyCommand(
        "gangline.cli.admin.budget:budget_command",
        "Show the project's share and budget. Operators change them with options, as with `gangline projects set`.",
    ),
    "keys": LazyCommand("gangline.cli.admin.keys:app", "Add, list and revoke the keys of a project."),
    "secrets": LazyCommand(
        "gangline.cli.admin.secrets:app", "Set, list and remove values that commands get in their environment."
    ),
    "notify": LazyCommand(
        "gangline.cli.notices.notify:app",
        "Send webhooks and messages when jobs succeed, fail or need attention: add, list and test endpoints.",
    ),
    "projects": LazyCommand(
        "gangline.cli.admin.projects:app", "Add, list and change projects, their shares and budgets (for operators)."
    ),
    "join-tokens": LazyCommand(
        "gangline.cli.admin.join_tokens:app",
        "Add, list and revoke the tokens with which workers join a pool (for operators).",
    ),
    "up": LazyCommand(
        "gangline.cli.admin.up:up_command",
        "Run the server and some nodes on this machine, each with its own machine id. Ctrl-C stops all of them; their "
        "jobs resume after the next start.",
    ),
    "server": LazyCommand(
        "gangline.cli.admin.server:server_command",
        "Run the server: the queue, the object store and the API. Workers connect to it from anywhere.",
    ),
    "backup": LazyCommand(
        "gangline.cli.backups.backup:app", "Back up a server's database and keys, restore them, and check them."
    ),
    "settings": LazyCommand(
        "gangline.cli.admin.settings:app", "Print or check the settings of a server and of its workers."
    ),
    "worker": LazyCommand(
        "gangline.cli.admin.worker:worker_command",
        "Work for a server: claim jobs, train and upload. On SIGTERM, Ctrl-C or a provider's --notice the worker saves "
        "checkpoints, gives its jobs back and exits.",
    ),
    "recipes": LazyCommand(
        "gangline.cli.bundled.recipes:app", "List and show the recipes that come with Gangline: settings to train with."
    ),
    "examples": LazyCommand(
        "gangline.cli.bundled.examples:app",
        "List and copy the examples that come with Gangline: photos, data and a script.",
    ),
    "docs": LazyCommand("gangline.cli.bundled.docs:docs_command", "Show a guide, or list all guides."),
    "doctor": LazyCommand(
        "gangline.cli.doctor.doctor:doctor_command",
        "Check this machine, the server that it would use, and a server that runs here, and say what to fix.",
    ),
    "demo": LazyCommand(
        "gangline.cli.tools.demo:demo_command",
        "Train a LoRA on two local nodes, kill the one that trains, and compare with an uninterrupted run.",
    ),
    "exec": LazyCommand(
        "gangline.cli.tools.exec:exec_command",
        "Run a training command, and resume it from its newest checkpoint on any machine where it is run again.",
        interspersed=False,
    ),
    "exec ls": LazyCommand(
        "gangline.cli.tools.exec_store:exec_list_command",
        "List the runs of `gangline exec` in a store, newest first, with host, time, outcome and stored files.",
    ),
    "exec get": LazyCommand(
        "gangline.cli.tools.exec_store:exec_get_command",
        "Download the results of `gangline exec`: the newest version of each file over all runs.",
    ),
    "exec rm": LazyCommand(
        "gangline.cli.tools.exec_store:exec_remove_command",
        "Remove the files of a run of `gangline exec`, the checkpoints of all runs, or everything.",
    ),
    "fetch": LazyCommand(
        "gangline.cli.tools.exec_store:exec_get_command",
        "Download the results of `gangline exec`: the newest version of each file over all runs.",
    ),
    "verify-resume": LazyCommand(
        "gangline.cli.tools.verify_resume:verify_resume_command",
        "Prove that interrupted runs end with the same bits as an uninterrupted one.",
    ),
    "estimate": LazyCommand(
        "gangline.cli.tools.estimate.command:estimate_command",
        "Estimate days and dollars for each number and kind of GPUs, from measurements or from a recipe alone.",
    ),
    "sim": LazyCommand("gangline.cli.tools.sim:app", "Simulate policies, fleets and faults in virtual time."),
}


class Gangline(LazyGroup):
    table = COMMANDS


app = typer.Typer(
    cls=Gangline,
    name="gangline",
    help="Train Stable Diffusion on GPUs that can vanish at any moment.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        ended = app(standalone_mode=False)
    except GanglineError as error:
        say_error(error)
        sys.exit(EXIT_USER_ERROR)
    except typer.Abort:
        sys.exit(EXIT_ABORTED)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        _say_misuse(error)
        sys.exit(EXIT_USER_ERROR)
    sys.exit(ended if isinstance(ended, int) else 0)


def _say_misuse(error: Any) -> None:
    """Say what is wrong with the words that were typed. typer would print them with what they do to a terminal; its classes for such
    errors have been click's or its own, by version."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return  # the help was printed
    hint = ""
    if error.ctx is not None:
        say(error.ctx.get_usage())
        hint = f"`{error.ctx.command_path} --help` lists its arguments and options"
    say_error(
        BadInput(
            error.format_message().rstrip(".").replace("Value error, ", "").replace("Input should", "it must"),
            hint=hint,
        )
    )


if __name__ == "__main__":
    main()
