"""Text that others wrote, shown to people."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.core.display import LogText, has_words, is_printable, printable

HOSTILE = ["\x00", "\x07", "\x08", "\x1b", "\x7f", "\x85", "\x9b", "\n", "\r", "\t", "\u2028", "\u2029"]
HOSTILE += ["\u202a", "\u202e", "\u2066", "\u2069", "\u200e", "\u200f", "\u061c", "\u200b", "\ufeff", "\ud800"]
SGR = re.compile(r"\x1b\[[0-9;:]*m")
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u061c\u2028\u2029\u202a-\u202e\u2066-\u2069]")
PIECES = st.sampled_from(
    [
        *HOSTILE,
        "\x1b[",
        "\x1b[31m",
        "\x1b[0;1m",
        "\x1b[2J",
        "\x1b]0;title",
        "\x1b\\",
        "\x1bP",
        "\x1b(B",
        "m",
        "1;",
        "[",
        "loss 0.1\n",
    ]
)
LOGS = st.lists(PIECES | st.text(max_size=5), max_size=20).map("".join)


def through(*chunks: str) -> str:
    log = LogText()
    return "".join([*(log.feed(chunk) for chunk in chunks), log.end()])


@pytest.mark.parametrize("character", HOSTILE)
def test_what_writes_anything_but_itself_is_shown_escaped(character: str) -> None:
    shown = printable(f"a{character}b")
    assert not is_printable(character)
    assert shown.isascii()
    assert shown.isprintable()
    assert shown.encode().decode("unicode_escape") == f"a{character}b"


@pytest.mark.parametrize(
    "text", ["a photo of [sks] dog", "日本語\u3000名前", "👩‍🚀", "naïve café", "\U0001fae8", "می‌خواهم"]
)
def test_words_of_any_language_are_shown_as_they_are(text: str) -> None:
    assert has_words(text)
    assert printable(text) == text


@pytest.mark.parametrize("text", ["", " ", "\u3000", "a\nb", "\u202egpj"])
def test_a_name_has_words_and_nothing_else(text: str) -> None:
    assert not has_words(text)


@given(st.text())
def test_what_is_printable_stays_so(text: str) -> None:
    assert is_printable(printable(text))
    assert printable(printable(text)) == printable(text)


@given(LOGS, st.data())
def test_a_log_holds_colours_and_no_other_sequence_however_it_is_cut(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    chunks = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    shown = through(*chunks)
    assert shown == through(text)
    assert not CONTROLS.search(SGR.sub("", shown))


def test_colours_tabs_and_progress_bars_of_a_log_stay() -> None:
    text = "\x1b[1;31mloss\x1b[0m\t0.1\r 50%\r100%\n\x1b[38:5:1mred\x1b[m"
    assert through(text) == text


def test_titles_cursor_movements_and_other_sequences_vanish_from_a_log() -> None:
    assert through("a\x1b]0;owned\x07b\x1b[2Jc\x1b[1Ad\x1b]8;;http://x\x1b\\e\x1bPq\x1b\\f\x1b(Bg\x1bch") == "abcdefgh"


def test_a_sequence_without_an_end_does_not_swallow_the_log() -> None:
    assert through("\x1b]0;", "title\n", "step 1\n") == "\\x1b]0;title\nstep 1\n"
    assert through("\x1b]" + "x" * 10_000).startswith("\\x1b]xxx")
    assert through("a\x1b[3") == "a\\x1b[3"


def test_colours_end_with_the_log() -> None:
    assert through("\x1b[8mhidden") == "\x1b[8mhidden\x1b[0m"
