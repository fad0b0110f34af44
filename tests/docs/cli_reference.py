"""docs/reference/cli.md, made of the commands' help texts: `python -m tests.docs.cli_reference` writes it again."""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import groupby
from typing import Any, get_args

from gangline.cli.main import COMMANDS
from tests.conftest import ROOT

CLI_PAGE = ROOT / "docs" / "reference" / "cli.md"
HEAD = """# Every command

Made of the help texts by `python -m tests.docs.cli_reference`; `--help` of a command prints the same. A command exits with 0, or with 2
and a hint if its input is wrong; one that waits for a job exits with 1 if the job failed. `-o json` prints one document for programs on
standard output, `-o jsonl`, where a command has it, a document on each line. All other words go to standard error. JOB is an id, the
beginning or end of one, a name, or `last`.
"""
PANEL = "Options"
ALIKE = {"output", "server", "token"}
"""Parameters that many commands share, with the same words."""


def cli_reference() -> str:
    """Return the text of the page."""
    names = [
        f"- [`gangline {name}`](#gangline-{name.replace(' ', '-')}): {_plain(one.help)}"
        for name, one in COMMANDS.items()
    ]
    pages = (_of_command(name, one.load(name.split()[-1]), 2) for name, one in COMMANDS.items())
    return "\n".join([HEAD, *names, "", *_of_all(), *(line for page in pages for line in page)])


def leaves() -> Iterator[tuple[str, Any]]:
    """Yield every command that does something, by its words."""
    for name, one in COMMANDS.items():
        yield from _leaves(name, one.load(name.split()[-1]))


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    below: Mapping[str, Any] = getattr(command, "commands", {})
    if not below:
        yield name, command
    for each, found in below.items():
        yield from _leaves(f"{name} {each}", found)


def _of_all() -> Iterator[str]:
    """Yield the options of nearly every command, which its own section leaves out."""
    shared: dict[str, Any] = {}
    for _, command in leaves():
        shared |= {each.name: each for each in command.params if each.name in ALIKE and each.name not in shared}
    yield "## Options of nearly every command\n"
    yield from _table([shared[name] for name in sorted(ALIKE)], "option")


def _of_command(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} gangline {name}\n\n{_paragraphs(command.help)}\n"
    below: Mapping[str, Any] = getattr(command, "commands", {})
    if below:
        for each, found in below.items():
            yield from _of_command(f"{name} {each}", found, level + 1)
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and _is_shown(each)]
    yield f"```text\ngangline {' '.join([name, *(['[OPTIONS]'] if options else []), *map(_usage, arguments)])}\n```\n"
    if arguments:
        yield from _table(arguments, "argument")
    for panel, found in groupby(sorted(options, key=lambda each: _panel(each) != PANEL), key=_panel):
        yield from _table(list(found), "option" if panel == PANEL else panel)


def _is_shown(option: Any) -> bool:
    return option.name not in (*ALIKE, "help") and not option.hidden


def _panel(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or PANEL


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    shown = f"{name}…" if argument.nargs == -1 else name
    return shown if argument.required else f"[{shown}]"


def _table(parameters: list[Any], head: str) -> Iterator[str]:
    yield f"| {head} | |\n|---|---|"
    for each in parameters:
        yield f"| {_name(each)} | {_cell(each)} |"
    yield ""


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    names = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
    metavar = "" if parameter.is_flag else (parameter.metavar or _value(parameter))
    return f"{names} `{metavar}`".replace("|", "\\|") if metavar else names


def _value(parameter: Any) -> str:
    """Return the word for an option's value, by its type."""
    kind = parameter.type_descriptor.annotation
    kind = next(iter(get_args(kind)), kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "|".join(each.value for each in kind)
    return {int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")


def _cell(parameter: Any) -> str:
    text = _plain(getattr(parameter, "help", None) or "").replace("|", "\\|").replace("<", "&lt;")
    default = parameter.default
    if (
        getattr(parameter, "show_default", False) is not True
        or default in (None, "", False, (), [])
        or callable(default)
    ):
        return text
    return f"{text} (default: {getattr(default, 'value', default)})"


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(each.split()) for each in re.split(r"\n\s*\n", text or "")).replace("<", "&lt;")


def _plain(text: str) -> str:
    return re.sub(r"\s+\[default: (.+)\]$", r" (default: \1)", " ".join(text.split()).replace("\\[", "["))


def write_cli() -> None:
    CLI_PAGE.write_text(cli_reference())


if __name__ == "__main__":
    write_cli()
