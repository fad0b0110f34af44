"""The spec of a job as people read it: its settings by group, those that somebody changed first. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.core.specs.changes import model_name
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.settings import SettingGroup, settings_of
from gangline.core.specs.spec import with_defaults
from gangline.core.views import BaseView
from gangline.web.frame.figures import value_written

SHOWN_CHARS_MAX = 300
MODELS = ("base", "vae", "init_lora")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRow:
    """A setting of a spec. `value` and `default` may have several lines. `default` is empty where there is none, and for a
    setting that is as it is by default."""

    name: str
    value: str
    default: str
    says: str
    group: str
    changed: bool


def spec_rows(spec: Mapping[str, Any], bases: Sequence[BaseView] = ()) -> list[SpecRow]:
    """Return the settings of a job's spec in the order of the spec's own list: the inputs and what differs from the defaults first.

    `bases` are those of the project, by whose names people know them. Of a job that renders pictures, the settings are
    those of the job that trained.
    """
    if "of" in spec and KINDS[spec["kind"]].renders:
        spec = spec["of"]
    names = [each.name for each in bases if each.base == spec.get("base")]
    return sorted(_rows(spec, names[:1]), key=lambda row: not row.changed)


def _rows(spec: Mapping[str, Any], base: Sequence[str]) -> Iterator[SpecRow]:
    kind = KINDS[spec["kind"]].spec
    known, defaults, whole = settings_of(kind), with_defaults({"kind": spec["kind"]}), with_defaults(dict(spec))
    for name, setting in known.items():
        value, default = whole.get(name), defaults.get(name)
        group = str(setting.group or "")
        if name == "kind" or (value is None and default is None):
            continue
        if setting.group is SettingGroup.FILES:
            if value:
                text = ": ".join([*(base if name == "base" else ()), _input(name, value)])
                yield SpecRow(name=name, value=text, default="", says=setting.says, group=group, changed=True)
        elif isinstance(value, dict) and isinstance(default, dict):
            for part in dict.fromkeys((*default, *value)):
                yield _row(f"{name}.{part}", value.get(part), default.get(part), setting.says, group)
        else:
            yield _row(name, value, default, setting.says, group)


def _row(name: str, value: Any, default: Any, says: str, group: str) -> SpecRow:
    changed = _comparable(value) != _comparable(default)
    return SpecRow(
        name=name,
        value=_written(value),
        default=_written(default) if changed and default not in (None, "", [], ()) else "",
        says=says,
        group=group,
        changed=changed,
    )


def _comparable(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _input(name: str, value: Any) -> str:
    if name in MODELS:
        return _cut(model_name({"files": [value]} if isinstance(value, dict) and "sha256" in value else value))
    if isinstance(value, list | tuple):
        return f"{len(value)} file{'s' * (len(value) != 1)}"
    return _written(value)


def _written(value: Any) -> str:
    return _cut(value_written(value))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
