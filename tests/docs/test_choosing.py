"""docs/choosing.md has the values of the presets, and a picture for each of its sheets."""

import re

import pytest
from benchmarks.choosing import SHEETS

from gangline.adapters.package import bundled_presets
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "choosing.md").read_text()
KINDS = ("face", "object", "style")


def test_the_table_for_sdxl_has_the_values_of_the_presets() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (\S+) \| (\S+) \| .+ \|$", PAGE, re.MULTILINE)
    known = {kind: bundled_presets()[kind].settings for kind in KINDS}
    assert {name for name, *_ in rows} == {name for of in known.values() for name in of} - {"alpha"}
    for name, *values in rows:
        shown = [str(known[kind].get(name, "–")).replace("True", "true").replace("False", "false") for kind in KINDS]
        assert values == shown, name


@pytest.mark.parametrize("name", SHEETS)
def test_every_sheet_is_shown_with_a_row_for_each_of_its_columns(name: str) -> None:
    assert f"(choosing/{name}.webp)" in PAGE and (ROOT / "docs" / "choosing" / f"{name}.webp").is_file()
    section = PAGE.partition(f"(choosing/{name}.webp)")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| \d\.\d{3} \| \d\.\d{3} \|", section, re.MULTILINE)
    assert rows == [re.sub(r" steps$", "", column) for column in SHEETS[name]]
