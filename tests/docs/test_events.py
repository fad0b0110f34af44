"""docs/reference/events.md has the events and failures of the code, with the same sentences."""

from typing import get_args

import pytest

from gangline.core.events import EVENTS
from gangline.core.jobs.failure import MEANING, STRIKE, Meaning, ReportedKind
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "events.md").read_text()
QUARTERS = {0: "–", 1: "¼", STRIKE // 2: "½", STRIKE: "1"}


def events() -> str:
    return "\n".join(
        ["| kind | what happened |", "|---|---|", *(f"| `{kind}` | {says} |" for kind, says in EVENTS.items())]
    )


def failure(kind: str, meaning: Meaning) -> str:
    ends = "a second machine's word" if meaning.confirm else "`attempts_max` failures" if meaning.counts else "–"
    facts = (
        "node" if kind in get_args(ReportedKind) else "server",
        meaning.blame,
        "yes" if meaning.counts else "no",
        "yes" if meaning.ban else "no",
        QUARTERS[meaning.strike],
        ends,
    )
    return f"| `{kind}` | {meaning.sentence} | {' | '.join(facts)} |"


def failures() -> str:
    head = "| kind | what happened | found by | blamed | counts | ban | strikes | ends the job |"
    return "\n".join([head, "|---|---|---|---|---|---|---|---|", *(failure(*each) for each in MEANING.items())])


@pytest.mark.parametrize("table", [events, failures])
def test_the_page_has_what_the_code_has(table) -> None:
    assert f"\n\n{table()}\n" in PAGE, table()


def test_the_page_has_the_words_that_a_failure_is_recorded_with() -> None:
    assert all(f"| `{kind}` | {meaning.says} |" in PAGE for kind, meaning in MEANING.items())
