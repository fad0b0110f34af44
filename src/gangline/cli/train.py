"""`gangline train`: from a folder of photos to a job."""

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline import compose
from gangline.cli.follow import follow, tell_end
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, out, print_json, say
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.spec import FilesBase, HubBase, Spec, parse_spec
from gangline.data.bases import files_of_base

if TYPE_CHECKING:
    from gangline.wire.client import Client

EXIT_JOB_FAILED = 1
HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+(@[\w./-]+)?$")


def train(
    photos: Annotated[Path, typer.Argument(help="A folder with photos of one subject.", show_default=False)],
    prompt: Annotated[
        str | None, typer.Option(help="What the photos show, with a rare word and the kind of thing: 'sks dog'.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="A model in diffusers' layout: a folder, or a hub id (NAME/MODEL[@REVISION]).")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="A TOML file with any of these settings.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.  [default: 500]")] = None,
    resolution: Annotated[int | None, typer.Option(help="Pixels of a side.  [default: 1024]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Photos a step.  [default: 1]")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of AdamW.  [default: 0.0001]")] = None,
    rank: Annotated[int | None, typer.Option(help="Of the LoRA.  [default: 16]")] = None,
    alpha: Annotated[float | None, typer.Option(help="Of the LoRA.  [default: 16]")] = None,
    seed: Annotated[int | None, typer.Option(help="All chance follows from it.  [default: 0]")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32 or bf16.  [default: auto]")] = None,
    hold_out: Annotated[
        list[str] | None, typer.Option(help="A photo that is not trained on: its loss is measured before and after.")
    ] = None,
    sample_prompt: Annotated[
        list[str] | None, typer.Option(help="A prompt to render at the end.  [default: the prompt]")
    ] = None,
    checkpoint_every_s: Annotated[
        float | None, typer.Option(help="Seconds between saves at the most.  [default: 60]")
    ] = None,
    checkpoint_every_steps: Annotated[int | None, typer.Option(help="Steps between saves, besides.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first among your jobs.  [default: 0]")] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The class of GPU that it needs, as `gangline nodes ls` shows.")
    ] = None,
    gpu_memory_gb: Annotated[float | None, typer.Option(help="The memory of a GPU that it needs.")] = None,
    pool: Annotated[str | None, typer.Option(help="The pool that it may run in.")] = None,
    exact: Annotated[
        str | None,
        typer.Option(help="Go on only where the bits stay the same: required, preferred, off.  [default: preferred]"),
    ] = None,
    name: Annotated[str, typer.Option(help="For people; else the prompt.")] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Train a subject-driven (DreamBooth) LoRA of an SDXL-architecture model.

    Ctrl-C stops watching, never the job. The exit code is 0 when the job succeeded, 1 when it failed.
    """
    given: dict[str, Any] = {
        "prompt": prompt,
        "steps": steps,
        "resolution": resolution,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "rank": rank,
        "alpha": alpha,
        "seed": seed,
        "precision": precision,
        "sample_prompts": sample_prompt,
        "checkpoint_every_s": checkpoint_every_s,
        "checkpoint_every_steps": checkpoint_every_steps,
        "priority": priority,
        "exact": exact,
    }
    needs = {"gpu": gpu, "gpu_memory_gb": gpu_memory_gb, "pool": pool}
    settings = with_options(read_recipe(recipe), given, needs)
    client = compose.make_client(server, token)
    spec = hand_in(client, photos, base or settings.pop("base", None), hold_out or (), settings)
    job = client.submit(spec, name=name).summary
    say(f"{job.id} is queued: {job.because}")
    if detach:
        print_json(job) if output is Output.json else out.print(job.id)
        return
    _watch(client, job.id, output)


def read_recipe(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"the recipe {path} cannot be read: {error}") from None


def with_options(recipe: dict[str, Any], given: dict[str, Any], needs: dict[str, Any]) -> dict[str, Any]:
    """What is given goes before the recipe; of what the job needs of a node, field by field."""
    settings = recipe | {field: value for field, value in given.items() if value is not None}
    needed = {field: value for field, value in needs.items() if value is not None}
    before = settings.get("needs", {})
    return settings | {"needs": before | needed} if needed and isinstance(before, dict) else settings


def hand_in(
    client: "Client", photos: Path, base: str | None, hold_out: list[str] | tuple[str, ...], settings: dict[str, Any]
) -> Spec:
    """Check everything that can be checked here, then hand the files in; the spec that names them."""
    from gangline.data.photos import find_photos

    if base is None:
        raise BadInput("no base model is given", hint="pass --base with a folder or a hub id")
    found = list(find_photos(photos).photos)
    held_out = [_held_out(photos, found, name) for name in hold_out]
    trained_on = [path for path in found if path not in held_out]
    if not trained_on:
        raise BadInput("every photo is held out", hint="leave at least one to train on")
    hub = _as_hub(base)
    base_files = [] if hub else files_of_base(Path(base))
    _check(settings)
    tell = Handing(len(base_files) + len(found))
    model = hub or FilesBase(files=client.hand_in(base_files, _root(Path(base)), tell))
    return parse_spec(
        settings
        | {
            "base": model,
            "photos": client.hand_in(trained_on, photos, tell),
            "held_out": client.hand_in(held_out, photos, tell),
        }
    )


class Handing:
    """Says now and then how far it is with many files."""

    def __init__(self, files: int) -> None:
        self.files = files
        self.seen = 0

    def __call__(self, file: File) -> None:
        self.seen += 1
        if file.bytes > 2**28 or self.seen == self.files:
            say(f"handing in {self.seen} of {self.files} files: {file.path} ({file.bytes / 1e6:.1f} MB)")


def _root(base: Path) -> Path:
    return base.parent if base.is_file() else base


def _as_hub(base: str) -> HubBase | None:
    if Path(base).exists() or not HUB_ID.match(base) or base.startswith((".", "/")):
        return None
    repo, _, revision = base.partition("@")
    return HubBase(repo=repo, revision=revision or "main")


def _held_out(folder: Path, photos: list[Path], name: str) -> Path:
    for path in photos:
        if path.name == name or path == Path(name):
            return path
    raise BadInput(f"there is no photo {name} in {folder} to hold out")


def _check(settings: dict[str, Any]) -> None:
    """The settings, with stand-ins for what is not handed in yet: a wrong number costs no upload."""
    stand_in = File(path="x", bytes=0, sha256="0" * 64)
    parse_spec(settings | {"base": FilesBase(files=(stand_in,)), "photos": (stand_in,)})


def _watch(client: "Client", job: str, output: Output) -> None:
    try:
        ended = follow(client, job)
    except KeyboardInterrupt:
        say(f"the job goes on; look again with `gangline jobs show {job}`")
        return
    if output is Output.json:
        print_json(ended)
    tell_end(ended.summary)
    if ended.summary.state != "succeeded":
        raise typer.Exit(EXIT_JOB_FAILED)
    say(f"get the results with   gangline artifacts {job} --to results")
