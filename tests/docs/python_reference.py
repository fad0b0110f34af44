"""docs/reference/python.md, made of signatures and docstrings: `python -m tests.docs.python_reference` writes it again."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import gangline
from gangline import types
from gangline.wire.client.calls import Calls
from gangline.wire.client.client import ApiClient
from gangline.wire.released import CALLED, RELEASED
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "reference" / "python.md"
HEAD = """# Python: every name

Made of the code by `python -m tests.docs.python_reference`. [python.md](../python.md) shows how to use it. `AsyncClient` has the same
nouns and methods: calls are awaited, and iterators are asynchronous.
"""


def reference() -> str:
    """Return the text of the page."""
    return "\n".join((HEAD, *_client(), *_nouns(), *_functions(), *_specs(), *_errors(), *_types(), *_released()))


def nouns() -> dict[str, type]:
    """Return the classes of the client's attributes, by their names."""
    with ApiClient("http://127.0.0.1:9", "") as client:
        return {name: type(value) for name, value in vars(client).items() if isinstance(value, Calls)}


def _client() -> Iterator[str]:
    yield f"## Client, AsyncClient\n\n```text\n{_signature(gangline.Client.__init__, 'Client')}\n```\n\n{_doc(gangline.Client)}\n"
    yield from _methods(ApiClient, "client", ("close",))


def _nouns() -> Iterator[str]:
    for noun, of in sorted(nouns().items()):
        yield f"## client.{noun}\n\n{_doc(of)}\n"
        yield from _methods(of, f"client.{noun}", sorted(name for name in vars(of) if name[0] != "_"))


def _methods(of: type, prefix: str, names: Any) -> Iterator[str]:
    for name in names:
        method = getattr(of, name)
        yield f"### {prefix}.{name}\n\n```text\n{_signature(method, name)}\n```\n\n{_doc(method)}\n"


def _functions() -> Iterator[str]:
    yield f"## train_lora\n\n```text\n{_signature(gangline.train_lora, 'train_lora')}\n```\n\n{_doc(gangline.train_lora)}\n"


def _specs() -> Iterator[str]:
    yield "## Specs\n"
    for name in gangline.__all__:
        if name.endswith(("Spec", "Base")):
            yield f"- `{name}`: {_first(getattr(gangline, name))}"
    yield "\n[training.md](../training.md#every-setting), [scratch.md](../scratch.md) and [run.md](../run.md) list their settings.\n"


def _errors() -> Iterator[str]:
    found = [getattr(gangline, name) for name in gangline.__all__ if name[0].isupper()]
    errors = [each for each in found if issubclass(each, gangline.GanglineError)]
    yield "## Errors\n\n```text"
    yield from _tree(gangline.GanglineError, errors, "")
    yield "```\n"


def _tree(of: type, among: list[Any], indent: str) -> Iterator[str]:
    yield indent + of.__name__
    for each in among:
        if each is not of and each.__bases__[0] is of:
            yield from _tree(each, among, f"{indent}    ")


def _types() -> Iterator[str]:
    yield "## gangline.types\n\nTimes are milliseconds UTC, money is US dollars.\n"
    for name in types.__all__:
        of = getattr(types, name)
        assert is_dataclass(of), name
        yield f"### {name}\n\n{_doc(of)}\n" if _own_doc(of) else f"### {name}\n"
        yield "```text"
        yield from (f"{each.name}: {_annotation(of, each.name)}" for each in fields(of))
        yield from (
            f"{each}: {_annotation_of_property(value)}"
            for each, value in vars(of).items()
            if isinstance(value, property)
        )
        yield "```\n"


def _released() -> Iterator[str]:
    yield "## Released names\n\n`Client` has these names of older versions, with a `DeprecationWarning`; `AsyncClient` has not.\n"
    yield "| older | now |\n|---|---|"
    older = {f"{now.partition('.')[0]}()": now for now in CALLED.values()} | dict(RELEASED)
    yield from (f"| `client.{name}` | `client.{now}` |" for name, now in sorted(older.items()))
    yield ""


def _signature(function: Any, name: str) -> str:
    """Return the signature as it is written, without `self`."""
    found = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function))).body[0]
    assert isinstance(found, ast.FunctionDef)
    found.args.args = [each for each in found.args.args if each.arg != "self"]
    result = f" -> {ast.unparse(found.returns)}" if found.returns and not name[0].isupper() else ""
    written = f"{name}({ast.unparse(found.args)}){result}".replace("'", '"')
    return re.sub(r'(?<=[\w\]"])=(?=[\w"(.-])', " = ", written)


def _annotation(of: type, name: str) -> str:
    """Return a field's type without what only the OpenAPI document needs."""
    for each in of.__mro__:
        text = inspect.get_annotations(each).get(name)
        if text is not None:
            return text if isinstance(text, str) else _type_name(text)
    raise AssertionError(name)


def _annotation_of_property(of: property) -> str:
    return _type_name(inspect.get_annotations(of.fget)["return"])  # type: ignore[arg-type]


def _type_name(kind: Any) -> str:
    if hasattr(kind, "__metadata__"):
        return _type_name(kind.__origin__)
    if any(hasattr(part, "__metadata__") for part in get_args(kind)) and type(None) in get_args(kind):
        return " | ".join(_type_name(part) for part in get_args(kind))
    if kind is type(None):
        return "None"
    return kind.__name__ if isinstance(kind, type) and not hasattr(kind, "__args__") else _short(str(kind))


def _short(text: str) -> str:
    words = text.replace("typing.", "").replace("NoneType", "None")
    return " ".join(
        word.rpartition("gangline.")[0] + word.rpartition(".")[2] if "gangline." in word else word
        for word in words.split()
    )


def _own_doc(of: Any) -> bool:
    return bool(of.__doc__) and not of.__doc__.startswith(f"{of.__name__}(")


def _doc(of: Any) -> str:
    text = inspect.getdoc(of) or ""
    assert text, of
    return text


def _first(of: Any) -> str:
    return _doc(of).partition("\n\n")[0].replace("\n", " ")


def write(page: Path = PAGE) -> None:
    page.write_text(reference())


if __name__ == "__main__":
    write()
