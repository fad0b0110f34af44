"""Make untrusted text (names, prompts, reasons, logs) safe to show: it cannot control a terminal or disguise itself."""

import re
from typing import Annotated
from unicodedata import category

from annotated_types import MaxLen, MinLen, Predicate

UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters (bidi overrides among them), lone surrogates, line and paragraph separators."""
JOINERS = "\u200c\u200d"
"""Format characters that words of Persian and Indic scripts need, and emoji."""
NAME_MAX = 200
WORDS_MAX = 4000
"""The maximum length of a reason, in characters."""


def is_text(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8: a lone surrogate cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def is_printable(text: str) -> bool:
    """Return whether no character has an effect other than its own display."""
    return text.isprintable() or all(map(_is_safe, text))


def has_words(text: str) -> bool:
    return bool(text.strip()) and is_printable(text)


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with unsafe characters escaped as Python does: `\\x1b`, `\\n`, `\\u202e`. Characters of `keep` stay."""
    if text.isprintable():
        return text
    return "".join(each if _is_safe(each) or each in keep else _escaped(each) for each in text)


def as_words(reason: str) -> str:
    """Return a node's or a trainer's reason as it is sent and stored: one line of bounded length that any database accepts."""
    return printable(reason)[:WORDS_MAX]


def _is_safe(character: str) -> bool:
    return character in JOINERS or category(character) not in UNSAFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


Label = Annotated[str, MaxLen(NAME_MAX), Predicate(is_printable)]
"""A name for display; it may be empty."""
Name = Annotated[str, MinLen(1), MaxLen(NAME_MAX), Predicate(has_words)]


HELD_MAX = 4000
"""A longer control sequence, in characters, is shown as text: waiting for its end would hold back the log."""
STRING = rf"[\]PX^_][^\x00-\x1f]{{0,{HELD_MAX}}}"
"""The part of OSC, DCS, SOS, PM and APC sequences (ECMA-48) between ESC and the terminator."""
CSI = rf"\[[0-?]{{0,{HELD_MAX}}}[ -/]{{0,9}}"
TWO = r"[ -/]{0,9}"
SEQUENCE = re.compile(rf"\x1b(?:{CSI}[@-~]|{STRING}(?:\x07|\x1b\\)|{TWO}(?![\[\]PX^_])[0-~])")
UNFINISHED = re.compile(rf"\x1b(?:{CSI}|{STRING}\x1b?|{TWO})\Z")
COLOUR = re.compile(r"\x1b\[[0-9;:]{0,100}m")
RESET = "\x1b[0m"
LAYOUT = "\t\n\r"
"""White space that logs keep. A carriage return redraws a progress bar."""


class LogText:
    """A filter for a trainer's log that comes in chunks: it keeps colours (SGR) and removes every other control sequence.

    A sequence that is split between two chunks is held back until its end arrives.
    """

    def __init__(self) -> None:
        self._held = ""
        self._coloured = False

    def feed(self, chunk: str) -> str:
        """Return what can be shown after this chunk."""
        text = self._held + chunk
        cut = UNFINISHED.search(text)
        end = cut.start() if cut else len(text)
        self._held = text[end:]
        return self._shown(text[:end])

    def end(self) -> str:
        """Return the text that was held back, and a reset if colours are on, so that they do not affect text after the log."""
        rest, self._held = self._shown(self._held), ""
        return rest + RESET * self._coloured

    def _shown(self, text: str) -> str:
        shown, done = list[str](), 0
        for found in SEQUENCE.finditer(text):
            shown.append(printable(text[done : found.start()], keep=LAYOUT))
            if COLOUR.fullmatch(found[0]):
                shown.append(found[0])
                self._coloured = found[0] not in (RESET, "\x1b[m")
            done = found.end()
        return "".join(shown) + printable(text[done:], keep=LAYOUT)


FORMULA = frozenset("=+-@＝＋－＠")
"""Spreadsheets take a cell that begins so for a formula, in any width of these characters (OWASP, "CSV Injection")."""
CUT_OFF = ("\t", "\r")
"""Some cut these off, and look at what comes after."""


def is_formula(cell: str) -> bool:
    """Return whether a spreadsheet may take a cell for a formula. What it does not show before the first character counts as nothing."""
    seen = next((each for each in cell if not each.isspace() and category(each) not in UNSAFE), "")
    return seen in FORMULA or cell.startswith(CUT_OFF)


def table_cell(text: str) -> str:
    """Return the text for a cell of a CSV file: one that a spreadsheet may take for a formula gets an apostrophe before it."""
    return f"'{text}" if is_formula(text.lstrip("'")) else text


def text_of_cell(cell: str) -> str:
    """Return the text that `table_cell` made this cell of."""
    return cell[1:] if cell.startswith("'") and is_formula(cell.lstrip("'")) else cell


def safe_cell(text: str) -> str:
    """Return the text of a cell that every spreadsheet shows as it is: an apostrophe is put before what would be a formula."""
    shown = printable(text)
    return f"'{shown}" if is_formula(shown) else shown
