"""`gangline sim`: the service, the agent and the SQL of this version in virtual time, between simulated machines and clouds that fail."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from gangline.cli.output import (
    Output,
    OutputOption,
    check_place,
    err,
    facts,
    out,
    print_json,
    say,
    say_error,
    table,
)
from gangline.cli.reports.rows import PER_JOB, counted_rows, first_try, per_job_text, percent, spent_rows, waited_rows
from gangline.cli.tools.sim_map import map_choices_command, silence
from gangline.compose.settings import needing, read_policy
from gangline.core.display import printable
from gangline.core.errors import BadInput, GanglineError

if TYPE_CHECKING:  # what `--help` need not wait for
    from gangline.sim.report import SimReport
    from gangline.sim.scenario import Scenario
    from gangline.sim.simulation import Simulation
    from gangline.sim.soak import Soak

EXIT_BROKEN_PROMISE = 1
PROGRESS_LINES = 10

app = typer.Typer(no_args_is_help=True)
app.command("map")(map_choices_command)


@app.command("run")
def run_scenario_command(
    scenario: Annotated[
        str, typer.Argument(help="Simulate this scenario: a name that `gangline sim ls` lists, or a TOML file.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="Derive all randomness from this seed.")] = 0,
    policy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use the policy of this server's gangline.toml instead of the scenario's."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Override a setting of the scenario's policy or fleet, e.g. policy.idle_s=120. Repeat it for several.",
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the timeline into this file.")] = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Afterwards serve the run read-only on this machine, at any moment of it, until Ctrl-C."
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="With --serve, listen on this port (default: a free one).", show_default=False
        ),
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Simulate a scenario and report the outcome.

    If the scenario has settings to compare with, it is simulated again with those. `gangline docs simulator` lists a scenario's fields.
    """
    from gangline.sim.report import make_report
    from gangline.sim.scenario import figures, load_scenario, override_scenario, with_policy

    found = load_scenario(scenario)
    if policy:
        found = with_policy(found, read_policy(policy))
    asked = override_scenario(found, _parted(settings or []))
    if svg:
        check_place(svg, "--svg")
    if port is not None and not serve:
        raise BadInput("--port is for --serve", hint="add --serve")
    server = _ReplayServer(port or 0) if serve else None
    ran = _simulate(asked, seed, server.record if server else None)
    report = make_report(ran, scenario)
    if svg:
        _draw(ran, svg)
    other = None
    if asked.compare:
        other = make_report(_simulate(replace(asked, policy=asked.policy | asked.compare), seed), scenario)
    published = figures(asked.published)
    if output is Output.json:
        print_json({**asdict(report), "compare": other, "published": published or None})
    else:
        out.print(_as_page(report, other, published, asked))
    if server:
        server.serve(ran)


@app.command("soak")
def soak_command(
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Play this many seeds.")],
    first: Annotated[int, typer.Option(min=0, metavar="N", help="Start with this seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, metavar="PROCESSES", help="Play this many seeds at the same time.")] = 1,
    output: OutputOption = Output.text,
) -> None:
    """Simulate chaos: every seed is another fleet with other jobs and other faults. No promise may break, and every job must end.

    The exit code is 1 if a promise broke, a job stayed unfinished, or a kind of fault never struck.
    """
    from gangline.sim.soak import Soak

    whole, step = Soak(), max(1, seeds // PROGRESS_LINES)
    for part in _played(range(first, first + seeds), jobs):
        whole.join(part)
        if err.is_terminal or whole.seeds % step == 0:
            _tell(whole, seeds)
    if output is Output.json:
        print_json({**asdict(whole), "struck": dict(sorted(whole.struck.items())), "never": whole.never()})
    else:
        out.print(_soak_page(whole))
    if whole.violations or whole.unfinished or whole.never():
        raise typer.Exit(EXIT_BROKEN_PROMISE)


@app.command("ls")
def list_scenarios_command(output: OutputOption = Output.text) -> None:
    """List the scenarios that come with Gangline."""
    from gangline.sim.scenario import load_scenario, names

    titles = {name: load_scenario(name).title for name in names()}
    if output is Output.json:
        print_json([{"name": name, "title": title} for name, title in titles.items()])
        return
    rows = table("scenario", "what happens")
    for name, title in titles.items():
        rows.add_row(name, title)
    out.print(rows)


# Running


def _parted(settings: list[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in settings]
    for name, equals, _ in parts:
        if not equals or not name:
            raise BadInput(
                f"--set {name} does not name a setting and its value",
                hint="write --set NAME=VALUE, e.g. --set policy.idle_s=120",
            )
    return {name.strip(): value.strip() for name, _, value in parts}


def _simulate(scenario: "Scenario", seed: int, begins: "Callable[[Simulation], None] | None" = None) -> "Simulation":
    """Run to its end; the ledger and the invoice are compared where it came to one. A broken promise ends the command."""
    from gangline.sim.promises.violation import Violation
    from gangline.sim.simulation import Simulation

    with silence():
        simulation = Simulation(scenario, seed)
        if begins:
            begins(simulation)
        try:
            simulation.run()
            if simulation.is_over():
                simulation.audit.at_the_end(simulation.cloud.invoice(), scenario.nodes_min)
                simulation.audit.against_the_store(simulation.policy)
        except Violation as violation:
            say_error(
                GanglineError(str(violation), hint="the same seed reproduces it with the same version of Gangline")
            )
            raise typer.Exit(EXIT_BROKEN_PROMISE) from None
    return simulation


class _ReplayServer:
    """What `--serve` does before, during and after a run. Raises `UserError` before it if libraries or the port are not to be had."""

    def __init__(self, port: int) -> None:
        with needing("server"):
            from gangline.api.serve import listen
        self._listening = listen("127.0.0.1", port)  # no other machine may read what needs no key

    def record(self, simulation: "Simulation") -> None:
        from gangline.sim.replay.recording import Recording

        self._recording = Recording(simulation.world, simulation.store)
        simulation.after_event = self._recording.look

    def serve(self, simulation: "Simulation") -> None:
        from gangline.sim.replay.app import Replay
        from gangline.sim.replay.serve import serve_replay

        self._recording.finish()
        url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        count = len(self._recording.snapshots)
        told = f"a replay of {count} moments is served at {url} (open it in a browser). Ctrl-C stops it."
        serve_replay(Replay(simulation, self._recording), self._listening, ready=lambda: say(told))


def _draw(simulation: "Simulation", svg: Path) -> None:
    from gangline.sim.report import make_timeline

    try:
        svg.write_text(make_timeline(simulation), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{svg} cannot be written: {(error.strerror or str(error)).lower()}") from None
    say(f"the timeline is in {svg}")


# Soaking


def _played(seeds: Iterable[int], processes: int) -> Iterator["Soak"]:
    """Return each seed's outcome, in the order of the seeds."""
    if processes == 1:
        yield from map(_play, seeds)
        return
    from multiprocessing import get_context

    with get_context("spawn").Pool(processes, _in_process) as pool:
        yield from pool.imap(_play, seeds)


def _in_process() -> None:
    """Ignore Ctrl-C, which the process that started this one handles."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _play(seed: int) -> "Soak":
    from gangline.sim.soak import soak as play

    with silence():
        return play([seed])


def _tell(whole: "Soak", seeds: int) -> None:
    ends = "\r" if err.is_terminal and whole.seeds < seeds else "\n"
    line = f"{whole.seeds} of {seeds} seeds, {whole.attempts} attempts, {whole.violations} violations"
    err.print(line, end=ends)


def _soak_page(soak: "Soak") -> Group:
    struck = table("fault", ">struck")
    for kind in sorted({*soak.struck, *soak.never()}):
        struck.add_row(kind, str(soak.struck[kind]) if soak.struck[kind] else "never")
    counts = ("seeds", "attempts", "events", "violations", "unfinished")
    return Group(
        facts(*((name, str(getattr(soak, name))) for name in counts)),
        Text(),
        struck,
        *(Text(printable(because)) for because in soak.because),
    )


# The report of a run


def _as_page(report: "SimReport", other: "SimReport | None", published: dict[str, float], asked: "Scenario") -> Group:
    reports = [report, *([other] if other else [])]
    rows = table("", *([">policy", ">compare"] if other else [">here"]), *([">published"] if published else []))
    for name, show in (*counted_rows(reports), *_simulated_rows()):
        rows.add_row(name, *map(show, reports))
    beside = _beside(published, "first_try_failed_share", percent)
    rows.add_row("failed at the first try", *map(first_try, reports), *beside)
    for name, figure, as_text in PER_JOB:
        ours = (per_job_text(each, figure, as_text) for each in reports)
        rows.add_row(name, *ours, *_beside(published, figure, as_text))
    for name, show in (*spent_rows(reports), *waited_rows(reports)):
        rows.add_row(name, *map(show, reports))
    title = Text(printable(f"{report.title} (seed {report.seed})"), style="bold")
    return Group(
        title, *([Text(printable(asked.says, keep="\n"))] if asked.says else []), Text(), rows, *_notes(reports, asked)
    )


def _beside(published: dict[str, float], figure: str, as_text: Callable[[float], str]) -> list[str]:
    if not published:
        return []
    return [as_text(published[figure]) if figure in published else "–"]


def _simulated_rows() -> Iterator[tuple[str, Callable[["SimReport"], str]]]:
    yield "checkpoints uploaded", lambda report: f"{report.checkpoints}, {report.checkpoints_gb:.0f} GB"
    yield "nodes rented", lambda report: str(report.nodes_rented)
    yield "machines quarantined", lambda report: str(report.trust.machines_quarantined)
    yield "bans, strikes", lambda report: f"{report.trust.bans}, {report.trust.strikes}"
    yield "moved: too slow, outpaced", lambda report: f"{report.trust.moved_too_slow}, {report.trust.moved_outpaced}"
    yield "moved: throttled, spilled", lambda report: f"{report.trust.moved_throttled}, {report.trust.moved_spilled}"
    yield "simulated", lambda report: f"{report.hours:.2f} h in {report.events} events"


def _notes(reports: list["SimReport"], asked: "Scenario") -> Iterator[Text]:
    if asked.compare:
        settings = ", ".join(f"{name} = {value}" for name, value in asked.compare.items())
        yield Text(f"\ncompare: the policy with {settings}")
    for because in dict.fromkeys(because for report in reports for because in report.because):
        yield Text(printable(f"failed: {because}"))
    yield Text(f"trace: {', '.join(report.trace for report in reports)}")
