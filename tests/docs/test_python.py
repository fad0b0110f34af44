"""docs/python.md runs from top to bottom against a server with a node, and docs/reference/python.md is what the code says."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gangline
from gangline import types
from gangline.ports.server import Assignment
from gangline.service.content import bases
from gangline.service.content.bases import BaseStatement
from gangline.service.jobs.claim import claim
from tests.conftest import ROOT
from tests.docs.python_reference import PAGE, nouns, reference
from tests.service.client.conftest import served
from tests.service.conftest import OPERATOR, PROJECT, Service, objects, service
from tests.service.places.site import picture
from tests.service.served import Served
from tests.service.test_rules import succeed

__all__ = ["objects", "served", "service"]
GUIDE = (ROOT / "docs" / "python.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
NEEDS_A_NODE = re.compile(r"\.wait\(|\.follow\(")


@contextmanager
def a_node_works(service: Service, node: str) -> Iterator[None]:
    """A node takes what it gets and is done with it at once, while the service numbers its facts."""
    ends = threading.Event()

    def work() -> None:
        while not ends.wait(0.02):
            found = claim(service.deployment, node, service.now_ms)
            if isinstance(found, Assignment):
                succeed(service, node, found.hold)
            service.tick()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.fixture
def node(service: Service, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A node, and what a user of the page has: a server and a key in the environment, a base, and photos here."""
    bases.add(service.deployment, PROJECT, "pony", service.spec().base, None, BaseStatement(), service.now_ms)
    monkeypatch.setenv("GANGLINE_SERVER", served.url)
    monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
    (tmp_path / "here" / "my-photos").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("my-photos/1.png").write_bytes(picture())
    return service.join()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_lines_of_the_readme_run(service: Service, node: str) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    with a_node_works(service, node):
        exec(lines, {"print": str})  # noqa: S102
    assert Path("results/weights.safetensors").exists()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_every_snippet_of_the_guide_runs_in_its_order(service: Service, served: Served, node: str) -> None:
    said = list[str]()
    names: dict[str, Any] = {"print": lambda *words, **_: said.append(" ".join(map(str, words)))}
    for snippet in SNIPPETS:
        if NEEDS_A_NODE.search(snippet):
            with a_node_works(service, node):
                exec(snippet, names)  # noqa: S102
        else:
            exec(snippet, names)  # noqa: S102
    told = "\n".join(said)
    assert f"{served.url} {PROJECT}" in told
    assert "succeeded after 800 steps, $0.00" in told
    assert "results/weights.safetensors" in told and Path("results/weights.safetensors").exists()
    assert "paused" in told and "EndView(state='succeeded'" in told
    assert int(Path("last-fact").read_text()) >= 3 and "timber" not in told
    assert "['succeeded', 'succeeded', 'succeeded']" in told
    assert "stepz is not a known field" in told


def test_the_reference_is_what_the_code_says() -> None:
    assert PAGE.read_text() == reference(), "write it again: python -m tests.docs.python_reference"


def test_every_public_name_is_in_the_reference() -> None:
    text = PAGE.read_text()
    names = [*gangline.__all__, *types.__all__, *nouns()]
    assert [name for name in names if name not in text and name != "__version__"] == []


def test_every_method_of_the_guide_exists() -> None:
    for noun, method in re.findall(r"\bclient\.(\w+)\.(\w+)\(", GUIDE):
        assert hasattr(nouns()[noun], method), f"client.{noun}.{method}"
