"""The form of a kind of job has every setting that people are asked for, with the bounds that its spec checks."""

from dataclasses import fields

import pytest

from gangline.core.parsing import InvalidSpec
from gangline.core.specs.fields import Needs
from gangline.core.specs.form import FEW, FormField, form_of_settings, offered_settings
from gangline.core.specs.kinds import KINDS, SUBMITTED
from gangline.core.specs.lora import parse_lora

TABLES = {"subjects", "continues", "data", "phases", "vae_losses"}
"""Settings that are tables of others: no field of a form."""


def all_fields(kind: str) -> dict[str, FormField]:
    form = form_of_settings(kind)
    found = [*form.few, *(field for group in form.rest for field in group.fields)]
    assert len({field.name for field in found}) == len(found), "a setting is shown once"
    return {field.name: field for field in found}


@pytest.mark.parametrize("kind", [kind.name for kind in SUBMITTED])
def test_every_setting_that_people_are_asked_for_is_a_field(kind: str) -> None:
    spec = KINDS[kind].spec
    offered = {name for settings in offered_settings(spec).values() for name in settings} - TABLES
    needs = {f"needs.{field.name}" for field in fields(Needs)} if "needs" in spec.__dataclass_fields__ else set()
    assert all_fields(kind).keys() == offered | needs


@pytest.mark.parametrize("kind", FEW)
def test_the_few_settings_come_first_in_their_order(kind: str) -> None:
    assert tuple(field.name for field in form_of_settings(kind).few) == FEW[kind]


def test_a_field_says_what_its_setting_is() -> None:
    known = all_fields("lora")
    steps, rate, side = known["steps"], known["learning_rate"], known["resolution"]
    assert (steps.type, steps.default, steps.least, steps.most, steps.required) == (
        "integer",
        500,
        1,
        10_000_000,
        False,
    )
    assert steps.says == "Train for this many optimiser steps."
    assert (rate.type, rate.least, rate.least_excluded, rate.most, rate.most_excluded) == ("number", 0, True, 10, False)
    assert (side.least, side.most, side.step, side.unit) == (16, 4096, 8, "px")
    assert known["prompt"].required and known["prompt"].length_max == 2000
    assert (known["flip"].type, known["flip"].default) == ("yes or no", False)
    assert known["crop"].choices == ("center", "random")
    assert known["sample_prompts"].several and known["sample_prompts"].type == "text"
    assert known["ema_decay"].default is None and not known["ema_decay"].required
    assert known["needs.gpu_memory_gb"].unit == "GB"


def _value(field: FormField, value: object) -> dict[str, object]:
    given = [value] if field.several else value
    name, _, inner = field.name.partition(".")
    return {name: {inner: given} if inner else given}


def _is_refused(field: FormField, value: object) -> bool:
    base = {"source": "hub", "repo": "a/b"}
    photo = {"path": "a.png", "bytes": 1, "sha256": "0" * 64}
    try:
        parse_lora({"base": base, "photos": [photo], "prompt": "sks dog"} | _value(field, value))
    except InvalidSpec as error:
        return any(problem.field.startswith(field.name) for problem in error.problems)
    return False


@pytest.mark.parametrize("name", sorted(all_fields("lora")))
def test_the_bounds_of_a_field_are_those_that_the_spec_checks(name: str) -> None:
    field = all_fields("lora")[name]
    apart = field.step if field.type == "integer" else 0.5
    if field.least is not None:
        assert _is_refused(field, field.least if field.least_excluded else field.least - apart)
    if field.most is not None:
        assert _is_refused(field, field.most if field.most_excluded else field.most + apart)
    if field.type == "choice":
        assert _is_refused(field, "no such choice")
    if field.length_max is not None and field.type == "text":
        assert _is_refused(field, "a" * (field.length_max + 1))
