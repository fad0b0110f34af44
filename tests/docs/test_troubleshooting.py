"""docs/troubleshooting.md quotes what the program says, so that a user who searches for it finds it."""

import ast
import re
from collections.abc import Iterable, Iterator

from tests.conftest import ROOT
from tests.sources import nodes, paths

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.compile(r"`([^`]+)`")
SAID = ("it says", "why")
"""The heads of columns that hold what the program says."""


def quoted() -> Iterator[str]:
    """Yield each piece of a quotation, between what differs."""
    said = False
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            said = False
            continue
        first = line.split(" | ")[0].strip("| ")
        if first in SAID:
            said = True
        elif said:
            for phrase in QUOTED.findall(first):
                yield from (piece.strip() for piece in phrase.split("…") if piece.strip(" :"))


def texts(module: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the texts of a program, an f-string as one, with `…` for what is put in."""
    for node in module:
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_what_the_page_quotes_is_what_the_program_says() -> None:
    pieces = list(quoted())
    assert len(pieces) > 30
    said = "\n".join(text for path in paths() for text in texts(nodes(path)))
    assert [piece for piece in pieces if piece not in said] == []
