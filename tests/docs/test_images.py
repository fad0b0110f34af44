"""The commands of docs/images.md: the files that Docker gets exist in `deploy/`, and what follows the image is a command of Gangline."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.snippets import SHELL, commands, snippets, why_not_understood

PAGE = ROOT / "docs" / "images.md"
WITH_VALUE = ("--name", "-p", "-v", "-e", "--gpus", "--shm-size", "--security-opt", "--cap-add")
"""Options of `docker run` that the page uses."""


def told_to_docker() -> Iterator[list[str]]:
    """Yield the words after `docker` of each command of the page, those within its sentences, too."""
    text = PAGE.read_text()
    for each in snippets(PAGE):
        if each.language in SHELL:
            yield from (words[1:] for words in commands(each.text) if words[0] == "docker")
    yield from (shlex.split(found)[1:] for found in re.findall(r"`(docker [^`]+)`", text))


def given(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


def without_options(words: list[str]) -> list[str]:
    """Return the words from the image's or the container's name on."""
    at = 1
    while words[at].startswith("-"):
        at += 2 if words[at] in WITH_VALUE else 1
    return words[at:]


def test_what_is_built_is_there_and_takes_these_arguments() -> None:
    built = [words for words in told_to_docker() if words[0] == "build"]
    assert len(built) > 4
    for words in built:
        (file,) = given(words, "-f")
        taken = set(re.findall(r"^ARG (\w+)", (ROOT / file).read_text(), re.MULTILINE))
        assert {each.split("=")[0] for each in given(words, "--build-arg")} <= taken
        (image,) = given(words, "-t")
        assert image.partition(":")[0] == f"gangline-{Path(file).suffix[1:]}" and words[-1] == "."


def test_every_build_argument_is_in_the_table_and_every_one_of_the_table_exists() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| (both|server|worker) \|", PAGE.read_text(), re.MULTILINE)
    documented = {(name, of) for names, of in rows for name in re.findall(r"`(\w+)`", names)}
    taken = {
        name: set(re.findall(r"^ARG (\w+)", (ROOT / "deploy" / f"Containerfile.{name}").read_text(), re.MULTILINE))
        for name in ("server", "worker")
    }
    found = {(each, "both" if each in taken["server"] else "worker") for each in taken["worker"]}
    assert documented == found and taken["server"] <= taken["worker"]


def test_what_is_run_is_an_image_of_ours_with_a_command_that_it_understands() -> None:
    ran = [words for words in told_to_docker() if words[0] in ("run", "exec")]
    assert len(ran) > 3
    for words in ran:
        name, *command = without_options(words)
        assert name in ("gangline-server", "gangline-worker", "server")
        command = command[1:] if words[0] == "exec" else command
        assert not command or not why_not_understood(command), command
        for each in given(words, "-v"):
            assert each.endswith(":/var/lib/gangline")


def test_every_variable_of_the_page_is_a_setting() -> None:
    named = set(re.findall(r"\bGANGLINE_\w+", PAGE.read_text()))
    assert named
    known = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert all(f"`{name}`" in known for name in named)
