"""What a setting of a job is: a sentence, a unit and a group for people, and what it decides, for every key that is made of it.

Each setting says so at its field: `Annotated[int, Ge(1), Setting("Train for this many optimiser steps.", RESULT)]`. Everything else is
derived: keys, options, tables in docs/, metadata. What a setting decides has no default: one that is forgotten would let jobs share what
is not the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from enum import Flag, StrEnum, auto
from functools import cache
from inspect import get_annotations
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_origin

from gangline.core.parsing import to_json


class Decides(Flag):
    """What changes with a setting."""

    LATENTS = auto()  # those prepared of photos
    EMBEDDINGS = auto()  # those prepared of words
    CLASS_IMAGES = auto()
    RESULT = auto()  # what the job gives
    BITS = auto()  # the last bits of it alone: how the same work is divided
    WORKLOAD = auto()  # what the job asks of a machine: memory, time per step
    PLACE = auto()  # which nodes may take the job, when, and how often it is tried
    WATCH = auto()  # what is saved, shown and reported while it runs


LATENTS, EMBEDDINGS, CLASS_IMAGES, RESULT, BITS, WORKLOAD, PLACE, WATCH = Decides
PREPARED = LATENTS | EMBEDDINGS | CLASS_IMAGES


class SettingGroup(StrEnum):
    """Titles, in the order in which people read them."""

    FILES = "Inputs"
    MODEL = "Trained parts"
    SUBJECT = "Training data"
    COMMAND = "Command"
    CAPTIONS = "Captions"
    CUTTING = "Cropping"
    LORA = "LoRA"
    TRAINING = "Optimisation"
    OBJECTIVE = "Loss"
    CARD = "Precision and memory"
    SAVING = "Seed and checkpoints"
    SAMPLES = "Sample pictures"
    PROMPTS = "Each entry of `sample_prompts` that is a table"
    SUBJECTS = "Each entry of `subjects`"
    SAID = "Results"
    TRIES = "Scheduling"
    NODE = "Node requirements"
    DATA = "Each entry of `data`"
    PHASES = "Each entry of `phases`"
    LOSSES = "`vae_losses`"
    CONTINUES = "`continues`"


@dataclass(frozen=True, slots=True)
class Setting:
    """`always`: kinds of jobs whose hash has it at its default too, as in the release that they came with. `kohya`: the names under which
    a LoRA's file has its value, where that is the value as it is. A section gives its own group to settings that have none."""

    says: str
    decides: Decides
    unit: str = ""
    group: SettingGroup | None = None
    always: tuple[str, ...] = ()
    kohya: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.decides:
            raise TypeError(f"a setting that decides nothing: {self.says}")
        if self.decides & PREPARED and not self.decides & RESULT:
            raise TypeError(f"what is prepared is a part of the result, which this does not decide: {self.says}")


Of = TypeVar("Of", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def section(group: SettingGroup) -> Callable[[Of], Of]:
    """Make a frozen dataclass of settings of `group`: a spec, a part of one, or what specs have in common, to inherit from.

    Raises `TypeError` for a field without a `Setting`. It has no slots: of two classes that have some nothing can inherit.
    """

    def made(of: Of) -> Of:
        for name, hint in _own(of).items():
            if len(_declared(hint)) != 1:
                raise TypeError(f"{of.__name__}.{name} does not say what it decides: annotate it with one Setting")
        of.of_settings = group  # type: ignore[attr-defined]
        return dataclass(frozen=True, kw_only=True)(of)

    return made


def _own(of: type) -> dict[str, Any]:
    """Annotations of the fields that this class declares itself."""
    found = get_annotations(of, eval_str=True)
    return {name: hint for name, hint in found.items() if get_origin(hint) is not ClassVar and hint is not ClassVar}


def _declared(hint: Any) -> list[Setting]:
    return [part for part in getattr(hint, "__metadata__", ()) if isinstance(part, Setting)]


@cache
def settings_of(of: type) -> Mapping[str, Setting]:
    """Return each setting by its name, with its group; a redeclared one stays in the group of the first declaration."""
    found: dict[str, Setting] = {}
    for each in reversed(of.__mro__):
        for name, hint in _own(each).items() if "of_settings" in vars(each) else ():
            (own,) = _declared(hint)
            before = found[name].group if name in found else vars(each)["of_settings"]
            found[name] = replace(own, group=own.group or before)
    return found


@cache
def deciding(of: type, what: Decides) -> tuple[str, ...]:
    """The names of the settings that decide any of it."""
    return tuple(name for name, setting in settings_of(of).items() if setting.decides & what)


@cache
def groups_of(of: type) -> Mapping[SettingGroup, Mapping[str, Setting]]:
    known = settings_of(of)
    found = {group: {name: one for name, one in known.items() if one.group is group} for group in SettingGroup}
    return {group: settings for group, settings in found.items() if settings}


def hashed(spec: Any, what: Decides) -> dict[str, Any]:
    """JSON values of the settings that decide any of it, for the spec's hash.

    A setting that came after the first release counts only where it is not as it is by default: jobs that run while Gangline is
    upgraded keep their hash, and so their checkpoints.
    """
    known, value = settings_of(type(spec)), to_json(spec)
    changed = {field.name for field in fields(spec) if getattr(spec, field.name) != field.default}
    counting = {name for name in deciding(type(spec), what) if name in changed or spec.kind in known[name].always}
    return {name: _deciding_part(getattr(spec, name), value[name], what) for name in counting}


def _deciding_part(setting: Any, value: Any, what: Decides) -> Any:
    """Return a JSON value, of a table of settings only those that decide any of it."""
    if not hasattr(setting, "of_settings"):
        return value
    return {name: value[name] for name in deciding(type(setting), what)}


def default_of(of: type, name: str) -> str:
    """As people write it, with its unit; empty where there is none."""
    default = next(field.default for field in fields(of) if field.name == name)
    if default is MISSING or default is None or default in ((), "") or hasattr(default, "of_settings"):
        return ""
    unit = settings_of(of)[name].unit
    return _in_words(default) + f" {unit}" * bool(unit)


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
