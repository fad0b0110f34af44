"""The spec of a job as people read it: its settings by group, those that somebody changed first. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gangline.core.specs.changes import model_name
from gangline.core.specs.kinds import KINDS
from gangline.core.specs.settings import SettingGroup, settings_of
from gangline.core.specs.spec import with_defaults

SHOWN_CHARS_MAX = 300
MODELS = ("base", "vae", "init_lora")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRow:
    """A setting of a spec. `default` is empty where there is none, and for a setting that is as it is by default."""

    name: str
    value: str
    default: str
    says: str
    group: str
    changed: bool


def spec_rows(spec: Mapping[str, Any]) -> list[SpecRow]:
    """Return the settings of a job's spec in the order of the spec's own list: the inputs and what differs from the defaults first.

    Of a job that renders pictures, the settings are those of the job that trained.
    """
    if "of" in spec and KINDS[spec["kind"]].renders:
        spec = spec["of"]
    return sorted(_rows(spec), key=lambda row: not row.changed)


def _rows(spec: Mapping[str, Any]) -> Iterator[SpecRow]:
    kind = KINDS[spec["kind"]].spec
    known, defaults, whole = settings_of(kind), with_defaults({"kind": spec["kind"]}), with_defaults(dict(spec))
    for name, setting in known.items():
        value, default = whole.get(name), defaults.get(name)
        group = str(setting.group or "")
        if name == "kind" or (value is None and default is None):
            continue
        if setting.group is SettingGroup.FILES:
            if value:
                yield SpecRow(
                    name=name, value=_input(name, value), default="", says=setting.says, group=group, changed=True
                )
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
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, "", [], ()):
        return "none"
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}…"
