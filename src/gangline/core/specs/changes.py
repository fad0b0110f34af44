"""Change settings of a spec that was submitted before, and tell two specs apart. Pure.

Specs are JSON values here, as jobs keep them: what a new value must be is checked by the parser of the spec, as with any submission.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gangline.core.errors import BadInput
from gangline.core.parsing import GIVEN_MAX, InvalidSpec, parse_as
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS
from gangline.core.specs.settings import SettingGroup, settings_of
from gangline.core.specs.spec import with_defaults

CHANGES_MAX = 200
"""The most settings that one request may change."""
MODELS = ("base", "vae")
"""The inputs of a job that are a name or a hub id, so that another one need not be uploaded."""
OF_BASE = ("vae", "prediction_type", "base_licence")
"""Settings that a job may have from its base alone: a new base brings its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting whose value differs, as JSON; `setting` may be dotted (`needs.pool`). None: there is no such value."""

    setting: str
    before: Any
    after: Any


def parse_changes_of(kind: str, texts: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """Return the settings of several `NAME=VALUE`; of one name, the last counts. Raise `BadInput`."""
    found = dict[str, Any]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadInput(f"{option} {text} has no value", hint=f"write {option} NAME=VALUE, e.g. {option} rank=16")
        found[name.strip()] = parse_value(kind, name.strip(), value, option)
    return found


def parse_value(kind: str, name: str, text: str, option: str = "--set") -> Any:
    """Return the value of a setting, by its name, as somebody types it. Raise `BadInput` if there is no such setting, or if a number or
    a word is not one that it takes.

    It is TOML, and what is no TOML is a text, as every value of a setting that is one. `none` stands for the default of a setting that may
    have no value.
    """
    hint, text = check_name(kind, name, option), text.strip()
    if text == "none" and NoneType in get_args(hint) and not _is_text(hint):
        return None
    try:
        found = tomllib.loads(f"value = {text}")["value"]
        json.dumps(found, allow_nan=False)
    except (ValueError, TypeError):  # no TOML, or a date or a number that JSON has not
        found = text
    return check_value(kind, name, text if _is_text(hint) and not isinstance(found, str) else found, option)


def check_value(kind: str, name: str, value: Any, option: str = "--set") -> Any:
    """Return the value as a spec has it, if the setting is a number, a word or a text. Raise `BadInput` if it does not take this one.

    Tables, lists and models are checked with the spec as a whole.
    """
    hint = check_name(kind, name, option, whole=True)
    if isinstance(value, dict | list) or not _is_plain(check_name(kind, name, option)):
        return value
    try:
        return parse_as(hint, value, options=True)
    except InvalidSpec as error:
        why = error.problems[0].message.partition(", not ")[0]
        raise BadInput(f"{option} {name}={str(value)[:GIVEN_MAX]}: {why}", hint=_about(kind, name)) from None


def _about(kind: str, name: str) -> str:
    """Return what a setting is for."""
    above, _, last = name.partition(".")
    hint = get_type_hints(KINDS[kind].spec)[above]
    return settings_of(_section_of(hint))[last].says if last else settings_of(KINDS[kind].spec)[above].says


def check_name(kind: str, name: str, option: str = "--set", *, whole: bool = False) -> Any:
    """Return the type of a setting, or the `whole` annotation with its limits. Raise `BadInput` if jobs of this kind have none such."""
    of: Any = KINDS[kind].spec
    above, dot, last = name.partition(".")
    if dot and above in settings_of(of):
        of, own = _section_of(get_type_hints(of)[above]), last
    else:
        own = name
    if of is None or own not in settings_of(of):
        known = [*settings_of(KINDS[kind].spec), *(f"needs.{each}" for each in _needs_of(kind))]
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else "`gangline docs training` lists every setting"
        raise BadInput(f"{option} {name}: there is no such setting", hint=hint)
    return get_type_hints(of, include_extras=whole)[own]


def _needs_of(kind: str) -> Iterable[str]:
    return settings_of(_section_of(get_type_hints(KINDS[kind].spec)["needs"]))


def _section_of(hint: Any) -> Any:
    """Return the section that a setting is a table of, if it is one."""
    return next((part for part in (hint, *get_args(hint)) if hasattr(part, "of_settings")), None)


def _is_text(hint: Any) -> bool:
    return str in (hint, *get_args(hint))


def _is_plain(hint: Any) -> bool:
    """Return whether a setting is a number, a word of several, or a text; it may also have no value."""
    parts = [
        part for part in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)) if part is not NoneType
    ]
    return all(part in (int, float, bool, str) or get_origin(part) is Literal for part in parts)


def apply_changes(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with these settings, as it would be submitted. Raise `BadInput` for one that a new job cannot have another value of.

    A new base brings its own VAE, kind of prediction and licence, unless these are changed too.
    """
    kind = spec.get("kind", DEFAULT_KIND)
    if spec.get("continues"):
        raise BadInput(
            f"the job continues step {spec['continues']['step']} of {spec['continues']['job']}, which other settings do not fit",
            hint=f"clone {spec['continues']['job']}",
        )
    if len(changes) > CHANGES_MAX:
        raise BadInput(
            f"{len(changes)} settings are more than one request may change", hint=f"{CHANGES_MAX} is the most"
        )
    known = settings_of(KINDS[kind].spec)
    made = {name: value for name, value in spec.items() if not ("base" in changes and name in OF_BASE)}
    for name, value in changes.items():
        above, dot, last = name.partition(".")
        if above in known and known[above].group is SettingGroup.FILES and above not in MODELS:
            raise BadInput(
                f"{above}: a clone has that of its job",
                hint="submit a job of its own for other inputs: `gangline train`",
            )
        before = made.get(above)
        made[above] = ((before if isinstance(before, dict) else {}) | {last: value}) if dot else value
    return made


def setting_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[SettingChange, ...]:
    """Return the settings in which two specs differ, in the order of the specs' own lists; those of tables one by one.

    A setting that a spec of an older version lacks has its default. Inputs are compared by their names elsewhere, the base included.
    """
    one, other = (with_defaults({"kind": DEFAULT_KIND} | dict(each)) for each in (before, after))
    kinds = dict.fromkeys(each["kind"] for each in (one, other))
    ordered = list(dict.fromkeys(name for kind in kinds for name in settings_of(KINDS[kind].spec)))
    inputs = {
        name
        for kind in kinds
        for name, setting in settings_of(KINDS[kind].spec).items()
        if setting.group is SettingGroup.FILES and name != "kind"
    }
    return tuple(
        each for name in ordered if name not in inputs for each in _differing(name, one.get(name), other.get(name))
    )


def _differing(name: str, before: Any, after: Any) -> Iterator[SettingChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        for part in dict.fromkeys((*before, *after)):
            yield from _differing(f"{name}.{part}", before.get(part), after.get(part))
    elif _as_list(before) != _as_list(after):
        yield SettingChange(setting=name, before=before, after=after)


def _as_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def model_name(model: Any) -> str:
    """Return how people know the model that a spec names: its hub id and commit, or its files. '' if there is none."""
    if not isinstance(model, dict):
        return model or ""
    if "repo" in model:
        return f"{model['repo']}@{model.get('revision', 'main')[:12]}"
    files = model.get("files", ())
    return ", ".join(
        f"{file['path']} ({file['sha256'][:12]})" for file in files[:1]
    ) + f" and {len(files) - 1} more files" * (len(files) > 1)
