"""Fill the form of a new job from a spec: that of an earlier job, or one that somebody pasted."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.core.datasets.names import DatasetReference
from gangline.core.errors import BadInput, NotFound
from gangline.core.models.lora_metadata import DIFFUSERS_FILE
from gangline.core.pictures.names import step_of_weights
from gangline.core.specs.form import FormField, SettingsForm
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS
from gangline.core.specs.templates import comments_of, filled
from gangline.service.datasets.named import version_of_job
from gangline.service.datasets.versions import ready_version
from gangline.service.deployment import Deployment
from gangline.service.jobs.lists.labels import inherited_labels
from gangline.service.jobs.query import artifacts_of, owned
from gangline.web.frame.forms import SentForm
from gangline.web.frame.labels import line_of_labels
from gangline.web.new.asked import KIND, all_fields, read_nested, rest_of

RECIPE_MAX = 200_000
SERVERS_OWN = ("kind", "continues")
"""What no submission states, or only in one way."""
BESIDE = ("name", "labels")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledForm:
    """The `texts` of fields, by their names, and the `rest` of a spec, for which the form has no field.

    `job` is the job that the form began from, whose inputs are used unless others are chosen; `photos` its version of a data set, and
    `photos_count` how many files it trains on.
    """

    texts: Mapping[str, str] = field(default_factory=dict)
    rest: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    labels: str = ""
    job: str = ""
    photos: str = ""
    photos_count: int = 0
    held_out: tuple[str, ...] = ()
    base: str = ""


def form_of_spec(form: SettingsForm, spec: Mapping[str, Any]) -> FilledForm:
    """Return a form with the settings of a spec that are not their defaults. Raise `BadInput` for a spec of another kind of job."""
    kind = spec.get("kind", DEFAULT_KIND)
    if kind != KIND:
        how = KINDS[kind].command if isinstance(kind, str) and kind in KINDS else "gangline jobs submit"
        raise BadInput(f"this form is of LoRAs, and that is a spec of the kind {kind}", hint=f"submit it with `{how}`")
    texts = dict[str, str]()
    rest: dict[str, Any] = {name: value for name, value in spec.items() if name not in SERVERS_OWN}
    for each in all_fields(form):
        above, _, last = each.name.rpartition(".")
        table: Any = (rest.get(above) or {}) if above else rest
        if not isinstance(table, dict):
            raise BadInput(f"recipe: {above} must be a table")
        if last not in table or (text := _text(each, value := table[last])) is None:
            continue
        table = {name: other for name, other in table.items() if name != last}
        rest = rest | {above: table} if above else table
        if text and value != _plain_default(each):
            texts[each.name] = text
    labels = rest.get("labels")
    # A base with a VAE of its own stays with it in the rest: the form chooses a base alone.
    base = rest.pop("base") if isinstance(rest.get("base"), str) and not rest.get("vae") else ""
    photos = rest.pop("photos") if isinstance(rest.get("photos"), str) else ""
    return FilledForm(
        texts=texts,
        rest={name: value for name, value in rest.items() if name not in BESIDE and value not in (None, {}, [])},
        name=str(rest.get("name", "")),
        labels=line_of_labels({str(key): str(value) for key, value in labels.items()})
        if isinstance(labels, dict)
        else "",
        base=base,
        photos=photos,
    )


def form_of_job(deployment: Deployment, project: str, form: SettingsForm, job: str) -> FilledForm:
    """Return the form of a job like this one. Raise `BadInput` for a job of another kind, and `NotFound`."""
    found = owned(deployment, project, job)
    spec = json.loads(found["spec"])
    made = form_of_spec(form, spec)
    held_out = [each["path"] for each in spec.get("held_out") or [] if isinstance(each, dict)]
    photos = spec.get("photos")
    return FilledForm(
        texts={name: text for name, text in made.texts.items() if name != "output_name"},
        labels=line_of_labels(inherited_labels(deployment, job)),
        job=job,
        photos=_version_of(deployment, project, job),
        photos_count=len(photos) if isinstance(photos, list) else 0,
        held_out=tuple(held_out),
    )


def form_of_fields(form: SettingsForm, sent: SentForm) -> FilledForm:
    """Return the form as it was sent, with what was typed into its fields. Raise `BadInput`."""
    texts = {field.name: text for field in all_fields(form) if (text := sent.text(field.name))}
    return FilledForm(texts=texts, rest=rest_of(sent), job=sent.text("from"))


def foundation_of_job(deployment: Deployment, project: str, form: SettingsForm, job: str) -> dict[str, Any]:
    """Return the parts of a job's spec for which the form has no field: its files and its models. Raise as `form_of_job`."""
    return dict(form_of_spec(form, json.loads(owned(deployment, project, job)["spec"])).rest)


def form_of_recipe(form: SettingsForm, text: str) -> FilledForm:
    """Return the form of a recipe or a spec, in TOML or JSON. Raise `BadInput`."""
    if len(text) > RECIPE_MAX:
        raise BadInput(f"recipe: it has more than {RECIPE_MAX:,} characters")
    try:
        found = read_nested(json.loads if text.lstrip().startswith("{") else tomllib.loads, text)
    except ValueError as error:
        raise BadInput(f"recipe: it is neither JSON nor TOML ({error})", hint="paste the whole file") from None
    if isinstance(found.get("spec"), dict):
        found = found["spec"] | {name: found[name] for name in BESIDE if name in found}
    return form_of_spec(form, filled(found, {}, comments_of(text), option="recipe: "))


def lora_of_job(deployment: Deployment, project: str, job: str, step: int | None, now_ms: int) -> str:
    """Return the path of the LoRA among a job's results: the one of a step whose LoRA was kept, or the last one. Raise `NotFound`."""
    found = [each.path for each in artifacts_of(deployment, project, job, now_ms) if each.path.endswith(".safetensors")]
    wanted = sorted((path for path in found if step_of_weights(path) == step), key=lambda path: path != DIFFUSERS_FILE)
    if not wanted:
        which = f"the LoRA of step {step}" if step is not None else "a LoRA"
        raise NotFound(f"{job} has not kept {which}", hint="set keep_loras to keep one with each step's pictures")
    return wanted[0]


def _version_of(deployment: Deployment, project: str, job: str) -> str:
    """Return the version that a job's photos were, if it is still there."""
    named = version_of_job(deployment, job)
    if named is None:
        return ""
    try:
        there = ready_version(deployment, project, DatasetReference(name=named.name, number=named.number))
    except (BadInput, NotFound):
        return ""
    return str(named) if there["digest"] == named.digest else ""


def _plain_default(of: FormField) -> Any:
    return list(of.default) if isinstance(of.default, tuple) else of.default


def _text(of: FormField, value: Any) -> str | None:
    """Return a value as its field shows it; None if the field cannot show it."""
    if value is None:
        return ""
    if of.several:
        if not isinstance(value, list) or any(isinstance(each, dict | list) for each in value):
            return None
        return ("\n" if of.type == "text" else ", ").join(map(str, value))
    if of.type == "yes or no":
        return ("no", "yes")[value] if isinstance(value, bool) else None
    return None if isinstance(value, dict | list) else str(value)
