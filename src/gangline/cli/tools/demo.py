"""`gangline demo`: a job whose node is killed, and the same job left in peace: equal to the bit."""

import json
import secrets
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.text import Text

from gangline.cli.admin.box import Box
from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.jobs.follow import follow_job, wait_for_pictures
from gangline.cli.jobs.jobs import attempts_table
from gangline.cli.jobs.train import read_recipe, upload_inputs
from gangline.cli.output import Output, OutputOption, err, facts, out, print_json, say, usd
from gangline.compose.settings import existing
from gangline.core.errors import BadInput, GanglineError
from gangline.core.specs.spec import Spec
from gangline.core.views import JobSummary, JobView
from gangline.data.bases import files_of_base

PHOTOS, HELD_OUT = "examples/subject", "crying-cat.png"
CHECKPOINT_EVERY_STEPS = 50
LEASE_S = 5.0
HEARTBEAT_INTERVAL_S = 0.5
LATE = 2 / 3
PRICE_USD_PER_HOUR = 0.324  # what the published benchmark paid for a node with an RTX 4090
EXIT_NOT_EQUAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """What the demo shows. `seconds_lost`: from the last sign of life until the job stood where it had stood."""

    equal: bool
    interruptions: int
    steps_redone: int
    seconds_lost: float
    cost_usd: float
    seed: int
    digest_interrupted: str
    digest_uninterrupted: str
    held_out: list[dict[str, Any]]
    picture: str
    seconds: float


def demo_command(
    to: Annotated[Path, typer.Option("--to", help="Write the pictures and weights to this folder.")] = Path(
        "gangline-demo"
    ),
    photos: Annotated[str, typer.Option(help="Train on the photos in this folder.")] = PHOTOS,
    base: Annotated[str, typer.Option(help="Start from this base model.")] = "assets/tiny-sdxl",
    recipe: Annotated[
        str,
        typer.Option(
            help="Read the job's settings from this TOML file, or from a recipe that `gangline recipes ls` lists."
        ),
    ] = "tiny_subject",
    seed: Annotated[
        int | None,
        typer.Option(help="Choose the moment at which the node is killed with this seed (default: a random seed)."),
    ] = None,
    output: OutputOption = Output.text,
) -> None:
    """Train a LoRA on two local nodes, kill the one that trains, and compare with an uninterrupted run.

    The demo needs only this machine. The exit code is 1 if the two results differ.
    """
    seed = secrets.randbelow(10_000) if seed is None else seed
    base, folder_of_photos = here_or_bundled(base), Path(here_or_bundled(photos))
    files_of_base(Path(base))
    existing(to)
    began_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="gangline-demo-") as folder,
        Box(
            Path(folder),
            lease_s=LEASE_S,
            heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
            price_usd_per_hour=PRICE_USD_PER_HOUR,
        ) as box,
    ):
        settings = read_recipe(recipe) | {"checkpoint_every_steps": CHECKPOINT_EVERY_STEPS}
        spec = upload_inputs(box.client, folder_of_photos, base, [HELD_OUT] if photos == PHOTOS else [], settings)
        for name in ("node-a", "node-b"):
            box.start_node(name)
        say(f"a server runs at {box.url} with two nodes; the node that trains will be killed (seed {seed})")
        interrupted = _train(box, spec, "interrupted", _Killer(box, Random(seed)))  # noqa: S311 - a moment, not a secret
        say("training the same job again, without an interruption")
        uninterrupted = _train(box, replace(spec, sample_result=False), "uninterrupted", None)
        shown = wait_for_pictures(box.client, interrupted.summary.id).samples
        if shown.failed:
            raise GanglineError(f"the pictures were not rendered: {shown.because}")
        for job in (interrupted, uninterrupted):
            _fetch(box, job, to / job.summary.name)
    outcome = _compare(interrupted, uninterrupted, to, seed=seed, seconds=time.monotonic() - began_s)
    if output is Output.json:
        print_json(asdict(outcome) | {"attempts": [asdict(attempt) for attempt in interrupted.attempts]})
    else:
        _print(outcome, interrupted)
    if not outcome.equal:
        raise typer.Exit(EXIT_NOT_EQUAL)


class _Killer:
    """SIGKILLs the node at work once, some steps after a checkpoint is safe, so that there is something to do again."""

    def __init__(self, box: Box, rng: Random) -> None:
        self.box = box
        self.steps_after_commit = rng.randint(5, 35)
        self.done = False

    def __call__(self, job: JobView) -> None:
        now = job.summary
        if self.done or now.node_name is None or not is_time_to_kill(now, self.steps_after_commit):
            return
        self.box.nodes[now.node_name].kill()
        self.done = True
        err.print(
            Text("killed", style="bold red"),
            f"{now.node_name} at step {now.step}; its last checkpoint is of step {now.committed_step}",
        )


def is_time_to_kill(job: JobSummary, steps_after_commit: int) -> bool:
    """Return whether the job trains and has taken this many steps since its last checkpoint.

    Where checkpoints are committed too quickly for that, any step after one will do once `LATE` of the job is over: else the job would
    end before its node was killed.
    """
    wanted = steps_after_commit if job.step < LATE * job.steps else 1
    return job.phase == "training" and job.committed_step > 0 and job.step >= job.committed_step + wanted


def _train(box: Box, spec: Spec, name: str, killer: _Killer | None) -> JobView:
    job = box.client.jobs.submit(spec, name=name).summary.id
    ended = follow_job(box.client, job, seen=killer or (lambda _: None))
    if ended.summary.state != "succeeded":
        raise GanglineError(
            f"the job {ended.summary.state}: {ended.summary.because}", hint=box.client.logs.get(job).text
        )
    if killer and not killer.done:
        raise BadInput("the job ended before its node could be killed", hint="raise steps in the recipe")
    return ended


def _fetch(box: Box, job: JobView, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    box.client.artifacts.download(job.id, folder)


def _compare(interrupted: JobView, uninterrupted: JobView, to: Path, *, seed: int, seconds: float) -> DemoResult:
    from gangline.train.run.digest import tensors_digest

    weights = "pytorch_lora_weights.safetensors"
    digests = [tensors_digest(to / job.summary.name / weights) for job in (interrupted, uninterrupted)]
    picture = to / "base-and-lora.png"
    shutil.copyfile(to / interrupted.summary.name / "samples" / "grid.png", picture)
    report = json.loads((to / interrupted.summary.name / "report.json").read_text())
    return DemoResult(
        equal=digests[0] == digests[1],
        interruptions=interrupted.summary.interruptions,
        steps_redone=interrupted.steps_redone,
        seconds_lost=interrupted.seconds_lost,
        cost_usd=interrupted.summary.cost_usd,
        seed=seed,
        digest_interrupted=digests[0],
        digest_uninterrupted=digests[1],
        held_out=report["held_out"],
        picture=str(picture.resolve()),
        seconds=round(seconds, 1),
    )


def _print(outcome: DemoResult, interrupted: JobView) -> None:
    out.print(attempts_table(interrupted))
    learned = [
        (
            f"loss of {photo['photo']}",
            f"{photo['loss_before']:.4f} → {photo['loss_after']:.4f} ({photo['loss_after'] / photo['loss_before'] - 1:+.0%}),"
            " never trained on",
        )
        for photo in outcome.held_out
    ]
    out.print()
    out.print(
        facts(
            ("interruptions", str(outcome.interruptions)),
            ("steps redone", str(outcome.steps_redone)),
            ("seconds lost", f"{outcome.seconds_lost:.1f}"),
            ("cost", f"{usd(outcome.cost_usd)} at ${PRICE_USD_PER_HOUR} an hour"),
            *learned,
            ("interrupted", outcome.digest_interrupted),
            ("uninterrupted", outcome.digest_uninterrupted),
            ("equal", Text("yes, to the bit", style="bold green") if outcome.equal else Text("NO", style="bold red")),
            ("picture", outcome.picture),
            ("time", f"{outcome.seconds:.0f} s"),
        )
    )
