"""One name, one thing: whoever searches for a public name finds one definition."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.conftest import ROOT

PACKAGE = ROOT / "src" / "gangline"
EXEMPT = {"main": "what a module does that is run by its name"}


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the classes, functions and types that a module has for others."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name[0].isupper() and not name.isupper():  # a type: constants are read beside the module's name
                    yield name
            case _:
                pass


def found_twice(texts: Mapping[str, str]) -> dict[str, list[str]]:
    places = defaultdict[str, list[str]](list)
    for place, text in texts.items():
        for name in defined(ast.parse(text)):
            if not name.startswith("_") and name not in EXEMPT:
                places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_public_name_stands_for_one_thing() -> None:
    texts = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    assert found_twice(texts) == {}


def test_a_class_a_function_or_a_type_of_another_module_is_noticed() -> None:
    texts = {
        "a.py": "class Plan: ...\ndef read(): ...\nRow = int\nLIMIT = 1",
        "b.py": "Plan = str\nasync def read(): ...",
    }
    assert found_twice(texts) == {"Plan": ["a.py", "b.py"], "read": ["a.py", "b.py"]}
    assert found_twice(texts | {"c.py": "Row: type = str\nLIMIT = 2\ndef _read(): ..."})["Row"] == ["a.py", "c.py"]
    assert found_twice(dict.fromkeys(("a.py", "b.py"), "def main(): ...")) == {}
