"""benchmarks/card.py: what shall run in a card's first minutes runs before there is one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PARTS = ("exact", "step", "graph", "encode", "scratch", "compiled", "render", "profile", "quantised")
ON_A_CARD_ALONE = ("graph", "compiled")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_every_part_ends_without_a_card_and_what_has_ended_is_not_run_again(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "card.py"), "--tiny", "--results", str(tmp_path)]
    subprocess.run(command, check=True, timeout=1000)
    assert {path.stem for path in tmp_path.glob("*.done")} == set(PARTS)
    found = {
        path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.glob("*.jsonl")
    }
    assert set(found) == set(PARTS) - set(ON_A_CARD_ALONE)
    assert all(row["equal bits"] for row in found["exact"])
    again = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True)
    assert all(f"== {part}" in again.stdout for part in PARTS)
