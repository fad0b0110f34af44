"""The settings of a kind of job as fields of a form, made of their one declaration: what a page shows, and what it need not repeat."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt, MaxLen, MultipleOf

from gangline.core.specs.fields import Needs
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.settings import Setting, SettingGroup, groups_of

FieldType = Literal["integer", "number", "text", "yes or no", "choice"]
NEEDS = "needs"
NO_FIELDS = (NEEDS, "command")
FEW: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lora": (
            "prompt",
            "class_prompt",
            "steps",
            "learning_rate",
            "rank",
            "resolution",
            "batch_size",
            "train_text_encoder",
            "sample_prompts",
            "sample_every_steps",
        ),
        "scratch": ("learning_rate", "new", "held_out", "sample_prompts", "sample_every_steps"),
        "caption": ("prefix", "instruction", "threshold", "exclude"),
    }
)
"""The settings of a kind that most people set, in the order in which they think of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A setting. `name` is its place in the spec, with a dot for one of `needs`; `says` explains it to people.

    `default` is a value of the spec, None if it has none: a field that is `required` has to be filled, another one may be left out. With
    `several` it is a list of such values. `least` and `most` bound a number, or its neighbours if they are `_excluded`; a whole number is
    a multiple of `step`. `length_max` bounds the characters of a text; `choices` are the texts to choose from.
    """

    name: str
    says: str
    type: FieldType
    default: Any
    unit: str
    required: bool
    several: bool
    least: float | None
    most: float | None
    least_excluded: bool
    most_excluded: bool
    step: int
    length_max: int | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormGroup:
    title: SettingGroup
    fields: tuple[FormField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsForm:
    """The `few` settings that most people set, and the `rest` by groups. Files, and lists of tables, are in neither."""

    kind: str
    few: tuple[FormField, ...]
    rest: tuple[FormGroup, ...]


def offered_settings(of: type) -> dict[SettingGroup, dict[str, Setting]]:
    """Return the settings that people are asked for one by one, by group: without those of files, without `needs`, whose own settings are
    offered, and without what has one value only."""
    groups, fixed = groups_of(of).items(), {name for name, hint in _types(of).items() if _is_fixed(hint)}
    left_out = {*NO_FIELDS, *fixed}
    shown = {group: {name: one for name, one in known.items() if name not in left_out} for group, known in groups}
    return {group: settings for group, settings in shown.items() if group is not SettingGroup.FILES}


@cache
def form_of_settings(kind: str) -> SettingsForm:
    """Return the form of a kind of job, by its name in a spec. Raise `KeyError` for one that is not there."""
    spec = KINDS[kind].spec
    groups = [*_groups(spec, ""), *(_groups(Needs, f"{NEEDS}.") if NEEDS in _types(spec) else ())]
    known = {field.name: field for group in groups for field in group.fields}
    few = FEW.get(kind, ())
    rest = (
        FormGroup(title=each.title, fields=tuple(field for field in each.fields if field.name not in few))
        for each in groups
    )
    return SettingsForm(
        kind=kind, few=tuple(known[name] for name in few), rest=tuple(group for group in rest if group.fields)
    )


def _groups(of: type, below: str) -> Iterator[FormGroup]:
    for group, settings in offered_settings(of).items():
        found = (_field(of, name, setting, below) for name, setting in settings.items())
        yield FormGroup(title=group, fields=tuple(field for field in found if field))


def _field(of: type, name: str, setting: Setting, below: str) -> FormField | None:
    """Return a setting as a field; None for one that is a table of settings, or a list of those."""
    default = next(field.default for field in fields(of) if field.name == name)
    hint = _plain(_types(of)[name])
    item = _plain(get_args(hint.type)[0]) if get_origin(hint.type) is tuple else hint
    if (kind := _type_of(item.type)) is None:
        return None
    least, most = _bound(item, Ge, Gt), _bound(item, Le, Lt)
    return FormField(
        name=f"{below}{name}",
        says=setting.says,
        type=kind,
        default=None if default is MISSING else default,
        unit=setting.unit,
        required=default is MISSING,
        several=item is not hint,
        least=least[0],
        most=most[0],
        least_excluded=least[1],
        most_excluded=most[1],
        step=next((each.multiple_of for each in item.limits if isinstance(each, MultipleOf)), 1),  # type: ignore[arg-type]
        length_max=min((each.max_length for each in item.limits if isinstance(each, MaxLen)), default=None),
        choices=get_args(item.type) if kind == "choice" else (),
    )


@dataclass(frozen=True, slots=True)
class _Plain:
    """A type without None and without annotations, and the limits that these name."""

    type: Any
    limits: tuple[Any, ...]


def _plain(hint: Any) -> _Plain:
    """Return the type of a hint. Of several types a value may have, it is the first that is not None: a prompt may be a text or a table."""
    limits = list[Any]()
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *found = get_args(hint)
            limits += [part for each in found for part in (each if isinstance(each, GroupedMetadata) else (each,))]
        elif origin in (Union, UnionType):
            hint = next(part for part in get_args(hint) if part is not NoneType)
        else:
            return _Plain(hint, tuple(limits))


def _type_of(plain: Any) -> FieldType | None:
    if get_origin(plain) is Literal:
        return "choice"
    names: dict[Any, FieldType] = {int: "integer", float: "number", str: "text", bool: "yes or no"}
    return names.get(plain)


def _bound(plain: _Plain, included: type, excluded: type) -> tuple[float | None, bool]:
    for limit in plain.limits:
        if isinstance(limit, included | excluded):
            (value,) = (getattr(limit, name) for name in ("ge", "gt", "le", "lt") if hasattr(limit, name))
            return value, isinstance(limit, excluded)
    return None, False


@cache
def _types(of: type) -> dict[str, Any]:
    return get_type_hints(of, include_extras=True)


def _is_fixed(hint: Any) -> bool:
    plain = _plain(hint).type
    return get_origin(plain) is Literal and len(get_args(plain)) == 1
