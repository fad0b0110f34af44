"""`gangline train`: from a folder of photos to a job."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.bundled.place import find_recipe, here_or_bundled
from gangline.cli.bundled.recipes import complete_preset, read_presets
from gangline.cli.bundled.variables import VariableOption
from gangline.cli.client import make_client
from gangline.cli.jobs.lists.labels import LabelOption
from gangline.cli.jobs.places.addresses import addresses_of, dataset_of, unpacked
from gangline.cli.jobs.settings import with_settings
from gangline.cli.jobs.subjects import SUBJECTS, given_subjects
from gangline.cli.jobs.submitting.send import UploadProgress, planned_and_sent, submit_and_watch, submit_experiment_of
from gangline.cli.jobs.submitting.vary import (
    AtOnceOption,
    BudgetOption,
    ExperimentNameOption,
    ExperimentOptions,
    HalvingFromOption,
    HalvingOption,
    SeedsOption,
    VaryOption,
)
from gangline.cli.output import (
    Output,
    OutputOption,
    ServerOption,
    TokenOption,
)
from gangline.core.errors import BadInput
from gangline.core.jobs.lists.labels import parse_labels
from gangline.core.models.bases import UNKNOWN, is_base_name
from gangline.core.specs.fields import Base, parse_base
from gangline.core.specs.kinds import DEFAULT_KIND, SUBMITTED
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.settings import settings_of
from gangline.core.specs.templates import TYPED, comments_of, filled, parse_variables
from gangline.core.views import BaseView

if TYPE_CHECKING:
    from gangline.cli.jobs.places.fetched import FetchedPlan
    from gangline.cli.jobs.plan.make import LoraPlan
    from gangline.compose.client import Client

    Planned = LoraPlan | FetchedPlan

COMMANDS = ", ".join(f"`{kind.command}` is for {kind.title}" for kind in SUBMITTED)
EXIT_JOB_FAILED = 1
LARGE_BYTES = 2**28
PATHS = ("base", "vae", "init_lora", "class_photos", "masks", "hold_out")
KNOWN = settings_of(LoraSpec)


@with_settings
def train_command(
    photos: Annotated[
        str,
        typer.Argument(
            help="Train on the photos of one subject in this folder or .zip, with captions beside them (.txt, metadata.jsonl). "
            "Or on a data set, NAME or NAME@VERSION (`gangline datasets ls` lists them). Or let "
            "the server fetch them from s3://BUCKET/FOLDER/, from the URL of a zip, from comma-separated URLs of "
            "photos, or from @FILE, which has a URL and then its caption on each line. Folders of several subjects (--subject, "
            "or the tables `subjects` of a recipe) are below this one (default: below the recipe's, or the current one).",
            show_default=False,
        ),
    ] = "",
    base: Annotated[
        str | None,
        typer.Option(
            help="Start from this SDXL, SD 1.5 or SD 2 model: a folder in diffusers' layout, one .safetensors file, a hub id "
            "NAME/MODEL@REVISION, or a name that `gangline bases ls` lists."
        ),
    ] = None,
    vae: Annotated[str | None, typer.Option(help=KNOWN["vae"].says)] = None,
    init_lora: Annotated[str | None, typer.Option(help=KNOWN["init_lora"].says)] = None,
    class_photos: Annotated[str | None, typer.Option(help=KNOWN["class_photos"].says)] = None,
    masks: Annotated[str | None, typer.Option(help=KNOWN["masks"].says)] = None,
    hold_out: Annotated[list[str] | None, typer.Option(help=KNOWN["held_out"].says)] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Read settings from this TOML file, or from a recipe that `gangline recipes ls` lists. Options override them."
        ),
    ] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            help="Use settings for what the photos show, or for a small GPU: face, style, object, 8gb. Repeat it for several. "
            "Recipe and options override them; `gangline recipes show NAME` explains them.",
            autocompletion=complete_preset,
        ),
    ] = None,
    var: VariableOption = None,
    name: Annotated[str, typer.Option(help="Name the job (default: the prompt).")] = "",
    label: LabelOption = None,
    vary: VaryOption = None,
    seeds: SeedsOption = None,
    at_once: AtOnceOption = None,
    budget: BudgetOption = None,
    experiment: ExperimentNameOption = "",
    halving: HalvingOption = None,
    halving_from: HalvingFromOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Check everything and show the plan, but submit nothing.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job and do not wait for its end.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
    *,
    settings: dict[str, Any],
    needs: dict[str, Any],
) -> None:
    """Train a subject-driven (DreamBooth) LoRA of a Stable Diffusion model.

    `gangline docs training` explains every step from photos to a LoRA. Ctrl-C stops watching the job, never the job itself. The
    exit code is 0 if the job succeeded, 1 if it failed, 130 after Ctrl-C. With --vary or --seeds the command submits several jobs as one
    experiment (`gangline docs experiments`).
    """
    several = ExperimentOptions(
        vary=vary,
        seeds=seeds,
        at_once=at_once,
        budget=budget,
        name=experiment,
        halving=halving,
        halving_from=halving_from,
    )
    given = {
        "base": base,
        "vae": vae,
        "init_lora": init_lora,
        "class_photos": class_photos,
        "masks": masks,
        "hold_out": hold_out or None,
    }
    client, labels = make_client(server, token), parse_labels(label or [])
    presets = read_presets(preset or [])
    own = read_recipe(recipe, variables=parse_variables(var or []))
    wanted = with_base(with_options(presets | own, settings | given, needs), client.bases.get)
    if not photos:
        photos = folder_of_subjects(wanted, recipe if not settings.get(SUBJECTS) else None)
    elsewhere = addresses_of(photos)
    version = dataset_of(client, photos) if elsewhere is None else None
    if several.wanted and elsewhere is not None:
        raise BadInput("the photos of an experiment are uploaded once", hint="give a folder, a .zip or a data set")

    def send(made: "Planned") -> None:
        if several.wanted:

            def asked(spec: dict[str, Any]) -> dict[str, Any]:
                return several.asked(spec, labels, name)

            submit_experiment_of(client, made, asked, plan=plan, detach=detach, output=output)
        elif (spec := planned_and_sent(client, made, plan, output)) is not None:
            submit_and_watch(client, spec, name, labels, detach, output)

    if elsewhere is not None or version is not None:
        from gangline.cli.jobs.places.fetched import fetched_plan, plan_of_dataset

        send(plan_of_dataset(client, wanted, version) if version else fetched_plan(wanted, elsewhere or []))
    else:
        notes: list[str] = []  # they are shown with the plan, so that an error stands alone
        with unpacked(Path(here_or_bundled(photos, notes.append))) as folder:
            send(plan_lora(folder, wanted, notes))


def read_recipe(
    given: str | None,
    *,
    kind: str = DEFAULT_KIND,
    variables: Mapping[str, str] = MappingProxyType({}),
    option: str = TYPED,
) -> dict[str, Any]:
    """Return the settings of a recipe, with these values of its variables, which errors name behind `option`. Raise `BadInput` or
    `NotFound`."""
    if given is None:
        return filled({}, variables, {}, option)
    path = find_recipe(given)
    try:
        text = path.read_text()
        read = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise BadInput(f"the recipe {path} cannot be read: {error}") from None
    found = filled(read, variables, comments_of(text), option)
    theirs = found.get("kind", DEFAULT_KIND)
    if theirs != kind:
        raise BadInput(f"the recipe {path} is for jobs of kind {theirs}, not {kind}", hint=COMMANDS)
    return found


def folder_of_subjects(settings: dict[str, Any], recipe: str | None) -> str:
    """Return the folder that subjects' folders are below where none is given: that of the recipe, or the current one."""
    if not settings.get(SUBJECTS):
        raise BadInput("there are no photos", hint="give a folder of photos, or several with --subject")
    return str(find_recipe(recipe).parent) if recipe else "."


def with_options(recipe: dict[str, Any], given: dict[str, Any], needs: dict[str, Any]) -> dict[str, Any]:
    """Merge the options into the recipe; options override it. The needs of the job are merged field by field."""
    settings = recipe | {field: value for field, value in given.items() if value is not None}
    needed = {field: value for field, value in needs.items() if value is not None}
    before = settings.get("needs", {})
    return settings | {"needs": before | needed} if needed and isinstance(before, dict) else settings


def with_base(settings: dict[str, Any], named: Callable[[str], BaseView]) -> dict[str, Any]:
    """Replace the name of a named base by its files or commit, and take over the VAE and the prediction type that it
    was added with."""
    name = settings.get("base")
    if not isinstance(name, str) or not is_base_name(name) or Path(name).exists() or name.endswith(".safetensors"):
        return settings
    found = named(name)
    if found.state != "ready":
        raise BadInput(
            f"the base {name} is not ready: {found.why}", hint=f"`gangline bases show {name}` shows when it is ready"
        )
    own = {"vae": parse_base(found.vae)} if found.vae else {}
    kind = {"prediction_type": found.prediction_type} if found.prediction_type != UNKNOWN else {}
    return own | kind | settings | {"base": parse_base(found.base)}


def plan_lora(photos: Path, settings: dict[str, Any], notes: Sequence[str] = ()) -> "LoraPlan":
    """Make the plan of a LoRA, with these `notes` and its own. `settings` are those of a spec, and the paths of files and folders."""
    from gangline.cli.jobs.plan.files import no_base
    from gangline.cli.jobs.plan.make import JobInputs, make_plan  # reads pictures

    paths = {name: settings[name] for name in PATHS if name in settings}
    if "base" not in paths:
        raise no_base()
    wrong = [name for name, path in paths.items() if not _names_files(name, path)]
    if wrong:
        raise BadInput(
            f"{wrong[0]} must be the path of a file or folder, not {paths[wrong[0]]!r}", hint="write the path in quotes"
        )
    paths["hold_out"] = tuple(paths.get("hold_out", ()))
    noted = [*notes]
    if isinstance(paths["base"], str):
        paths["base"] = here_or_bundled(paths["base"], noted.append)
    rest = {name: value for name, value in settings.items() if name not in PATHS}
    subjects = given_subjects(settings, photos)
    if subjects.entries:
        rest |= {SUBJECTS: subjects.entries}
    given = JobInputs(photos=photos, **paths, subjects=subjects.inputs, notes=(*noted, *subjects.notes))
    return make_plan(given, rest)


def _names_files(name: str, value: object) -> bool:
    if isinstance(value, Base):
        return True
    if name == "hold_out":
        return isinstance(value, list) and all(isinstance(path, str) for path in value)
    return isinstance(value, str)


def upload_inputs(client: "Client", photos: Path, base: str, hold_out: list[str], settings: dict[str, Any]) -> LoraSpec:
    """Check everything that can be checked here, then upload the files. Return the spec that names them."""
    plan = plan_lora(photos, settings | {"base": base, "hold_out": hold_out})
    return plan.upload(client, UploadProgress(plan.files_count))
