"""Events and failures are closed lists: nobody records another kind, each kind is recorded by somebody, and all are documented."""

import ast
import re
from collections.abc import Iterator
from typing import Any, cast, get_args

import httpx
import pytest
from pydantic import TypeAdapter

from gangline.adapters.store.statements import migrations, statements
from gangline.core.events import EVENTS, EventKind
from gangline.core.jobs.failure import MEANING, FailureKind, ReportedKind
from gangline.core.jobs.wishes import ASKED
from gangline.core.views import EventView
from gangline.ports.server import Failed
from gangline.service.attempts import event
from gangline.wire.http import parse_answer
from tests.sources import found

NOBODY_REPORTS = {"gpu error"}
"""Of another agent's failures; ours cannot tell a broken GPU from another crash."""


def calls(name: str, below: str = "") -> Iterator[tuple[str, ast.Call]]:
    return (each for each in found(ast.Call, (below,)) if ast.unparse(each[1].func) == name)


def constants(*nodes: ast.AST) -> set[str]:
    values = {node.value for each in nodes for node in ast.walk(each) if isinstance(node, ast.Constant)}
    return {value for value in values if isinstance(value, str)}


def ends_of_attempts() -> set[str]:
    keywords = [each for name in ("Verdict", "replace") for _, call in calls(name) for each in call.keywords]
    return constants(*(each.value for each in keywords if each.arg == "attempt"))


SPELLED = {
    "verdict.attempt": ends_of_attempts,
    "told": lambda: {told for told, _ in ASKED.values()},
    "state": lambda: constants(*(call.args[2] for _, call in calls("_move", "service/jobs/steer"))),
}
"""What may stand for a kind where an event is recorded, and which kinds that can be."""


def test_every_kind_of_event_has_one_sentence() -> None:
    assert set(EVENTS) == set(get_args(EventKind))
    for says in EVENTS.values():
        assert says[0].isupper() and says.endswith(".") and "\n" not in says


def test_every_kind_of_failure_has_one_sentence() -> None:
    assert set(MEANING) == set(get_args(FailureKind))
    for meaning in MEANING.values():
        assert meaning.sentence[0].isupper() and meaning.sentence.endswith(".") and "\n" not in meaning.sentence


def test_an_event_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(AssertionError, match="is not a kind of event"):
        event("job", cast(Any, "happened"), "", 0)


def test_one_function_records_events() -> None:
    assert [path for path, call in calls("write") if constants(*call.args[:1]) == {"add_event"}] == [
        "service/attempts.py"
    ]
    assert not [path for path, call in calls("guard") if constants(*call.args[:1]) == {"add_event"}]
    sql = [*statements().items(), *((str(name), text) for name, text in migrations())]
    assert [name for name, text in sql if "INTO event " in text] == ["add_event"]
    assert [name for name, text in sql if "UPDATE event " in text] == ["number_facts"]
    (changed,) = re.findall(r"UPDATE event SET (.*)", statements()["number_facts"])
    assert changed == "numbered = 1, project = sequenced.project, fact = sequenced.fact, state = sequenced.state", (
        "what happened is never rewritten, but a state that an older server left out is added"
    )


def test_every_kind_of_event_is_recorded_by_somebody_and_no_other_kind() -> None:
    recorded = set[str]()
    for path, call in calls("event", "service"):
        kind = call.args[1]
        known = {kind.value} if isinstance(kind, ast.Constant) else SPELLED[ast.unparse(kind)]()
        assert known <= set(EVENTS), f"{path}:{call.lineno}"
        recorded |= cast(set[str], known)
    assert recorded == set(EVENTS)


def test_every_kind_of_failure_is_reported_by_somebody() -> None:
    below = ("train/", "worker/", "service/", "core/jobs/failure", "core/fleet/slowness")
    spelled = constants(*(node for kind in (ast.Call, ast.Return) for _, node in found(kind, below)))
    assert set(MEANING) - spelled == NOBODY_REPORTS


def test_openapi_names_the_closed_lists_with_their_sentences() -> None:
    schema = TypeAdapter(EventView).json_schema()["properties"]
    assert schema["kind"]["enum"] == list(EVENTS)
    assert all(f"- `{kind}`: {says}" in schema["kind"]["description"] for kind, says in EVENTS.items())
    assert all(meaning.says in schema["because"]["description"] for meaning in MEANING.values())
    reported = TypeAdapter(Failed).json_schema()["properties"]["kind"]
    assert reported["enum"] == list(get_args(ReportedKind))
    assert all(MEANING[kind].sentence in reported["description"] for kind in get_args(ReportedKind))


def test_an_event_of_another_version_is_read() -> None:
    """A client may be older than its server."""
    told = {"number": 1, "at_ms": 2, "kind": "of tomorrow", "attempt": None, "node": None, "because": ""}
    answer = httpx.Response(200, json=[told], request=httpx.Request("GET", "http://server/v1/jobs/j/events"))
    assert parse_answer(list[EventView], answer)[0].kind == "of tomorrow"
