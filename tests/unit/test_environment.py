"""Only the composition roots read the environment: whoever looks for what a variable does looks there."""

import ast
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.sources import nodes, paths

READERS = ("environ", "environb", "getenv", "getenvb")
PASSES_ON = "it starts a process, which inherits of the environment what is passed on here"
EXEMPT: Mapping[str, str] = {
    "adapters/host/script/command.py": PASSES_ON,
    "adapters/host/trainer/isolation.py": PASSES_ON,
    "adapters/host/trainer/process.py": PASSES_ON,
    "adapters/host/trainer/start.py": PASSES_ON,
    "adapters/places/looking.py": PASSES_ON,
    "adapters/pools/local.py": PASSES_ON,
    "adapters/trackers/wandb.py": PASSES_ON,
    "train/scratch/launch.py": PASSES_ON,
    "data/__init__.py": "it sets a default that Lance reads when it is imported",
    "data/making/engine.py": "it sets a default that Ray reads",
    "posix.py": "a worker's trainers learn their share of its cores by a variable",
    "tls.py": "httpx and OpenSSL read these variables themselves: here they are the key of what was read",
    "train/run/ranks.py": "RANK, WORLD_SIZE and their like are how a launcher tells a rank which one it is",
    "train/run/numerics.py": "PyTorch's and cuBLAS's own variables, in the trainer's process, where they take effect",
    "train/run/standby.py": "it sets the home of a trainer and its share of the machine",
    "train/scratch/batches.py": "a trainer is a program of its own, and its environment is how it gets a key from its worker",
}
"""Modules outside `compose` that touch the environment, each with its reason."""


def uses_of_environment(within: Iterable[ast.AST]) -> Iterator[int]:
    """Yield the lines that name the environment of the process, imported or of `os`, by whatever name that has."""
    for node in within:
        match node:
            case ast.Attribute(attr=name) if name in READERS:
                yield node.lineno
            case ast.ImportFrom(module="os" | "posix", names=names) if any(
                each.name in (*READERS, "*") for each in names
            ):
                yield node.lineno
            case _:
                pass


def found_in_package() -> set[str]:
    assert len(paths()) > 300
    return {path for path in paths() if any(uses_of_environment(nodes(path)))}


def test_nothing_but_compose_reads_the_environment() -> None:
    assert {name for name in found_in_package() if not name.startswith("compose/")} == set(EXEMPT)


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['X']",
        "import os as system\nsystem.environ.get('X')",
        "import os\nos.getenv('X')",
        "from os import environ",
        "from os import getenv as read",
        "from os import *",
        "import os\nos.environb",
    ],
)
def test_each_way_to_read_the_environment_is_noticed(text: str) -> None:
    assert [*uses_of_environment(ast.walk(ast.parse(text)))]


def test_what_only_has_the_name_is_not_noticed() -> None:
    assert not [*uses_of_environment(ast.walk(ast.parse("environment = {'environ': 1}\nprint(environment)")))]
