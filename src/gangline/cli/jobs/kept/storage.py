"""`gangline storage`: what the project keeps in the object store, until when, and what that costs."""

from gangline.cli.client import make_client
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
    format_time,
    out,
    print_json,
    say,
    table,
    usd,
)
from gangline.core.runs.kept import KeptKind, StorageView
from gangline.core.words import size_words

CALLED: dict[KeptKind, str] = {
    "uploads": "uploaded files (photos, data sets, bases)",
    "prepared": "latents, embeddings, class images",
    "checkpoints": "checkpoints",
    "results": "results (weights and their pictures)",
    "previews": "previews (pictures of steps)",
    "logs": "logs",
}


def storage_command(server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text) -> None:
    """Show the project's stored files by kind, how long they are kept, what they cost, and the largest jobs."""
    found = make_client(server, token).storage.get()
    if output is Output.json:
        print_json(found)
        return
    _show_kinds(found)
    _show_largest(found)
    say("to delete a job with all files that it alone uses, run `gangline jobs rm JOB`")


def _show_kinds(found: StorageView) -> None:
    rows = table("what", ">files", ">jobs", ">size", ">per month", ">expires", "first", "why")
    for each in found.kinds:
        rows.add_row(
            CALLED[each.kind],
            str(each.files),
            str(each.jobs),
            size_words(each.bytes),
            _cost(each.usd_per_month),
            size_words(each.going_bytes),
            format_time(each.next_ms),
            each.rule,
        )
    rows.add_row("all", "", "", size_words(found.bytes), _cost(found.usd_per_month), "", "", "")
    out.print(rows)


def _show_largest(found: StorageView) -> None:
    if not found.largest:
        return
    rows = table("job", "name", "state", ">size")
    for each in found.largest:
        rows.add_row(each.job, each.name, each.state, size_words(each.bytes))
    out.print()
    out.print(rows)


def _cost(usd_per_month: float | None) -> str:
    return "cost unknown" if usd_per_month is None else usd(usd_per_month)
