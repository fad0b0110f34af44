"""A line of the log is one object of JSON that says what it is about, and holds no secret."""

import json
import logging
import sys

import pytest

from gangline.cli.output import JsonFormatter, LineFormatter
from gangline.core.operating.log_lines import MASK, ids_of, json_line, mask_secrets

JOB, OTHER = "job-0123456789a00112233", "job-0123456789a44556677"
NODE = "node-0123456789a00112233"


def written(record: logging.LogRecord) -> dict[str, object]:
    line = JsonFormatter().format(record)
    assert "\n" not in line
    return json.loads(line)


def record(message: str, *args: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("gangline.fleet", logging.WARNING, "", 0, message, args, None)
    made.created = 1_790_000_000.5
    for name, value in more.items():
        setattr(made, name, value)
    return made


def test_a_line_has_its_time_level_and_logger_and_what_it_is_about() -> None:
    assert written(record("node %s lost %s\nbecause", NODE, JOB)) == {
        "time": "2026-09-21T14:13:20.500Z",
        "level": "warning",
        "logger": "gangline.fleet",
        "message": f"node {NODE} lost {JOB}\nbecause",
        "node": NODE,
        "job": JOB,
    }


def test_several_jobs_in_a_message_are_no_field() -> None:
    assert ids_of(f"{JOB} and {OTHER} on {NODE}") == {"node": NODE}
    assert ids_of("job-12 is no id, nor is a-node-0123456789a001122334") == {}


def test_an_error_has_its_traceback_in_a_field() -> None:
    def fail() -> None:
        raise ValueError("postgresql://me:secret@host/db does not answer")

    try:
        fail()
    except ValueError:
        found = written(record("a tick failed", exc_info=sys.exc_info()))
    traceback = str(found["traceback"])
    assert traceback.startswith("Traceback") and "ValueError" in traceback
    assert "ValueError: postgresql://********@host/db does not answer" in traceback.splitlines()


def test_fields_of_a_request_are_fields_of_the_line() -> None:
    found = written(record("GET /v1/jobs 200", fields={"route": "/v1/jobs", "status": 200, "duration_ms": 1.5}))
    assert (found["route"], found["status"], found["duration_ms"]) == ("/v1/jobs", 200, 1.5)


@pytest.mark.parametrize(
    "secret",
    [
        "gl_operator_Ab3-x_9876543210",
        "gl_join_Ab3x9876543210",
        "Bearer abc.def.ghi",
        "postgresql://me:pass-word@db.example.org/gangline",
        "https://s3/b/k?X-Amz-Credential=AK1D&X-Amz-Signature=00ff00",
        "http://h/v1/objects/k?expires=1&signature=00ff00",
    ],
)
def test_secrets_are_masked_in_both_formats(secret: str) -> None:
    hidden = [
        "Ab3",
        "abc.def",
        "pass-word",
        "AK1D",
        "00ff00",
    ]
    for line in (
        JsonFormatter().format(record("it said %s", secret)),
        LineFormatter("%(message)s").format(record("it said %s", secret)),
        mask_secrets(secret),
    ):
        assert MASK in line
        assert [part for part in hidden if part in line] == []


def test_what_is_no_secret_is_left_as_it_is() -> None:
    text = f"gl_ is how keys begin; http://127.0.0.1:8420/v1/jobs/{JOB} at 12:30:01, a signature of 64 bytes"
    assert mask_secrets(text) == text


def test_a_message_of_any_characters_is_one_line_of_ascii() -> None:
    line = json_line(at_s=0, level="INFO", logger="x", message="\x1b[31m\u202e \u2028 ü\n")
    assert line.isascii() and "\n" not in line
    assert json.loads(line)["message"] == "\x1b[31m\u202e \u2028 ü\n"
