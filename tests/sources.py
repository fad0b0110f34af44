"""The source of the package as syntax trees, for tests of what stands where. Each file is parsed once a process."""

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeVar

from tests.conftest import ROOT

SOURCE = ROOT / "src" / "gangline"
Node = TypeVar("Node", bound=ast.AST)


@cache
def tree(path: str) -> ast.Module:
    """Return the syntax tree of a file, given as its path below the package, such as `service/attempts.py`."""
    return ast.parse((SOURCE / path).read_text())


@cache
def nodes(path: str) -> tuple[ast.AST, ...]:
    """Return every node of the tree of a file, the module itself first."""
    return tuple(ast.walk(tree(path)))


@cache
def paths() -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")))


def found(kind: type[Node], below: tuple[str, ...] = ("",), but: str = "") -> Iterator[tuple[str, Node]]:
    """Where nodes of a kind stand: in files `below` some folders, all `but` one."""
    for path in paths():
        if path.startswith(below) and path != but:
            yield from ((path, node) for node in nodes(path) if isinstance(node, kind))
