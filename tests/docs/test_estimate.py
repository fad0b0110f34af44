"""docs/estimate.md: what stands below a command is what the command prints, and what it lists is all that there is."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.core.gpus import NAMES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "estimate.md").read_text()
EXAMPLES = re.findall(r"```sh\n(gangline estimate [^`]+)\n```\n\n```\n([^`]+)\n```", PAGE)


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_a_command_prints_what_stands_below_it(command: str, shown: str) -> None:
    words = shlex.split(command.replace("\\\n", " "))[1:]
    program = [sys.executable, "-m", "gangline.cli.main", *words]
    printed = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_the_page_has_examples_the_outline_that_it_shows_and_every_kind_of_gpu() -> None:
    assert len(EXAMPLES) == 7
    assert (ROOT / "examples" / "estimates" / "sd2_unet.toml").read_text().rstrip() in PAGE
    words = " ".join(PAGE.split())
    assert all(name in words for name in NAMES)
