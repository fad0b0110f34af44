"""benchmarks/card.py: what shall run in a card's first minutes runs before there is one, with nothing but what training needs."""

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from benchmarks.on_card import wheels
from benchmarks.on_card.parts import parts

from tests.inputs import ROOT

PARTS = ("exact", "step", "scratch", "render", "encode", "profile", "quantised")
BARE = '''
"""As on a machine that has what card.py lists, and nothing else. That libraries look around which others there are is no matter."""
import sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if name.partition(".")[0] in {lacking!r} and frame and is_ours(frame.f_code.co_filename):
            raise ModuleNotFoundError(name)

def is_ours(file):
    return file.startswith({root!r}) and not file.startswith({libraries!r})

sys.meta_path.insert(0, Lacking())
'''


def bare_machine(folder: Path) -> dict[str, str]:
    """An environment in which our files can import only the packages of wheels.json, and torch."""
    known = {*wheels.table("3.11"), wheels.BY_ITSELF, "gangline"}
    found = importlib.metadata.packages_distributions().items()
    lacking = {module for module, of in found if not {wheels.canonical(name) for name in of} & known}
    assert {"pytest", "hypothesis", "lance", "fastapi"} <= lacking
    libraries = sysconfig.get_path("purelib")  # in a checkout's own virtual environment this is below its root
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BARE.format(lacking=lacking, root=str(ROOT), libraries=libraries))
    return os.environ | {"PYTHONPATH": str(folder)}


@pytest.mark.nightly
@pytest.mark.timeout(2400)
def test_every_part_ends_without_a_card_and_what_has_ended_is_not_run_again(tmp_path: Path) -> None:
    environment = bare_machine(tmp_path / "bare")
    command = [sys.executable, str(ROOT / "benchmarks" / "card.py"), "--tiny", "--results", str(tmp_path / "results")]
    command += ["--work", str(tmp_path / "work"), "--part-s", "900"]
    subprocess.run(command, check=True, timeout=2000, env=environment)
    lines = [json.loads(line) for line in (tmp_path / "results" / "card.jsonl").read_text().splitlines() if line]
    assert [line for line in lines if line["because"]] == []
    assert list(dict.fromkeys(line["part"] for line in lines)) == list(PARTS)
    equal = [row["equal bits"] for line in lines for row in line["rows"] if "equal bits" in row]
    assert equal
    assert all(equal)
    assert list((tmp_path / "work" / "tiny" / "runs").iterdir()) == []
    again = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True, env=environment)
    assert len((tmp_path / "results" / "card.jsonl").read_text().splitlines()) == len(lines) + 1
    assert all(f"## {part}" in again.stdout for part in parts([], 1))
    assert "not run" not in again.stdout
    assert again.stdout.endswith((tmp_path / "results" / "card.md").read_text())
