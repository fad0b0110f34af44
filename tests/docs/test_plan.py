"""The page has every field of a plan."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from gangline.cli.jobs.plan.lora import LoraDocument
from gangline.cli.jobs.plan.scratch import ScratchDocument
from gangline.core.plans.view import JobPlanView
from tests.conftest import ROOT


def names(of: Any) -> Iterator[str]:
    """Of its fields, and of all that is in them."""
    if is_dataclass(of):
        hints = get_type_hints(of)
        for field in fields(of):
            yield field.name
            yield from names(hints[field.name])
    for part in get_args(of):
        yield from names(part)


@pytest.mark.parametrize("document", [LoraDocument, ScratchDocument, JobPlanView])
def test_every_field_of_a_plan_is_on_the_page(document: type) -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    section = page.partition("## The plan\n")[2].partition("\n## ")[0].replace("`seen_…`", "")
    assert [name for name in names(document) if f"`{name}`" not in section] == []
