"""`gangline verify-resume`: a run that is interrupted ends with the same bits as one that is not, or which tensors differ."""

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.jobs.train import read_recipe, upload_inputs
from gangline.cli.output import Output, OutputOption, out, print_json, say, table
from gangline.cli.tools.rehearse import Rehearsal, run_in_peace, run_interrupted
from gangline.core.errors import BadInput
from gangline.core.files import File
from gangline.core.runs import contract
from gangline.core.runs.interruption import Interruption, ResumeCheck, interruptions, resume_sentence
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS

EXIT_NOT_EQUAL = 1


def verify_resume_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="Run this trainer of your own, written after `--`. {} in it is replaced by a run's directory; without {} the "
            "directory is its last argument.",
            show_default=False,
        ),
    ] = None,
    photos: Annotated[
        str | None, typer.Option(help="Train on the photos in this folder, as in `gangline train`.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Start from the base in this folder, as in `gangline train`.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Read a run's settings from this TOML file, or from a recipe that `gangline recipes ls` lists."
        ),
    ] = None,
    spec: Annotated[Path | None, typer.Option(help="Use this spec.json of a run instead of photos and recipe.")] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="Use this folder as the inputs of --spec (default: the folder inputs beside it)."),
    ] = None,
    times: Annotated[
        int,
        typer.Option(min=1, max=100, help="Interrupt the run this many times by each signal, spread over its steps."),
    ] = 2,
    output: OutputOption = Output.text,
) -> None:
    """Prove that interrupted runs end with the same bits as an uninterrupted one.

    The run is done once without an interruption, and then once for each interruption, by SIGTERM or by SIGKILL some steps after
    a checkpoint. Each interrupted run resumes in a new directory from its newest complete checkpoint alone. The results are
    compared by the names, types, shapes and bytes of their tensors. The exit code is 0 if all are equal, 1 if not.
    """
    with tempfile.TemporaryDirectory(prefix="gangline-verify-") as made:
        folder = Path(made)
        if photos is not None:
            lay_out, kind = _from_photos(photos, base, recipe)
        else:
            lay_out, kind = _from_spec(spec, inputs)
        rehearsal = Rehearsal(start=_starter(command or [], kind), lay_out=lay_out, folder=folder)
        say("running without an interruption")
        peaceful = run_in_peace(rehearsal)
        outcomes = [_rehearse(rehearsal, peaceful.directory, one) for one in interruptions(peaceful.steps, times)]
    _show(outcomes, peaceful.steps, output)
    if not all(outcome.equal for outcome in outcomes):
        raise typer.Exit(EXIT_NOT_EQUAL)


def _rehearse(rehearsal: Rehearsal, expected: Path, interruption: Interruption) -> ResumeCheck:
    from gangline.train.run.compare import compare_folders

    outcome, directory = run_interrupted(rehearsal, interruption)
    if directory is not None:
        comparison = compare_folders(expected / contract.OUTPUT, directory / contract.OUTPUT)
        outcome = replace(outcome, comparison=comparison)
    say(f"{interruption.way} after step {interruption.after}: {resume_sentence(outcome)}")
    return outcome


def _show(outcomes: list[ResumeCheck], steps: int, output: Output) -> None:
    if output is Output.json:
        equal = all(outcome.equal for outcome in outcomes)
        print_json({"equal": equal, "steps": steps, "outcomes": [_as_json(outcome) for outcome in outcomes]})
        return
    rows = table("interruption", ">at step", ">resumed from", "why")
    for outcome in outcomes:
        rows.add_row(
            outcome.interruption.way, str(outcome.interrupted_at), str(outcome.resumed_from), resume_sentence(outcome)
        )
    rows.columns[-1].header = "result"
    out.print(rows)


def _as_json(outcome: ResumeCheck) -> dict[str, Any]:
    return asdict(outcome) | {"equal": outcome.equal, "says": resume_sentence(outcome)}


def _starter(command: list[str], kind: str | None) -> Callable[[Path], Any]:
    from gangline.adapters.host.trainer.process import ProcessTrainer
    from gangline.adapters.host.trainer.start import start_program
    from gangline.compose.machine import own_secrets
    from gangline.ports.trainer import RunAccess

    if command:
        named = command if any("{}" in part for part in command) else [*command, "{}"]
        return lambda directory: start_program(
            [part.replace("{}", str(directory)) for part in named], directory, below=Path.cwd()
        )
    if kind is None or kind not in KINDS:
        raise BadInput(
            f"there is no trainer for a spec of kind {kind!r}" if kind else "there is nothing to run",
            hint=f"pass --spec with a spec of kind {' or '.join(sorted(KINDS))}, or --photos and --base, or a command after --",
        )
    trainer = ProcessTrainer()

    def start(directory: Path) -> Any:
        names = json.loads((directory / contract.SPEC).read_text()).get("secrets", ())
        return trainer.start(kind, directory, access=RunAccess(secrets=own_secrets(names)))

    return start


def _from_spec(spec: Path | None, inputs: Path | None) -> tuple[Callable[[Path], None], str | None]:
    if spec is None:
        return partial(_lay_out, text="{}", inputs=inputs), None
    try:
        text = spec.read_text()
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise BadInput(f"the spec {spec} cannot be read: {error}") from None
    beside = inputs or spec.parent / contract.INPUTS
    if inputs is not None and not inputs.is_dir():
        raise BadInput(f"the folder {inputs} does not exist", hint="pass the folder that has photos/ and base/ in it")
    kind = value.get("kind", DEFAULT_KIND) if isinstance(value, dict) else None
    return partial(_lay_out, text=text, inputs=beside), kind


def _lay_out(directory: Path, *, text: str, inputs: Path | None) -> None:
    (directory / contract.SPEC).write_text(text)
    if inputs is not None and inputs.is_dir():
        (directory / contract.INPUTS).symlink_to(inputs.resolve(), target_is_directory=True)
    else:
        (directory / contract.INPUTS).mkdir()


class _NoServer:
    """Stands for the client of the server that files are uploaded to."""

    def __init__(self) -> None:
        self.files = _Files()


class _Files:
    """Takes what is uploaded, and remembers where it is."""

    def __init__(self) -> None:
        self.at: dict[str, Path] = {}

    def upload(self, paths: Iterable[Path], below: Path, **_: object) -> tuple[File, ...]:
        from gangline.adapters.host.trainer.run import described_file

        files = dict[File, Path]()
        for path in paths:
            name = path.relative_to(below if below.is_dir() else below.parent).as_posix()
            place = path.resolve()
            files[replace(described_file(place.parent, place.name), path=name)] = place
        self.at |= {file.sha256: path for file, path in files.items()}
        return tuple(files)


def _from_photos(photos: str, base: str | None, recipe: str | None) -> tuple[Callable[[Path], None], str]:
    from gangline.core.parsing import to_json
    from gangline.core.specs.fields import HubBase

    client = _NoServer()
    files, made = client.files, upload_inputs(client, Path(here_or_bundled(photos)), base, [], read_recipe(recipe))  # type: ignore[arg-type]
    if isinstance(made.base, HubBase):
        raise BadInput("this needs a base on this machine, not on the hub", hint="pass its folder with --base")
    text = json.dumps(to_json(made))

    def lay_out(directory: Path) -> None:
        (directory / contract.SPEC).write_text(text)
        for path, file in made.input_files().items():
            place = directory / contract.INPUTS / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(files.at[file.sha256])

    return lay_out, made.kind
