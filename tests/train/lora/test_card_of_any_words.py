"""A card shows what anybody wrote, and nothing of it becomes a setting, a heading, a link or a piece of HTML."""

from dataclasses import replace

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gangline.core.display import printable
from gangline.core.files import File
from gangline.core.specs.fields import FilesBase
from gangline.train.lora.card import CardPicture, card
from tests.train.lora.test_card import FACTS, SHA, SPEC

PIECES = st.sampled_from(
    [
        *(
            "---\n",
            "...",
            "\n\n# a\n\n",
            "\n```\n",
            "```",
            "`",
            "``",
            "|",
            "\\",
            "*",
            "_",
            "~~",
            "#",
            "!",
            "[a](http://x)",
            "<b>",
            "</b>",
        ),
        *(
            "<script>alert(1)</script>",
            "<!--",
            "&lt;",
            "http://x.invalid",
            "www.x.invalid",
            "a@x.invalid",
            ":dog:",
            "$x$",
            "\r\n",
            "\t",
        ),
        *(
            "'",
            '"',
            "{",
            "}",
            "%",
            ": ",
            "- ",
            "\x00",
            "\x1b[2J",
            "\x7f",
            "\x85",
            "\x9b",
            "\u2028",
            "\u202e",
            "\ufeff",
            "\uffff",
            "😺",
        ),
    ]
)
WORDS = st.lists(PIECES | st.text(max_size=4), min_size=1, max_size=12).map("".join).filter(bool)
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def card_of(words: str) -> str:
    spec = replace(
        SPEC, prompt=words, base=FilesBase(files=(File(path=words, bytes=1, sha256=SHA),)), class_prompt=words
    )
    facts = replace(
        FACTS,
        name=words,
        licence=words,
        fingerprint={words: words},
        held_out=({"photo": words, "loss_before": 0.2, "loss_after": 0.1},),
    )
    return card(spec, facts, (CardPicture(prompt=words, path="samples/one.png"),))


def parted(text: str) -> tuple[str, str]:
    """The front matter, and the rest."""
    front, body = text.removeprefix("---\n").split("\n---\n", 1)
    return front, body


def shape(tokens: list[Token]) -> list[str]:
    """What Markdown makes of a text, without the text."""
    found = list[str]()
    for token in tokens:
        if token.type not in ("text", "text_special"):
            found += [token.type, *shape(token.children or [])]
    return found


def shown(tokens: list[Token]) -> str:
    return "".join(token.content if not token.children else shown(token.children) for token in tokens)


@given(WORDS)
def test_its_front_matter_is_yaml_that_holds_exactly_these_words(words: str) -> None:
    front, _ = parted(card_of(words))
    assert front.replace("\n", "").isprintable()
    read = yaml.safe_load(front)
    assert (read["instance_prompt"], read["license"], read["widget"][0]["text"]) == (words, words, words)
    assert list(read) == ["library_name", "pipeline_tag", "tags", "instance_prompt", "license", "widget"]


@given(WORDS)
@example("`")
@example(" a ")
@example("http://x.invalid www.x.invalid a@x.invalid")
def test_its_markdown_shows_them_and_is_made_as_that_of_any_other(words: str) -> None:
    _, body = parted(card_of(words))
    tokens = MARKDOWN.parse(body)
    assert shape(tokens) == shape(MARKDOWN.parse(parted(card_of("plain"))[1]))
    assert shown(tokens).count(printable(words).strip()) >= 8  # cells and headings have no blanks at their ends
    assert "html" not in "".join(shape(tokens))


@pytest.mark.parametrize(
    "words", ["http://x.invalid", "HTTPS://x.invalid", "www.x.invalid", "a@x.invalid", ":dog:", "$x$"]
)
def test_what_sites_make_links_pictures_and_formulas_of_is_escaped(words: str) -> None:
    _, body = parted(card_of(words))
    outside = "\n".join(line for line in body.splitlines() if line.startswith(("|", "!", "# ", "- Licence")))
    assert words not in outside


def test_a_card_of_any_words_can_be_written_anywhere() -> None:
    assert card_of("a\ud800\x00b").encode()
