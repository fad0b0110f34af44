"""`gangline exec ls | get | rm`: what runs of a command left in their store. `gangline fetch` is `gangline exec get`."""

import typer

from gangline.cli.lines import TableColumn, one_line_each
from gangline.cli.output import Output, OutputOption, duration, format_time, is_confirmed, out, print_json, say, usd
from gangline.cli.tools import exec_options as options
from gangline.compose.exec import make_fetch, make_listing, make_removal
from gangline.core.errors import BadInput, GanglineError
from gangline.exec.prefix.listing import CheckpointRow, RunRow

NAMED_MAX = 5
MB = 10**6


def exec_list_command(
    address: options.AddressArgument,
    checkpoints: options.ListCheckpointsOption = False,
    output: OutputOption = Output.text,
) -> None:
    """List the runs of `gangline exec` in a store, newest first, with host, time, outcome and stored files.

    The command never changes the store.
    """
    listing = make_listing(address, say)
    rows = listing.checkpoints if checkpoints else listing.rows
    if output is Output.json:
        print_json(rows)
    elif checkpoints:
        _show_checkpoints(listing.checkpoints)
    else:
        _show_runs(listing.rows)


def exec_get_command(
    address: options.AddressArgument,
    folder: options.FolderArgument,
    checkpoint: options.CheckpointOption = False,
    run: options.RunOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Download the results of `gangline exec`: the newest version of each file over all runs.

    Each file is checked against its SHA-256. The same command later downloads only what has changed. It never changes the store.
    """
    fetched = make_fetch(address, folder, say)(run=run, checkpoint=checkpoint)
    if output is Output.json:
        print_json(fetched)
    else:
        files = f"{fetched.files} {'file is' if fetched.files == 1 else 'files are'} in {folder}"
        also = (
            ""
            if fetched.checkpoint is None
            else f", and the checkpoint {fetched.checkpoint} in {folder / 'checkpoint'}"
        )
        say(f"{files}{also}: {fetched.bytes / 1e6:.1f} MB downloaded, {fetched.here} files were there already")
    if fetched.damaged:
        names = ", ".join(fetched.damaged[:NAMED_MAX])
        raise GanglineError(
            f"{address} has no intact version of {len(fetched.damaged)} files: {names}",
            hint=f"all other files are in {folder}",
        )


def exec_remove_command(
    address: options.AddressArgument,
    run: options.RemoveRunOption = None,
    checkpoints: options.RemoveCheckpointsOption = False,
    everything: options.RemoveAllOption = False,
    yes: options.RemoveYesOption = False,
    force: options.ForceOption = False,
    output: OutputOption = Output.text,
) -> None:
    """Remove the files of a run of `gangline exec`, the checkpoints of all runs, or everything.

    The command first lists what it will remove, and asks for confirmation. Removing cannot be undone.
    """
    if (run is not None) + checkpoints + everything != 1:
        raise BadInput("it is not clear what to remove", hint="pass one of --run N, --checkpoints and --all")
    removal = make_removal(address, say, run=run, checkpoints=checkpoints, force=force)
    if not yes and not is_confirmed("remove", f"this will be removed: {removal.sentence}"):
        say("nothing was removed")
        raise typer.Exit(1)
    removal()
    if output is Output.json:
        print_json(removal.removed)
    else:
        say(f"removed: {removal.sentence}")


def _show_runs(rows: list[RunRow]) -> None:
    columns = [
        TableColumn(header=">run"),
        TableColumn(header="host", shrinks_to=8, goes=3),
        TableColumn(header="began", goes=2),
        TableColumn(header=">took", goes=4),
        TableColumn(header="how it ended", shrinks_to=12),
        TableColumn(header=">step"),
        TableColumn(header=">checkpoints"),
        TableColumn(header=">results"),
        TableColumn(header=">MB"),
        TableColumn(header=">cost", goes=1),
    ]
    shown = [
        (
            str(row.run),
            row.host or "–",
            format_time(row.began_ms),
            duration(row.seconds),
            _ended(row),
            "–" if row.step is None else str(row.step),
            str(row.checkpoints),
            str(row.results),
            f"{row.bytes / MB:.1f}",
            "–" if row.cost_usd is None else usd(row.cost_usd),
        )
        for row in rows
    ]
    out.print(one_line_each(columns, shown, out.width))


def _ended(row: RunRow) -> str:
    if row.state != "ended":
        return {"alive": "running", "vanished": "vanished"}.get(row.state, row.state)
    return row.because or "ended"


def _show_checkpoints(rows: list[CheckpointRow]) -> None:
    columns = [
        TableColumn(header=">run"),
        TableColumn(header=">step"),
        TableColumn(header="name", shrinks_to=12),
        TableColumn(header="written", goes=2),
        TableColumn(header=">MB"),
        TableColumn(header="about", shrinks_to=8),
        TableColumn(header="key", goes=1),
    ]
    shown = [
        (
            str(row.run),
            "–" if row.step is None else str(row.step),
            row.name or "–",
            format_time(row.written_ms),
            f"{row.bytes / MB:.1f}",
            "its record is damaged" if row.damaged else "the next run resumes from it" if row.next else "",
            row.key,
        )
        for row in rows
    ]
    out.print(one_line_each(columns, shown, out.width))
