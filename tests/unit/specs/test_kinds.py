"""A kind of job is declared once, and whole."""

import re
import tomllib
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import get_args, get_type_hints

import pytest
import typer
from pydantic import TypeAdapter

from gangline.adapters.host.trainer.process import MODULES
from gangline.cli.main import app
from gangline.core.canonical import digest
from gangline.core.parsing import InvalidSpec, to_json
from gangline.core.specs.kinds import DEFAULT_KIND, KINDS, LIBRARIES, SUBMITTED, JobKind
from gangline.core.specs.spec import SampleSpec, Spec, parse_spec, parse_task, spec_hash, workload
from gangline.core.views import JobSummary
from tests.conftest import ROOT
from tests.unit.specs.specs_of_every_setting import CAPTION, COMMAND, LORA, UNET

PICTURES = SampleSpec(of=LORA, job="job-1", checkpoint=None, step=100)
SPECS: dict[str, Spec | SampleSpec] = {spec.kind: spec for spec in (LORA, UNET, COMMAND, CAPTION, PICTURES)}
SQL = "".join(path.read_text() for path in sorted((ROOT / "src/gangline/adapters/store").rglob("*.sql")))


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def kind(request: pytest.FixtureRequest) -> JobKind:
    return request.param


def test_the_kinds_are_those_of_the_specs() -> None:
    assert set(KINDS) == set(SPECS)
    assert all(name == kind.name for name, kind in KINDS.items())


def test_a_kind_reads_its_own_spec_which_says_its_name(kind: JobKind) -> None:
    assert get_args(get_type_hints(kind.spec)["kind"]) == (kind.name,)
    spec = SPECS[kind.name]
    assert type(spec) is kind.spec
    assert kind.parse(to_json(spec)) == parse_task(to_json(spec)) == spec


def test_a_kind_has_keys_of_its_own(kind: JobKind) -> None:
    spec = SPECS[kind.name]
    others = [other for other in SPECS.values() if other != spec]
    assert kind.hash(spec) not in [KINDS[other.kind].hash(other) for other in others]
    assert kind.workload(spec) not in [KINDS[other.kind].workload(other) for other in others]


def test_a_kind_has_a_program_that_nodes_start(kind: JobKind) -> None:
    assert MODULES.get(kind.name) == (kind.program if kind.ours else None), (
        "what is not ours is in no process that has loaded more"
    )
    assert find_spec(kind.program) and find_spec(kind.loads)


def test_the_libraries_of_an_extra_are_those_that_it_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, libraries in LIBRARIES.items():
        installed = {re.split(r"[<>=!]", requirement)[0] for requirement in extras[extra]}
        assert {"pylance" if library == "lance" else library for library in libraries} == installed


def test_a_kind_that_users_submit_has_a_command_and_the_others_are_refused(kind: JobKind) -> None:
    if kind.command:
        assert parse_spec(to_json(SPECS[kind.name])) == SPECS[kind.name]
        gangline, name, *_ = kind.command.split()
        assert gangline == "gangline" and name in typer.main.get_command(app).commands  # type: ignore[attr-defined]
    else:
        with pytest.raises(InvalidSpec, match="kind"):
            parse_spec(to_json(SPECS[kind.name]))


def test_pictures_have_the_keys_that_were_released() -> None:
    of_a_step = replace(PICTURES, checkpoint="checkpoint-1")
    assert spec_hash(PICTURES) == digest(["job-1", "pictures"])
    assert spec_hash(of_a_step) == digest(["checkpoint-1", "pictures"])
    assert workload(PICTURES) == workload(of_a_step) == f"pictures of {workload(LORA)}"


def test_a_spec_without_a_kind_is_one_of_the_first_release() -> None:
    assert KINDS[DEFAULT_KIND] in SUBMITTED
    assert parse_spec({name: value for name, value in to_json(LORA).items() if name != "kind"}) == LORA


def test_pictures_are_of_another_jobs_weights_and_stand_behind_what_trains(kind: JobKind) -> None:
    assert kind.renders == ("weights" in kind.needs) == (kind.queue == "pictures") == hasattr(SPECS[kind.name], "of")


def test_the_statements_tell_pictures_from_training_as_the_kinds_do() -> None:
    of_jobs = "\n".join(
        line for line in SQL.splitlines() if "FROM attempt WHERE" not in line
    )  # whose kinds are of failures
    named = set(re.findall(r"(?<!attempt\.)\bkind (?:=|<>) '(\w+)'", of_jobs))
    assert named == {kind.name for kind in KINDS.values() if kind.queue == "pictures"}


def test_the_api_lists_the_kinds_and_a_client_goes_on_with_one_that_it_does_not_know() -> None:
    schema = TypeAdapter(JobSummary).json_schema()
    assert schema["properties"]["kind"]["enum"] == list(KINDS)
    values = {field.name: 0 for field in fields(JobSummary)} | {
        "state": "queued",
        "id": "",
        "name": "",
        "because": "",
        "cost_lacks": (),
        "owner": None,
        "labels": {},
    }
    known = TypeAdapter(JobSummary).validate_python(values | {"phase": None, "node_name": None, "kind": "video"})
    assert known.kind == "video"
