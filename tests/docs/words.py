"""Find words that this project's texts do not use: `python -m tests.docs.words` names each place and what to write instead.

words.txt has the list. Code, quotations in backticks and generated tables are left out: they follow the names of the code."""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.tables_of_settings import PAGES

WORDS = Path(__file__).with_name("words.txt")
PAGES_OF = ("*.md", "docs/**/*.md", "examples/**/*.md", "recipes/*.toml")
CODE_OF = ("src/**/*.py", "examples/**/*.py")
QUERIES = "src/gangline/adapters/store/queries/*.sql"


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


def texts_of(code: Path) -> Iterator[str]:
    """Yield every text of a Python file: docstrings, messages, help texts and comments."""
    yield from (
        node.value
        for node in ast.walk(ast.parse(code.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    with tokenize.open(code) as lines:
        yield from (
            token.string for token in tokenize.generate_tokens(lines.readline) if token.type == tokenize.COMMENT
        )


def comments_of(query: Path) -> str:
    """Return the comments of an SQL file."""
    return "\n".join(re.findall(r"--.*", query.read_text()))


def unused_words() -> list[str]:
    """Return every place where a text has a word that this project does not use."""
    words = read_words(WORDS.read_text())
    texts = [(page, prose_of(page)) for pattern in PAGES_OF for page in sorted(ROOT.glob(pattern))]
    texts += [(code, text) for pattern in CODE_OF for code in sorted(ROOT.glob(pattern)) for text in texts_of(code)]
    texts += [(query, comments_of(query)) for query in sorted(ROOT.glob(QUERIES))]
    return [f"{path.relative_to(ROOT)}: {word}" for path, text in texts for word in found_in(text, words)]


if __name__ == "__main__":
    places = unused_words()
    print("\n".join(places))
    sys.exit(bool(places))
