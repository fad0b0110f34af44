"""Snippets of the pages that users read, and the lines of `gangline` in them."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from gangline.cli import main as cli
from gangline.cli.jobs.settings import NOTATIONS, option_name
from gangline.core.specs.command import CommandSpec
from gangline.core.specs.fields import Needs
from gangline.core.specs.form import offered_settings
from gangline.core.specs.lora import LoraSpec
from tests.conftest import ROOT

PAGES = (
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(gangline [^`]+)`")
SHELL = ("sh", "bash", "console")
ENDS = re.compile(r"[();<>|&]+")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
LEFT_OUT = "…"
KEYWORDS = ("exec", "time", "nohup", "sudo", "watch", "do", "then", "else", "if", "while", "!")
"""What may stand before a command on its line."""

SPECS: Mapping[str, tuple[type, ...]] = {"train": (LoraSpec, Needs), "run": (CommandSpec, Needs)}
"""Commands that have an option for each setting of a spec."""


@dataclass(frozen=True)
class Snippet:
    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def snippets(page: Path) -> Iterator[Snippet]:
    """Yield the fenced blocks of a page."""
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Snippet(page, line, found["language"], found["text"])


def all_snippets(*languages: str) -> list[Snippet]:
    return [each for page in PAGES for each in snippets(page) if each.language in languages]


def without_comments(code: str) -> str:
    """Return shell code without its comments, and with lines that continue joined to what they continue."""
    joined = code.replace("\\\n", " ")
    return re.sub(
        r"""((?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^\s'"#]|\S(?=\S))+|[^\S\n]+)|#.*""", lambda found: found[1] or "", joined
    )


def commands(code: str) -> Iterator[list[str]]:
    """Yield the words of each command of some shell code: without what its output goes to, and without the variables before it."""
    for line in logical_lines(without_comments(code)):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split, lexer.commenters = True, ""
        words, skip = list[str](), False
        for word in [*lexer, ";"]:
            if ENDS.fullmatch(word) and not set(word) & set("<>"):
                yield from (words,) if words else ()
                words, skip = [], False
            elif ENDS.fullmatch(word):
                skip = True  # the next word is a file
                words = words[:-1] if words and words[-1] in ("1", "2") else words
            elif not skip and (words or not ASSIGNMENT.match(word)):
                words.append(word)
            else:
                skip = False


def logical_lines(code: str) -> Iterator[str]:
    """Yield lines; one whose quotation is not closed goes on in the next."""
    line = ""
    for each in code.splitlines():
        line = f"{line}\n{each}" if line else each
        try:
            shlex.split(line)
        except ValueError:
            continue
        yield line
        line = ""
    assert not line, f"a quotation is not closed: {line}"


def gangline_commands(code: str) -> Iterator[list[str]]:
    """Yield the words after `gangline` of each of its commands."""
    for words in commands(code):
        first = next((number for number, word in enumerate(words) if word not in KEYWORDS), 0)
        if words[first].rpartition("/")[2] == "gangline":
            yield words[first + 1 :]


def why_not_understood(words: list[str], abbreviated: bool = False) -> str:
    """Return why the command line would refuse these words before it does anything; "" if it would not.

    Of an abbreviated line only what is there is looked at: its command and its options exist, and take such values."""
    abbreviated = abbreviated or LEFT_OUT in words
    words = [word for word in words if word != LEFT_OUT]
    name = next((both for both in (" ".join(words[:2]), *words[:1]) if both in cli.COMMANDS), None)
    if name is None:
        return "" if words in (["--help"], ["--version"]) else f"there is no command {' '.join(words[:1])}"
    command, rest = cli.COMMANDS[name].load(name.split()[-1]), words[len(name.split()) :]
    while hasattr(command, "commands") and rest and rest[0] in command.commands:
        name, command, rest = f"{name} {rest[0]}", command.commands[rest[0]], rest[1:]
    if hasattr(command, "commands") and rest != ["--help"]:
        return "" if abbreviated and not rest else f"{name} has no command {' '.join(rest[:1])}"
    return _why_refused(command, name, rest, abbreviated)


def _why_refused(command: Any, name: str, rest: list[str], abbreviated: bool) -> str:
    required = [parameter for parameter in command.params if parameter.required]
    try:
        for parameter in required if abbreviated else ():
            parameter.required = False
        with redirect_stdout(StringIO()):  # `--help` prints
            context = command.make_context(name, list(rest))
    except Exception as error:
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Exit":
                return ""
            return f"{name}: {error}"
        says = error.format_message()
        return "" if abbreviated and says.endswith("requires an argument.") else f"{name}: {says}"
    finally:
        for parameter in required:
            parameter.required = True
    return "" if name not in SPECS else _why_no_settings(SPECS[name], context.params)


def _why_no_settings(specs: Iterable[type], given: Mapping[str, Any]) -> str:
    """Options of settings take any text; what they may be is in the type of their field."""
    for spec in specs:
        hints = get_type_hints(spec, include_extras=True)
        for setting in {name for of in offered_settings(spec).values() for name in of} - set(NOTATIONS):
            value = given.get(setting)
            try:
                if value not in (None, [], ()):
                    TypeAdapter(hints[setting]).validate_python(value)
            except ValidationError as error:
                return f"{option_name(spec, setting)}: {error.errors()[0]['msg']}"
    return ""


def inline_commands(page: Path) -> Iterable[list[str]]:
    """Yield the words of each command that stands in a sentence."""
    text = FENCE.sub("", page.read_text())
    for found in INLINE.findall(text):
        yield from gangline_commands(found.replace("\n", " "))
