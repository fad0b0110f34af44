"""`gangline metrics`: what a job's trainers measured, as one run."""

from itertools import pairwise

from rich.table import Table

from gangline.cli.jobs.which import JobArgument, client_and_job
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, out, print_json, say, table
from gangline.core.runs.metrics import MEANING, Measured
from gangline.core.views import MetricsView

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60


def metrics_command(
    job: JobArgument, server: ServerOption = None, token: TokenOption = None, output: OutputOption = Output.text
) -> None:
    """Show a job's newest metrics, and its loss over time."""
    client, job = client_and_job(server, token, job)
    found = client.metrics.get(job)
    if output is Output.json:
        print_json(found)
        return
    if not found.points:
        say(f"{job} has no metrics yet")
        return
    out.print(as_table(found.points))
    losses = [point.values["smoothed_loss"] for point in found.points if "smoothed_loss" in point.values]
    if losses:
        first, last = found.points[0].step, found.points[-1].step
        out.print()
        out.print(f"smoothed loss, steps {first} to {last}: {min(losses):.4f} to {max(losses):.4f}")
        out.print(sparkline(losses))
    say_trackers(found)


def as_table(points: tuple[Measured, ...]) -> Table:
    rows = table("metric", ">newest", ">at step", "why")
    rows.columns[-1].header = ""
    newest = {name: (point.step, value) for point in points for name, value in point.values.items()}
    for name in sorted(newest, key=lambda name: ([*MEANING, name].index(name), name)):
        step, value = newest[name]
        rows.add_row(name, f"{value:.6g}", str(step), MEANING.get(name, ""))
    return rows


def sparkline(values: list[float]) -> str:
    """At most `WIDTH` bars, each the mean of its share."""
    count = min(WIDTH, len(values))
    bounds = [len(values) * place // count for place in range(count + 1)]
    means = [sum(values[start:end]) / (end - start) for start, end in pairwise(bounds)]
    low, high = min(means), max(means)
    return "".join(BARS[round((mean - low) / ((high - low) or 1) * (len(BARS) - 1))] for mean in means)


def say_trackers(found: MetricsView) -> None:
    for each in found.trackers:
        extent = "all metrics" if each.ended else f"the metrics up to step {each.step}"
        say(f"{each.tracker} has {extent}" + (f"; now it cannot be reached: {each.because}" if each.because else ""))
