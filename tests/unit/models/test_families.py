"""A family is declared once: in the registry, whole, and nowhere else."""

import ast
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from gangline.api.base_routes import WantedBase
from gangline.core.models.families import (
    FAMILIES,
    Family,
    FamilyName,
    Prediction,
    TextEncoder,
    Variant,
    family_of_width,
)
from gangline.data.columns import LatentsColumn
from tests.conftest import ROOT
from tests.sources import found

REGISTRY = "core/models/families.py"


def test_every_name_has_one_family() -> None:
    assert set(FAMILIES) == set(get_args(FamilyName))
    assert all(family.name == name for name, family in FAMILIES.items())


def test_no_other_module_spells_the_name_of_a_family() -> None:
    """So no other module can hold a list or a table of them, either."""
    names = {*FAMILIES, *(family.pipeline for family in FAMILIES.values())}
    spelled = {
        f"{path}:{node.lineno} {node.value}"
        for path, node in found(ast.Constant, but=REGISTRY)
        if isinstance(node.value, str) and node.value in names
    }
    assert not spelled


@pytest.mark.parametrize("of", [Family, TextEncoder, Variant])
def test_every_fact_of_a_family_is_used(of: type) -> None:
    read = {node.attr for _, node in found(ast.Attribute, but=REGISTRY)}
    assert {field.name for field in fields(of)} <= read


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_a_family_is_whole(family: Family) -> None:
    values = [getattr(family, field.name) for field in fields(family)]
    assert all(value or value is None or isinstance(value, bool) for value in values)
    assert [each.prediction for each in family.variants] == list(get_args(Prediction))
    assert all(family.variant(prediction).prediction == prediction for prediction in get_args(Prediction))
    assert family.published
    assert len(set(family.text_parts)) == len(family.text_encoders)
    assert all(encoder.prefixes and all(encoder.prefixes) for encoder in family.text_encoders)
    assert any(encoder.is_pooled for encoder in family.text_encoders) == family.has_sizes


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_the_guide_says_how_large_text_embeddings_are_beside_latents(family: Family) -> None:
    shape = family.text_encoders[-1].shape
    embeddings = shape.tokens * family.text_width + shape.projection
    latents = LatentsColumn(
        vae="",
        scale=family.latent_scale,
        shift=0.0,
        channels=family.unet.latent_channels,
        side=512 // 8,
        resolution=512,
        crop="center",
        precision="float16",
    )
    guide = " ".join((ROOT / "docs" / "data.md").read_text().split())
    assert f"{embeddings / latents.numbers:.1f} times as large for {family.words}" in guide


def test_no_two_families_look_the_same() -> None:
    """A file is told by its last text encoder and size conditioning, a LoRA and a folder by the width of the text."""
    marks = [(prefix, family.has_sizes) for family in FAMILIES.values() for prefix in family.text_encoders[-1].prefixes]
    assert len(set(marks)) == len(marks)
    assert all(family_of_width(family.text_width) is family for family in FAMILIES.values())


def test_the_api_takes_the_names_of_the_registry_and_no_others() -> None:
    hints = get_type_hints(WantedBase)
    assert get_args(hints["family"]) == ("", *get_args(FamilyName))
    assert get_args(hints["prediction_type"]) == ("", *get_args(Prediction))
