"""The lint of words reads prose, docstrings and help texts, and nothing else."""

import ast

import pytest

from tests.docs.words import WORDS, found_in, read_words, texts_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hand in\na job", ["“Hand in”: write submit, upload"]),
        ("the manewver", []),
        ("`anew` and\n```sh\nanew\n```\n", []),
    ],
)
def test_a_word_is_found_in_prose_alone_across_lines_and_in_capitals(text: str, found: list[str]) -> None:
    assert list(found_in(text, read_words(WORDS.read_text()))) == found


def test_docstrings_and_the_texts_of_options_are_read() -> None:
    source = '"""Anew."""\ndef f(x=Option(help="Handed " f"in {1}")):\n    """Goes on."""\n    "told"\n'
    assert sorted(text for text in texts_of(ast.walk(ast.parse(source))) if text) == ["Anew.", "Goes on.", "Handed in "]
