"""Diagrams of states on docs/contributing/states.md, as the core declares them: `python -m tests.docs.diagrams_of_states` writes them
again."""

import re
from collections.abc import Mapping

from gangline.core.job import ATTEMPT_MOVES, JOB_MOVES, NODE_MOVES
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "contributing" / "states.md"
MOVES: Mapping[str, Mapping[tuple[str, str], str]] = {"Jobs": JOB_MOVES, "Attempts": ATTEMPT_MOVES, "Nodes": NODE_MOVES}


def diagram(moves: Mapping[tuple[str, str], str]) -> str:
    """Return a state diagram in Mermaid; states that nothing leaves lead to its end."""
    left = {before for before, _ in moves}
    last = [after for after in dict.fromkeys(after for _, after in moves) if after not in left]
    arrows = [
        f"    {'[*]' if before == 'new' else before} --> {after}: {why}" for (before, after), why in moves.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, *(f"    {state} --> [*]" for state in last), "```"])


def with_diagrams(page: str) -> str:
    """Return the page with these diagrams in place of the first one below each of their headings."""
    for heading, moves in MOVES.items():
        below = re.compile(rf"(^## {heading}$.*?\n)```mermaid\n.*?```", re.MULTILINE | re.DOTALL)
        page, count = below.subn(lambda found, moves=moves: found[1] + diagram(moves), page, count=1)
        assert count == 1, f"the page has no diagram below {heading}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_diagrams(PAGE.read_text()))
