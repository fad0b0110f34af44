"""Clone a job: the spec of a new one with some other settings, and what differs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gangline.core.specs.changes import SettingChange, model_name, setting_changes


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneView:
    """What cloning a job would submit: the new job's `name` and `spec`, and the `changes` beside the old one's. `notes` are sentences for
    people."""

    job: str
    name: str
    changes: tuple[SettingChange, ...]
    notes: tuple[str, ...]
    spec: dict[str, Any]


def changes_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[SettingChange, ...]:
    """Return what differs between two specs of the same photos: the models by the names that people know them by, then the settings."""
    models = ((role, *(model_name(spec.get(role)) or None for spec in (before, after))) for role in ("base", "vae"))
    changed = (SettingChange(setting=role, before=old, after=new) for role, old, new in models if old != new)
    return (*changed, *setting_changes(before, after))


def name_of_clone(wanted: str, before: str, title_before: str, title_after: str) -> str:
    """Return the name of the new job: the one that its owner wants, else that of the old one. A job without a name of its own is called by
    what it does, which may have changed."""
    return wanted or (title_after if before == title_before else before)


def output_name_of_clone(spec: Mapping[str, Any], changes: Mapping[str, Any], old_name: str, name: str) -> str:
    """Return the file name of the new job's LoRA: that of the old one, unless that was the old job's name and the new one has another."""
    own = spec.get("output_name", "")
    return name if own and own == old_name and name != old_name and "output_name" not in changes else own


def notes_of_clone(changes: tuple[SettingChange, ...], deliver: str) -> tuple[str, ...]:
    """Return what the owner of a clone should know before it is submitted."""
    same = () if changes else ("nothing differs: the new job would train the same again",)
    place = (
        (f"both jobs deliver to {deliver}, where the later one overwrites the files of the other",) if deliver else ()
    )
    both = place if not any(each.setting == "deliver" for each in changes) else ()
    return (*same, *both)
