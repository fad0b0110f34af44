"""Pages for contributors name what is there, link to each other, and are found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.pages import FOLDER, PAGES, blocks, named_paths

INDEX = FOLDER / "index.md"
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    paths = list(named_paths(page.read_text()))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_index_links_to_every_page_and_contributing_to_the_index() -> None:
    assert {page.name for page in PAGES} - set(LINK.findall(INDEX.read_text())) == {"index.md"}
    assert "docs/contributing/index.md" in LINK.findall((ROOT / "CONTRIBUTING.md").read_text())


def test_the_map_has_a_place_and_a_test_for_each_change() -> None:
    rows = re.findall(r"^\| (.+?) \| (`.+?) \| (.*?)\|$", INDEX.read_text(), re.MULTILINE)
    assert len(rows) >= 30
    assert [
        wish
        for wish, place, test in rows
        if not (list(named_paths(place)) and ("benchmarks" in place or "tests/" in test))
    ] == []


def test_every_word_of_the_glossary_has_one_line_and_stands_where_it_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Glossary\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+) \| (.+) \| `(.+)` \|$", text, re.MULTILINE)
    assert len(rows) == text.count("\n| ") - 1 >= 30
    assert len({word for word, _, _ in rows}) == len(rows)
    places = {word: ROOT / "src" / "gangline" / place for word, _, place in rows}
    assert [word for word, place in places.items() if not place.is_file()] == []
    assert [word for word, place in places.items() if word.split()[0] not in place.read_text().lower()] == []


def test_a_path_that_is_not_there_is_noticed_and_a_placeholder_is_not() -> None:
    text = "`src/gangline/nowhere.py` and `src/gangline/adapters/NAME.py`\n```sh\ncat `src/a.py`\n```\n`Makefile`"
    assert list(named_paths(text)) == ["src/gangline/nowhere.py", "Makefile"]


def test_the_examples_are_written_as_the_code_is(tmp_path: Path) -> None:
    """By the linter and the formatter of the project."""
    for page in PAGES:
        for module in blocks(page.stem, "python")[:1]:
            (tmp_path / f"{page.stem.replace('-', '_')}.py").write_text(module)
    for words in (("check",), ("format", "--diff")):
        program = (sys.executable, "-m", "ruff", *words, "--no-cache", "--config", ROOT / "pyproject.toml", tmp_path)
        ran = subprocess.run(program, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
