"""Keys that were released stay: what runs and what lies on nodes is found by them."""

import json
from dataclasses import fields

import pytest

from gangline.core.specs.phases import TrainingPhase
from gangline.core.specs.sections.previews import SamplePrompt
from gangline.core.specs.sections.subjects import SubjectEntry
from tests.unit.specs.specs_of_every_setting import (
    LORA,
    OF_A_PHASE,
    OF_A_PROMPT,
    OF_A_SUBJECT,
    RECORDED,
    STARTS,
    UNET,
    cases,
    keys_of,
    texts_of,
    unchanged,
)

WRITTEN = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("spec", [LORA, UNET], ids=["lora", "scratch"])
def test_a_case_changes_each_setting(spec: object) -> None:
    assert unchanged(spec) == set()  # type: ignore[arg-type]
    assert {field.name for field in fields(TrainingPhase)} == set(OF_A_PHASE)
    assert {field.name for field in fields(SamplePrompt)} == set(OF_A_PROMPT)
    assert {field.name for field in fields(SubjectEntry)} == set(OF_A_SUBJECT)


def test_every_key_of_every_spec_is_as_it_was_recorded() -> None:
    assert {name: keys_of(spec) for name, spec in cases()} == WRITTEN["keys"]


def test_specs_are_stored_and_told_as_they_were_recorded() -> None:
    assert {name: texts_of(spec) for name, spec in STARTS.items()} == WRITTEN["texts"]


def test_specs_have_the_settings_that_were_recorded() -> None:
    found = {spec.kind: sorted(field.name for field in fields(spec)) for spec in (LORA, UNET)}
    assert found == WRITTEN["settings"]
