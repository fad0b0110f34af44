"""What a command prints of text that others wrote."""

import json
import logging
from io import StringIO

import pytest
from rich.text import Text

from gangline.cli import output
from gangline.cli.jobs.follow import progress_line
from gangline.core.errors import BadInput
from tests.unit.test_display import CONTROLS

HOSTILE = "[/b] [sks] :dog: \x1b]0;owned\x07\x00\x9b2J\u202e\nfalse row"
SHOWN = "[/b] [sks] :dog: \\x1b]0;owned\\x07\\x00\\x9b2J\\u202e\\nfalse row"


def shown(captured: str) -> str:
    assert not CONTROLS.search(captured)
    return captured


def test_a_cell_of_a_table_is_no_markup_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rows = output.table("name", HOSTILE)
    rows.add_row(HOSTILE, Text("ours", style="bold"))
    output.out.print(rows)
    lines = shown(capsys.readouterr().out).splitlines()
    assert len(lines) == 2
    assert SHOWN in lines[0]
    assert lines[1].startswith(SHOWN)


def test_facts_words_and_what_is_printed_alone_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.out.print(output.facts((HOSTILE, HOSTILE)))
    output.out.print(HOSTILE)
    output.say(HOSTILE)
    captured = capsys.readouterr()
    assert shown(captured.out).count(SHOWN) == 3
    assert shown(captured.err) == f"{SHOWN}\n"


def test_an_error_and_its_hint_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output.say_error(BadInput(HOSTILE, hint=HOSTILE))
    assert shown(capsys.readouterr().err) == f"error: {SHOWN}\nhint: {SHOWN}\n"


def test_json_holds_the_text_itself_in_plain_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"name": HOSTILE + "\x7f"})
    printed = shown(capsys.readouterr().out)
    assert printed.isascii()
    assert json.loads(printed) == {"name": HOSTILE + "\x7f"}


def test_a_line_of_the_services_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], logging.getLogger("gangline").level
    root.handlers.clear()
    try:
        output.show_log()
        logging.getLogger("gangline.test").warning("node %s", HOSTILE)
    finally:
        root.handlers[:] = before
        logging.getLogger("gangline").setLevel(level)
    assert shown(capsys.readouterr().err).endswith(f"node {SHOWN}\n")


def test_a_live_line_shows_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line() as line:
        line.add_task(HOSTILE, total=1)
    assert SHOWN in shown(capsys.readouterr().err)


def test_a_question_that_nobody_can_answer_ends_its_line_before_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(""))
    with pytest.raises(BadInput, match="deleting needs a confirmation"):
        output.is_confirmed("delete", "job a and its photos will be deleted")
    assert capsys.readouterr().err.endswith("This cannot be undone.\n\n")
