"""Pages of docs/contributing as their tests read them: their blocks of code, and the paths that they name."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "contributing"
PAGES = sorted(FOLDER.glob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:src|tests|docs|benchmarks|recipes|examples)/[^`\s]*)`|`([A-Z]+\.md|pyproject\.toml|Makefile)`")
PLACEHOLDER = re.compile(r"\bNAME\b")


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of code in this language, in their order."""
    text = (FOLDER / f"{page}.md").read_text()
    return [code for found, code in FENCE.findall(text) if found == language]


def make_module(page: str, folder: Path) -> ModuleType:
    """Import the first block of Python of a page, which is a whole module, from a file in `folder`."""
    name = f"worked_{page.replace('-', '_')}"
    path = folder / f"{name}.py"
    path.write_text(blocks(page, "python")[0])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def named_paths(text: str) -> Iterator[str]:
    """Yield the files and folders that a page names as being there."""
    for found in PATH.findall(FENCE.sub("", text)):
        path = found[0] or found[1]
        if not PLACEHOLDER.search(path):
            yield path
