"""What recipes ask of a data set is what a conversion makes."""

import tomllib
from pathlib import Path

import pytest

from gangline.data.where import check_condition
from tests.conftest import ROOT
from tests.data import made
from tests.data.made import converted, samples


@pytest.mark.parametrize("name", ["sd2_base", "sdxl_scratch"])
def test_recipes_ask_for_columns_that_a_conversion_of_laion_makes(name: str, tmp_path: Path) -> None:
    recipe = tomllib.loads((ROOT / "recipes" / f"{name}.toml").read_text())
    given = samples(2)
    with made.web() as web:
        urls = [web.has(f"/{one.name}.jpg", one.image) for one in given]
        data, _ = converted(made.as_laion(tmp_path / "source", urls, given), tmp_path / "made.lance")
    wheres = [each["where"] for each in (*recipe["data"], *recipe["phases"]) if "where" in each]
    assert len(wheres) >= 2
    for where in (*wheres, recipe["held_out"]):
        check_condition(where, data.table.schema)
