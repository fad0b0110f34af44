"""The lint of words reads prose, docstrings, messages and comments, and nothing else."""

from pathlib import Path

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


def test_docstrings_messages_and_comments_of_code_are_read_and_names_are_not(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text(
        'def go_on(anew):\n    """Goes on."""\n    raise Error(f"told {anew} anew")  # said of\n    "Handed " f"in {1}"\n'
    )
    assert sorted(texts_of(code)) == [" anew", "# said of", "Goes on.", "Handed in ", "told "]
