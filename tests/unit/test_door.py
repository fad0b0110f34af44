"""What comes from outside as words: every field for text, of messages of workers, requests of users, and specs."""

import dataclasses
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from annotated_types import Predicate
from pydantic import TypeAdapter, ValidationError

import gangline.api
from gangline.core.files import is_safe_path
from gangline.core.specs.lora import LoraSpec
from gangline.core.specs.scratch import ScratchSpec
from gangline.ports.server import Server

HOSTILE = ("a\x00b", "a\x07b", "a\x1b[31mb", "a\x9b2Jb", "a\u202eb", "a\u2066b", "a\u2028b", "a\nb", "x" * 10**5)
AS_THEY_ARE = {
    "Failed.because": "a failure must be recorded, whatever its words: the service escapes them",
    "Notice.because": "a notice must be heeded, whatever the words: the service escapes them",
    "Reject.because": "a damaged checkpoint must be recorded, whatever the words: the service escapes them",
    "Join.problems": "a failed probe must be recorded, whatever its words: the service escapes them",
    "Join.measured": "what a probe measured, escaped as its problems are",
    "Log.text": "bytes of a trainer: whoever shows them lets colours through alone",
    "Commit.manifest": "core.runs.contract.parse_manifest reads it: paths, numbers, and a fingerprint that is compared alone",
    "Keep.manifest": "core.runs.contract.parse_prepared reads it: paths, numbers, and a key that must be the job's",
    "Downloads.keys": "compared with the keys of the assignment alone",
    "Submission.spec": "parsed as one of the specs, whose fields stand in this table too",
    "Question.spec": "the same",
    "WantedClone.changes": "settings of a spec, which is parsed with them",
    "NewExperiment.spec": "the same",
    "DataRef.where": "a condition may have several lines; it has no other control characters",
    "TrainingPhase.where": "a condition may have several lines; it has no other control characters",
    "ScratchSpec.held_out": "a condition, too",
    "WantedBase.name": "core.models.bases.is_base_name refuses all but letters, digits, dots and hyphens, with a hint",
    "WantedProject.project": "core.access.is_project_name refuses all but letters, digits and hyphens, with a hint",
}


def requests() -> list[type]:
    asked = [
        hint
        for name, method in vars(Server).items()
        if not name.startswith("_")
        for hint in (
            get_type_hints(method, include_extras=True)[each] for each in signature(method).parameters if each != "self"
        )
    ]
    modules = [
        import_module(each.name)
        for each in pkgutil.walk_packages(gangline.api.__path__, "gangline.api.")
        if not each.ispkg
    ]
    ours = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and getattr(value, "__module__", "") == module.__name__
    ]
    bodies = [each for each in ours if each.__module__.endswith("routes") and not each.__name__.startswith("_")]
    return [*asked, *bodies, LoraSpec, ScratchSpec]


def texts(hint: Any, place: str, known: set[Any]) -> Iterator[tuple[str, Any]]:
    """Each field for text that a value of this type holds, by `Class.field`, with its type."""
    origin, bare = get_origin(hint), get_args(hint)[0] if get_origin(hint) is Annotated else hint
    if bare is str:
        yield place, hint
    elif origin is Annotated:
        yield from texts(bare, place, known)
    elif dataclasses.is_dataclass(hint):
        if hint not in known:
            known.add(hint)
            hints = get_type_hints(hint, include_extras=True)
            for field in dataclasses.fields(hint):
                yield from texts(hints[field.name], f"{hint.__name__}.{field.name}", known)
    else:
        for part in get_args(hint):
            if not isinstance(part, str):
                yield from texts(part, place, known)


FIELDS = [found for known in [set[Any]()] for each in requests() for found in texts(each, "", known)]


def is_path(hint: Any) -> bool:
    """A file keeps its name: it has no control characters, and every output escapes the rest."""
    return any(isinstance(each, Predicate) and each.func is is_safe_path for each in getattr(hint, "__metadata__", ()))


def takes(hint: Any, text: str) -> bool:
    try:
        TypeAdapter(hint).validate_python(text)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("place", "hint"), FIELDS, ids=[place for place, _ in FIELDS])
def test_every_field_for_text_refuses_what_would_steer_a_terminal(place: str, hint: Any) -> None:
    if place not in AS_THEY_ARE and not is_path(hint):
        assert [text[:20] for text in HOSTILE if takes(hint, text)] == []


def test_the_fields_that_take_any_text_are_there() -> None:
    assert set(AS_THEY_ARE) <= {place for place, _ in FIELDS}


def test_a_condition_has_lines_and_nothing_else() -> None:
    for place, hint in FIELDS:
        if place in ("DataRef.where", "TrainingPhase.where", "ScratchSpec.held_out"):
            assert takes(hint, "width > 256\n\tand height > 256")
            assert [text[:20] for text in HOSTILE if takes(hint, text)] == ["a\nb"]
