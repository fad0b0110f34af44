"""docs/exec.md tells every option, layout, exit code and event of `gangline exec`; its lines and those of the README are understood."""

import re
from typing import get_args

import click
import pytest

from gangline.cli import main as cli
from gangline.core.command.layout import LAYOUTS
from gangline.core.runs.contract import EXIT_STOPPED
from gangline.exec.plan import EXIT_INTERRUPTED, EXIT_OVERTAKEN
from gangline.exec.report import Told
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "exec.md").read_text()
README = (ROOT / "README.md").read_text()


BESIDE = ("fetch", "exec ls", "exec get", "exec rm")


def command() -> click.Command:
    return cli.COMMANDS["exec"].load("exec")


def options() -> list[str]:
    return [name for parameter in command().params for name in parameter.opts if name.startswith("--")]


def options_beside() -> list[str]:
    """Of the commands that look at a store: `gangline fetch` and what begins with `gangline exec`."""
    commands = [lazy.load(name) for name, lazy in cli.COMMANDS.items() if name in BESIDE]
    return [name for each in commands for one in each.params for name in one.opts if name.startswith("--")]


@pytest.mark.parametrize("option", sorted({*options(), *options_beside()} - {"--help", "--output"}))
def test_every_option_is_told(option: str) -> None:
    assert option in PAGE


def test_every_layout_is_told() -> None:
    assert all(f"`{layout}`" in PAGE for layout in LAYOUTS)


def test_every_exit_code_is_told() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert told == {2, EXIT_STOPPED, EXIT_OVERTAKEN, EXIT_INTERRUPTED}


def test_every_event_is_told() -> None:
    assert {f"exec.{event}" for event in get_args(Told)} == set(re.findall(r"`(exec\.\w+)`", PAGE))


@pytest.mark.parametrize("page", [README, PAGE])
def test_the_lines_are_understood(page: str) -> None:
    """By the parser of options, up to the command."""
    lines = re.findall(r"^gangline exec (.*?[^\\])$", page, re.MULTILINE | re.DOTALL)
    assert lines
    for line in lines:
        words = line.replace("\\\n", " ").partition("#")[0].split()
        if f"exec {words[0]}" in BESIDE:
            cli.COMMANDS[f"exec {words[0]}"].load(words[0]).make_context("exec", words[1:], resilient_parsing=False)
            continue
        context = command().make_context("exec", words, resilient_parsing=False)
        assert context.params["command"][0] in ("accelerate", "python")
