"""`gangline scratch`: from a recipe and data sets to a job that trains a model."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gangline.cli.bundled.place import here_or_bundled
from gangline.cli.bundled.variables import VariableOption
from gangline.cli.client import make_client
from gangline.cli.jobs.lists.labels import LabelOption
from gangline.cli.jobs.prompts import PromptsFileOption, given_prompts
from gangline.cli.jobs.submitting.send import UploadProgress, check_open, submit_and_watch
from gangline.cli.jobs.train import read_recipe, with_base
from gangline.cli.output import Output, OutputOption, ServerOption, TokenOption, print_json
from gangline.compose.buckets import data_place
from gangline.compose.settings import needing
from gangline.core.errors import BadInput
from gangline.core.files import STAND_IN, File
from gangline.core.jobs.lists.labels import parse_labels
from gangline.core.parsing import InvalidSpec
from gangline.core.specs.fields import Base, FilesBase, HubBase
from gangline.core.specs.phases import DataRef
from gangline.core.specs.scratch import ScratchSpec, parse_scratch
from gangline.core.specs.templates import parse_variables
from gangline.core.words import counted

if TYPE_CHECKING:
    from gangline.cli.jobs.plan.files import LocalFiles, ModelChoice
    from gangline.cli.jobs.plan.scratch import ScratchDocument
    from gangline.compose.client import Client
    from gangline.core.plans.base import KnownBase
    from gangline.data.dataset import DataSet


def scratch_command(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Read the job's settings from this TOML file, or from a recipe that `gangline recipes ls` lists.",
            show_default=False,
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Train on this data set instead of the recipe's, with the recipe's condition and weight: a folder, which is "
            "uploaded, or an s3:// address, which nodes read. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="Use the rows of each data set for which this SQL condition holds, instead of the recipe's condition; '' uses "
            "all rows.",
            show_default=False,
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="Start from this model instead of the recipe's: a folder in diffusers' layout, or a hub id.",
            show_default=False,
        ),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a setting of the recipe, as TOML, e.g. --set seed=7. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    var: VariableOption = None,
    sample_prompts_file: PromptsFileOption = None,
    name: Annotated[str, typer.Option(help="Name the job (default: the trained part and its data sets).")] = "",
    label: LabelOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Check everything and show the plan, but submit nothing.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit the job and do not wait for its end.")] = False,
    server: ServerOption = None,
    token: TokenOption = None,
    output: OutputOption = Output.text,
) -> None:
    """Train a U-Net, with or without its text encoders, or a VAE on data sets.

    `gangline docs scratch` explains every step from images to a model. Ctrl-C stops watching the job, never the job itself.
    """
    client, labels = make_client(server, token), parse_labels(label or [])
    read = read_recipe(recipe, kind="scratch", variables=parse_variables(var or []))
    own = override_recipe(read, setting or []) | given_prompts(None, sample_prompts_file)
    asked = with_data(own, data or [], where)
    wanted = with_base(asked | ({"base": here_or_bundled(base)} if base else {}), client.bases.get)
    made = plan_scratch(wanted)
    planned = _show(client, made)
    if plan:
        print_json(planned) if output is Output.json else None
        return
    check_open(planned)
    submit_and_watch(client, made.upload(client), name, labels, detach, output)


def override_recipe(recipe: dict[str, Any], given: list[str]) -> dict[str, Any]:
    """Return the recipe with each `name=value` or `table.name=value` replaced. A value that is no TOML is a text."""
    for text in given:
        name, equals, value = text.partition("=")
        path = name.strip().split(".")
        if not equals or not all(part.isidentifier() for part in path):
            raise BadInput(
                f"--set {text} does not name a setting and its value",
                hint="write --set NAME=VALUE, e.g. --set seed=7 or --set needs.slots=8",
            )
        try:
            found = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found = value.strip()
        recipe = _set(recipe, path, found)
    return recipe


def _set(settings: Any, path: list[str], value: Any) -> dict[str, Any]:
    own = settings if isinstance(settings, dict) else {}
    return own | {path[0]: value if len(path) == 1 else _set(own.get(path[0]), path[1:], value)}


def with_data(recipe: dict[str, Any], given: list[str], where: str | None) -> dict[str, Any]:
    """Return the recipe with the `given` data sets, if there are any. Each takes condition and weight of the recipe's
    data set in the same position; if the numbers differ, the condition that all of the recipe's share. `where` replaces
    all conditions."""
    if not given and where is None:
        return recipe
    own = _places(recipe["data"]) if "data" in recipe else []
    sets = [{**one, "place": place} for one, place in zip(_paired(own, given, where), given, strict=True)] or own
    return recipe | {"data": [one | ({} if where is None else {"where": where}) for one in sets]}


def _paired(own: list[dict[str, Any]], given: list[str], where: str | None) -> list[dict[str, Any]]:
    if len(own) == len(given):
        return own
    conditions = {one.get("where", "") for one in own} if where is None else set[str]()
    if len(conditions) > 1:
        raise BadInput(
            f"the recipe has {len(own)} data sets with different conditions, but --data names {len(given)}: "
            "they cannot be matched",
            hint=f"pass --data {len(own)} times, or one condition for all with --where ('' for none)",
        )
    return [{"where": one} for one in conditions] * len(given) or [{} for _ in given]


def _show(client: "Client", plan: "ScratchPlan") -> "ScratchDocument":
    from gangline.cli.jobs.plan.ask import as_named, ask
    from gangline.cli.jobs.plan.scratch import scratch_document
    from gangline.cli.jobs.plan.show import show_plan

    known = as_named(client, plan.base, plan.known)
    planned = scratch_document(plan.spec, known, plan.rows_of, ask(client, plan.spec, plan.base, known))
    show_plan(planned, plan.rows())
    return planned


@dataclass(frozen=True, slots=True, kw_only=True)
class ScratchPlan:
    """`spec` is whole but for the contents of files: those of `base`, and of each data set that is uploaded, by its place. `known`
    says what the base is."""

    spec: ScratchSpec
    base: "ModelChoice"
    known: "KnownBase"
    sets: dict[str, "LocalFiles"]
    rows_of: dict[str, int]

    def rows(self) -> list[tuple[str, str]]:
        """Return what a user should know before the job begins."""
        spec, total = self.spec, sum(self.rows_of.values())
        new = f", from scratch: {', '.join(spec.new)}" if spec.new else ""
        trained = "VAE" if spec.part == "vae" else "U-Net" + " and text encoders" * spec.train_text_encoders
        rows = [("trains", trained + new)]
        for ref in spec.data:
            weight = f", weight {ref.weight:g}" if len(spec.data) > 1 else ""
            where = f", where {' '.join(ref.where.split())}" if ref.where else ""
            rows.append(("data", f"{ref.place}: {self.rows_of[ref.place]} rows{weight}{where}"))
        for number, phase in enumerate(spec.phases, 1):
            seen = phase.steps * phase.batch_size
            size = f"{phase.resolution} × {phase.resolution}"
            what = f"{size}, {counted(phase.steps, 'step')}, batch size {phase.batch_size}: {seen} images"
            rows.append(
                (
                    f"phase {number}",
                    f"{what}, about {seen / total:.3g} times each" + f" where {phase.where}" * bool(phase.where),
                )
            )
        rows.append(("GPUs", f"{spec.needs.slots}, {spec.parallel}" if spec.needs.slots > 1 else "1"))
        return rows

    def upload(self, client: "Client") -> ScratchSpec:
        """Send what is not there yet; the spec that names it by content."""
        from gangline.cli.jobs.plan.files import LocalFiles

        progress = UploadProgress(
            sum(len(files.paths) for files in (*self.sets.values(), self.base) if isinstance(files, LocalFiles))
        )

        def send(files: LocalFiles) -> tuple[File, ...]:
            return client.files.upload(files.paths, files.below, progress=progress)

        base = FilesBase(files=send(self.base)) if isinstance(self.base, LocalFiles) else self.base
        data = tuple(
            replace(ref, files=send(self.sets[ref.place])) if ref.place in self.sets else ref for ref in self.spec.data
        )
        return replace(self.spec, base=base, data=data)


def plan_scratch(settings: dict[str, Any]) -> ScratchPlan:
    """Make the plan of a training on data sets. Raises `BadInput` with all problems of the settings before anything is
    read."""
    from gangline.cli.jobs.plan.files import LocalFiles

    with needing("data"):
        from gangline.data.reading.requirements import check_data_sets

    given, base = _places(settings.get("data", [])), settings.get("base")
    if not isinstance(base, str | Base):
        raise BadInput("there is no base model", hint="pass --base with a folder in diffusers' layout or a hub id")
    spec = spec_of(settings)
    opened = [_opened(str(one["place"])) for one in given]
    refs, sets, rows = [], {}, {}
    for number, (one, data) in enumerate(zip(given, opened, strict=True)):
        place = data.place.uri if data.place.is_remote else f"data/{number}-{data.place.name}"
        refs.append({**one, "place": place, "id": data.info.id, "version": data.version})
        rows[place] = data.rows
        if not data.place.is_remote:
            sets[place] = _files_of(data)
    found = _begin(base, spec) if isinstance(base, str) else base
    known = _known(base, found)
    files = {place: files.unsent() for place, files in sets.items()}
    whole = settings | {
        "base": FilesBase(files=found.unsent()) if isinstance(found, LocalFiles) else found,
        "data": [ref | {"files": files.get(ref["place"], ())} for ref in refs],
    }
    parsed = parse_scratch(whole, options=True)
    check_data_sets(parsed, opened, instead="--where sets another condition, --where '' removes it")
    return ScratchPlan(spec=parsed, base=found, known=known, sets=sets, rows_of=rows)


def spec_of(settings: dict[str, Any]) -> ScratchSpec:
    """Parse the settings with stand-ins for data and base. Raises `InvalidSpec`."""
    base = FilesBase(files=(STAND_IN,))
    try:
        data = [DataRef(place="s3://x/x", id="x", version=1)]
        return parse_scratch(settings | {"base": base, "data": data}, options=True)
    except InvalidSpec as error:
        raise InvalidSpec(error.problems, hint="`gangline docs scratch` lists every setting") from None


def _places(given: Any) -> list[dict[str, Any]]:
    """Return the recipe's data sets, each a table with at least its place."""
    sets = [{"place": one} if isinstance(one, str) else one for one in (given if isinstance(given, list) else [given])]
    if not sets or not all(isinstance(one, dict) and isinstance(one.get("place"), str) for one in sets):
        raise BadInput("there is no data set", hint='pass --data, or write data = ["photos.lance"] into the recipe')
    return sets


def _opened(place: str) -> "DataSet":
    with needing("data"):
        from gangline.data.dataset import open_data_set
    return open_data_set(data_place(place))


def _files_of(data: "DataSet") -> "LocalFiles":
    from gangline.cli.jobs.plan.files import LocalFiles

    root = Path(data.place.uri)
    return LocalFiles(root, [root / name for name in data.files()])


def _begin(base: str, spec: ScratchSpec) -> "ModelChoice":
    """Return the base to start from; of a folder the files that are needed, without the weights of the parts that are
    trained from scratch."""
    from gangline.cli.jobs.plan.files import LocalFiles, as_hub
    from gangline.data.bases import files_to_begin

    alone = "vae" if spec.part == "vae" else ""
    return as_hub(base) or LocalFiles(Path(base), files_to_begin(Path(base), spec.new, alone=alone))


def _known(given: str | Base, base: "ModelChoice") -> "KnownBase":
    from gangline.cli.jobs.plan.base import of_files, of_hub
    from gangline.cli.jobs.plan.files import LocalFiles
    from gangline.core.plans.base import of_content

    if isinstance(base, HubBase):
        return of_hub(base, whole=False)
    return of_files(Path(str(given)), base.paths) if isinstance(base, LocalFiles) else of_content(base)
