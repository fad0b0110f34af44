"""Read the form of a new job: a spec as the API takes it, with nothing in it that is a default, and what the jobs of an experiment vary.

What cannot be read as a number stays a text, so that the spec's own parser says what is wrong, at the field.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.experiments.terms import RUNS_MAX, ExperimentAsked
from gangline.core.experiments.typed import parse_vary
from gangline.core.parsing import InvalidSpec, Problem, parse_as
from gangline.core.specs.form import FormField, SettingsForm
from gangline.core.specs.templates import Preset, settings_of_presets
from gangline.web.frame.forms import SentForm
from gangline.web.frame.labels import labels_of_line

KIND = "lora"
HUB = "hub"
"""The choice of a base that is named by its repository on the hub."""
SPAN = ".."
TERMS = ("seeds", "at_once", "budget_usd")
FILES = ("photos", "captions", "masks", "held_out", "subjects")
"""What comes with photos: other photos have their own."""
OF_BASE = ("base", "vae")
"""What comes with a base."""
DEPTH_MAX = 50
TOO_DEEP = f"it is nested more than {DEPTH_MAX} deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedJob:
    """What a form asks for: a job of this `spec`, or an experiment if there is more than one value of a setting, or of the seed."""

    spec: dict[str, Any]
    name: str
    labels: dict[str, str]
    vary: dict[str, list[Any]]
    terms: dict[str, Any]

    @property
    def is_experiment(self) -> bool:
        return bool(self.vary) or "seeds" in self.terms

    def experiment(self) -> ExperimentAsked:
        """Return it as an experiment. Raise `InvalidSpec`."""
        beside = {"spec": self.spec, "name": self.name, "labels": self.labels, "vary": self.vary}
        found: ExperimentAsked = parse_as(ExperimentAsked, beside | self.terms)
        return found


def all_fields(form: SettingsForm) -> tuple[FormField, ...]:
    return (*form.few, *(field for group in form.rest for field in group.fields))


def read_asked(
    form: SettingsForm, sent: SentForm, presets: Mapping[str, Preset], foundation: Mapping[str, Any]
) -> AskedJob:
    """Return what the form asks for. `foundation` are the parts of the spec of the job that it began from, for which it has no fields:
    files, and lists of tables.

    Raise `BadInput` or `InvalidSpec`.
    """
    of_presets = settings_of_presets(presets, sent.texts("preset"))
    spec, vary = _with_rest(foundation, rest_of(sent)) | of_presets, dict[str, list[Any]]()
    for field in all_fields(form):
        if not (text := sent.text(field.name)):
            continue
        values = list(_values(field, text))
        if len(values) > 1:
            vary[field.name] = values
        elif values[0] != _known(field, of_presets):
            _put(spec, field.name, values[0])
    vary |= parse_vary(KIND, [line for line in sent.text("also").splitlines() if line.strip()], "also:")
    return AskedJob(
        spec=_with_inputs(spec, sent),
        name=sent.text("name"),
        labels=labels_of_line(sent.text("labels")),
        vary=vary,
        terms=_terms(sent),
    )


def _put(spec: dict[str, Any], name: str, value: Any) -> None:
    """Set a setting by its dotted name. Raise `InvalidSpec` if what it belongs to is no table."""
    *above, last = name.split(".")
    for each in above:
        if not isinstance(spec.get(each) or {}, dict):
            raise InvalidSpec((Problem(each, "must be a table"),))
        spec[each] = dict(spec.get(each) or {})
        spec = spec[each]
    spec[last] = value


def read_nested(load: Callable[[str], Any], text: str) -> Any:
    """Return what `load` finds in a text. Raise `ValueError` for what the form cannot send on: too deep, a date, or half a character."""
    try:
        found = load(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    level = [found]
    for _ in range(DEPTH_MAX):
        level = [part for each in level for part in _parts(each)]
    if level:
        raise ValueError(TOO_DEEP)
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except TypeError:
        raise ValueError("no setting is a date or a time") from None
    return found


def _parts(of: Any) -> Iterable[Any]:
    if isinstance(of, dict):
        return of.values()
    return of if isinstance(of, list) else ()


def hidden_json(sent: SentForm, name: str) -> Any:
    """Return the JSON of a hidden field; None if it is empty. Raise `BadInput`."""
    try:
        return read_nested(json.loads, sent.text(name) or "null")
    except ValueError:
        raise BadInput(f"{name} is not JSON", hint="load the page again") from None


def rest_of(sent: SentForm) -> dict[str, Any]:
    """Return what a recipe had beside the form's fields. Raise `BadInput`."""
    rest = hidden_json(sent, "more")
    if rest is not None and not isinstance(rest, dict):
        raise BadInput("more is not a table", hint="load the page again")
    return rest or {}


def _known(field: FormField, of_presets: Mapping[str, Any]) -> Any:
    """Return the value that a job has without this field being sent."""
    default = list(field.default) if field.several and field.default is not None else field.default
    return of_presets.get(field.name, default)


def _values(field: FormField, text: str) -> Iterator[Any]:
    """Yield the values of a field: several of a number make an experiment, and all of a list are one value."""
    if field.several:
        parts = text.splitlines() if field.type == "text" else text.replace(",", " ").split()
        yield [_value(field, part.strip()) for part in parts if part.strip()]
    elif field.type in ("integer", "number"):
        for part in text.split(","):
            yield from _span(field, part.strip())
    else:
        yield _value(field, text)


def _span(field: FormField, part: str) -> Iterator[Any]:
    """Yield a value, or all whole numbers of `1..4`."""
    first, dots, last = part.partition(SPAN)
    if not dots:
        yield _value(field, part)
        return
    begin, end = _whole(first), _whole(last)
    if field.type != "integer" or begin is None or end is None or not begin <= end < begin + RUNS_MAX:
        says = f"{part} is not a range of at most {RUNS_MAX:,} whole numbers: write 1..4, or values with commas"
        raise InvalidSpec((Problem(field.name, says),))
    yield from range(begin, end + 1)


def _value(field: FormField, text: str) -> Any:
    if field.type == "yes or no":
        return text == "yes"
    if field.type not in ("integer", "number"):
        return text
    whole = _whole(text)
    if whole is not None:
        return whole if field.type == "integer" else float(whole)
    try:
        return float(text)
    except ValueError:
        return text


def _whole(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if len(digits) < 20 and digits.removeprefix("-").isdecimal() else None


def _with_rest(foundation: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a recipe over those of a job: its photos and its base replace all that came with the job's."""
    replaced = [name for names in (FILES, OF_BASE) if names[0] in rest for name in names]
    return {name: value for name, value in foundation.items() if name not in replaced} | dict(rest)


def _with_inputs(spec: dict[str, Any], sent: SentForm) -> dict[str, Any]:
    """Return the spec with the base and the photos that were chosen in place of those of its foundation."""
    if base := sent.text(HUB) if sent.text("base") == HUB else sent.text("base"):
        replaced = OF_BASE if spec.get("base") else ()
        spec = {name: value for name, value in spec.items() if name not in replaced} | {"base": base}
    if photos := sent.text("photos"):
        spec = {name: value for name, value in spec.items() if name not in FILES} | {"photos": photos}
    held_out = hidden_json(sent, "held_out")
    if held_out and photos:
        spec["held_out"] = held_out
    if init_lora := hidden_json(sent, "init_lora"):
        spec["init_lora"] = init_lora
    return {"kind": KIND} | spec


def _terms(sent: SentForm) -> dict[str, Any]:
    found: dict[str, Any] = {name: _number_or_text(sent.text(name)) for name in TERMS if sent.text(name)}
    if found.get("seeds") == 1:
        del found["seeds"]
    if first := sent.text("min_steps"):
        found["halving"] = {"min_steps": _number_or_text(first)}
        if eta := sent.text("eta"):
            found["halving"]["eta"] = _number_or_text(eta)
    return found


def _number_or_text(text: str) -> int | float | str:
    if (whole := _whole(text)) is not None:
        return whole
    try:
        return float(text)
    except ValueError:
        return text
