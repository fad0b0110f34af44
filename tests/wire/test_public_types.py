"""The types of the Python client stay, and reach those who install it."""

import inspect
import subprocess
import sys
import tomllib
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

import gangline
from gangline import types
from gangline.core import errors
from gangline.wire.aio.client import AsyncApiClient
from gangline.wire.client.client import ApiClient
from tests.conftest import ROOT

TYPES = Path(__file__).with_name("public_types.py")


def test_a_type_checker_sees_the_types_that_users_rely_on() -> None:
    checker = Path(sys.executable).with_name("basedpyright")
    command = [checker, "--pythonpath", sys.executable, TYPES]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert found.returncode == 0, found.stdout


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "src" / "gangline" / "py.typed").exists()
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/gangline"], "all of its files, this one too"


@pytest.mark.parametrize("name", gangline.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(gangline, name)


def test_every_type_that_a_client_returns_is_exported() -> None:
    returned: set[type] = set()

    def walk(hint: object) -> None:
        for part in get_args(hint):
            walk(part)
        if isinstance(hint, type) and hint.__module__.startswith("gangline.") and hint not in returned:
            returned.add(hint)
            for field in get_type_hints(hint).values() if is_dataclass(hint) else ():
                walk(field)

    for client in (ApiClient("http://127.0.0.1:9", ""), AsyncApiClient("http://127.0.0.1:9", "")):
        for method in _methods(client).values():
            walk(get_type_hints(method).get("return"))
    assert {each.__name__ for each in returned} <= {*types.__all__}
    assert all(getattr(types, each.__name__) is each for each in returned)


def test_every_error_is_exported_and_in_the_guide() -> None:
    found = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert found <= {*gangline.__all__}
    table = (ROOT / "docs" / "python.md").read_text().partition("## Errors")[2]
    assert {name for name in found if f"`{name}`" not in table} <= {"GanglineError"}


def test_both_clients_have_the_same_nouns_methods_and_parameters() -> None:
    assert _shape(ApiClient("http://127.0.0.1:9", "")) == _shape(AsyncApiClient("http://127.0.0.1:9", ""))


def _shape(client: object) -> dict[str, list[str]]:
    return {name: [*inspect.signature(method).parameters] for name, method in _methods(client).items()}


def _methods(client: object) -> dict[str, Any]:
    return {
        f"{noun}.{name}": method
        for noun, calls in vars(client).items()
        if not noun.startswith("_")
        for name, method in inspect.getmembers(calls, inspect.ismethod)
        if not name.startswith("_")
    }
