"""Find words that this project's texts do not use: `python -m tests.docs.words` names each place and what to write instead.

words.txt has the list. Code, quotations in backticks and generated tables are left out: they follow the names of the code."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.tables_of_settings import PAGES
from tests.sources import SOURCE, nodes, paths

WORDS = Path(__file__).with_name("words.txt")
PAGES_OF = (ROOT / "docs", ROOT / "docs" / "decisions", ROOT / "docs" / "contributing")
TEXTS = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *(page for folder in PAGES_OF for page in sorted(folder.glob("*.md"))),
)
SHOWN = ("help", "short_help", "hint")
"""Arguments that hold a text for users."""


def read_words(text: str) -> dict[str, str]:
    """Return what to write instead, by the word."""
    lines = (line.partition(": ") for line in text.splitlines() if line and not line.startswith("#"))
    return {word: instead for words, _, instead in lines for word in words.split(", ")}


def found_in(prose: str, words: dict[str, str]) -> Iterator[str]:
    """Yield each word that stands in the text and should not, with the words to use instead."""
    without_code = re.sub(r"^ *```.*?^ *```|`[^`]+`", "", prose, flags=re.MULTILINE | re.DOTALL)
    any_word = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    for match in re.finditer(rf"\b(?:{any_word})\b", " ".join(without_code.split()), re.IGNORECASE):
        yield f"“{match[0]}”: write {words[match[0].lower()]}"


def prose_of(page: Path) -> str:
    """Return the text of a page without the tables that are generated from the code."""
    text = page.read_text()
    return text.replace(PAGES[page](), "") if page in PAGES else text


def texts_of(module: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the docstrings of a module and the texts that its commands show."""
    for node in module:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.keyword) and node.arg in SHOWN:
            parts = (part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
            yield " ".join(part for part in parts if isinstance(part, str))


def unused_words() -> list[str]:
    """Return every place where a text has a word that this project does not use."""
    words = read_words(WORDS.read_text())
    found = [(page, word) for page in TEXTS for word in found_in(prose_of(page), words)]
    found += [
        (SOURCE / path, word) for path in paths() for text in texts_of(nodes(path)) for word in found_in(text, words)
    ]
    return [f"{path.relative_to(ROOT)}: {word}" for path, word in found]


if __name__ == "__main__":
    places = unused_words()
    print("\n".join(places))
    sys.exit(bool(places))
