"""docs/notices/index.md: its snippets verify a real message and refuse a wrong one; its numbers are those of the code."""

import re
import time
from typing import Any

import pytest

from gangline.cli.notices.notify import app
from gangline.core.notices.retry import DISABLED_AFTER_S, JITTER, RETRY_S
from gangline.core.notices.signing import secret_text
from gangline.core.server.notices import NoticeSettings
from gangline.service.deployment import Deployment
from gangline.service.notices.channels import NoticeEvent, NoticeTarget, make_webhook
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "notices" / "index.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KEY = b"k" * 32
EVENT = NoticeEvent(
    fact=1204,
    notice="failed",
    at_ms=1_772_366_400_000,
    job="job-0190c3a1f4b9c01d2e3",
    name="Timber",
    job_kind="lora",
    event="failed",
    state="failed",
    attempt="attempt-0190c3a1f4c1a9b8c7d",
    node="node-0190c3a1f0aa1b2c3d4",
    because="out of memory",
)


def message(deployment: Any = None) -> tuple[dict[str, str], bytes]:
    target = NoticeTarget(
        id="ep-1", project="default", name="ci", channel="webhook", address="https://a.example/", keys=(KEY,)
    )
    made = make_webhook(deployment, target, [EVENT], round(time.time() * 1000))
    return dict(made.headers), made.body


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["library", "by hand"])
def test_a_snippet_verifies_a_message_and_refuses_what_is_wrong_or_old(snippet: str) -> None:
    known: dict[str, Any] = {}
    exec(snippet, known)  # noqa: S102 - what the page shows
    headers, body = message()
    verify, secret = known["verify"], secret_text(KEY)
    assert verify(secret, headers, body)["data"]["job"] == EVENT.job
    wrong: list[tuple[str, dict[str, str], bytes]] = [
        (secret_text(b"x" * 32), headers, body),
        (secret, headers, body + b" "),
        (secret, headers | {"webhook-id": "msg_2"}, body),
    ]
    for each in wrong:
        with pytest.raises(Exception, match=r"signature"):
            verify(*each)
    with pytest.raises(Exception, match=r"old|signature"):
        verify(secret, headers | {"webhook-timestamp": "1000"}, body)


def test_the_page_shows_a_body_as_it_is() -> None:
    import json

    shown = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
    assert shown == json.loads(message()[1])


def test_the_page_has_the_numbers_of_the_code() -> None:
    assert RETRY_S == (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400) and JITTER == 0.2
    assert "5 seconds, 5 and 30 minutes, 2, 5, 10, 14, 20 and 24 hours, each up to a fifth" in PAGE
    assert DISABLED_AFTER_S == 3 * 86_400 and "three days" in PAGE
    settings = NoticeSettings()
    assert f"within {settings.answer_s:g} seconds" in PAGE
    assert f"more than {settings.backlog_max:,} messages wait" in PAGE
    assert f"for {settings.log_days:g} days" in PAGE
    assert Deployment.__dataclass_fields__["notices"].default_factory is NoticeSettings


def test_the_page_names_every_command() -> None:
    named = {command.name for command in app.registered_commands}
    assert named == {word for word in named if re.search(rf"notify {word}|\b{word}\b", PAGE)}
