"""One name, one thing: whoever searches for a public name finds one definition."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.sources import paths, tree

EXEMPT = {"main": "what a module does that is run by its name"}


def defined(module: ast.Module) -> Iterator[str]:
    """Yield the classes, functions and types that a module has for others."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if name[0].isupper() and not name.isupper():  # a type: constants are read beside the module's name
                    yield name
            case _:
                pass


def found_twice(modules: Mapping[str, ast.Module]) -> dict[str, list[str]]:
    places = defaultdict[str, list[str]](list)
    for place, module in modules.items():
        for name in defined(module):
            if not name.startswith("_") and name not in EXEMPT:
                places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_public_name_stands_for_one_thing() -> None:
    assert found_twice({path: tree(path) for path in paths()}) == {}


def test_a_class_a_function_or_a_type_of_another_module_is_noticed() -> None:
    modules = {
        "a.py": ast.parse("class Plan: ...\ndef read(): ...\nRow = int\nLIMIT = 1"),
        "b.py": ast.parse("Plan = str\nasync def read(): ..."),
    }
    assert found_twice(modules) == {"Plan": ["a.py", "b.py"], "read": ["a.py", "b.py"]}
    another = ast.parse("Row: type = str\nLIMIT = 2\ndef _read(): ...")
    assert found_twice(modules | {"c.py": another})["Row"] == ["a.py", "c.py"]
    assert found_twice(dict.fromkeys(("a.py", "b.py"), ast.parse("def main(): ..."))) == {}
