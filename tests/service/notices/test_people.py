"""Endpoints for people: sentences by mail, chat and ntfy, together instead of a flood, and not in quiet hours."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gangline.adapters.notifiers.mail import Mailer
from gangline.core.server.mail import MailSettings
from gangline.ports.server import Failed
from gangline.service.jobs.finish import finish
from gangline.service.notices import messages
from tests.mailbox import Mailbox, mailbox
from tests.service.notices.conftest import ENDPOINTS, Notifying

TO = "someone@example.com"
MINUTE_S = 60


@pytest.fixture
def box(notifying: Notifying) -> Iterator[Mailbox]:
    with mailbox() as box:
        service = notifying.service
        settings = MailSettings(
            host="127.0.0.1",
            port=box.port,
            security="none",
            sender="gangline@example.com",
            domains=("example.com", "example.org"),
        )
        service.deployment = replace(service.deployment, mailer=Mailer(settings, service.store.now_ms))
        service.app.state.deployment = service.deployment
        notifying.restart()
        yield box


def fail(notifying: Notifying, name: str, after_s: float = 0) -> str:
    """A job that fails for good."""
    service = notifying.service
    job = notifying.submit(attempts_max=1, seed=len(name))
    node = service.join(name)
    hold = service.claim(node).hold
    service.wait(after_s)
    finish(service.deployment, node, hold, Failed(kind="crashed", because="exit code 1"), service.now_ms)
    return job


def test_who_gets_mail_reads_why_a_job_failed(notifying: Notifying, box: Mailbox) -> None:
    endpoint = notifying.to("/", name="me", channel="mail", address=TO)
    job = fail(notifying, "a")
    notifying.tell()
    [mail] = box.mails
    assert mail["To"] == TO and "failed" in mail["Subject"]
    body = mail.get_body(("plain",))
    assert body is not None and "exit code 1" in body.get_content() and job in body.get_content()
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"]
    shown = notifying.ask("GET", f"/{endpoint}")
    assert (shown["to"], shown["interval_s"]) == ("…@example.com", 600)
    assert TO not in notifying.service.dump()


def test_what_happens_soon_after_is_one_message_together(notifying: Notifying, box: Mailbox) -> None:
    endpoint = notifying.to("/", "submitted", name="me", channel="mail", address=TO)
    notifying.submit(seed=0)
    notifying.tell()
    for seed in range(1, 6):
        notifying.submit(seed=seed)
        notifying.tell()
        notifying.wait(MINUTE_S)
    assert len(box.mails) == 1
    notifying.wait(6 * MINUTE_S)
    notifying.tell()
    assert len(box.mails) == 2 and "5" in box.mails[1]["Subject"]
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"] * 6
    assert box.mails[0]["Message-ID"] != box.mails[1]["Message-ID"]


def test_a_digest_of_many_jobs_has_the_sum_of_their_costs(
    notifying: Notifying, box: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "PART", 2)
    endpoint = notifying.to("/", "failed", name="me", channel="mail", address=TO)
    for name in ("a", "ab", "abc", "abcd", "abcde"):
        fail(notifying, name, after_s=30)
    costs = [each["cost_usd"] for each in notifying.service.ask("GET", "/v1/jobs").json()["jobs"]]
    notifying.tell()
    notifying.wait(11 * MINUTE_S)
    notifying.tell()
    assert {each["state"] for each in notifying.log(endpoint)} == {"delivered"}
    body = box.mails[-1].get_body(("plain",))
    assert body is not None
    assert f"These 5 jobs together cost ${sum(costs):.2f}" in body.get_content() and sum(costs) > 0


def test_in_quiet_hours_nothing_is_sent_and_then_all_of_it(notifying: Notifying) -> None:
    service = notifying.service
    day_ms = 86_400_000
    service.store.time_ms += day_ms - service.now_ms % day_ms  # midnight, UTC
    notifying.wait(3600)
    endpoint = notifying.to("/slack", "submitted", channel="slack", quiet="0:00-7:00 UTC")
    assert notifying.ask("GET", f"/{endpoint}")["quiet"] == "00:00-07:00 UTC"
    for seed in range(2):
        notifying.submit(seed=seed)
    notifying.tell()
    notifying.wait(5 * 3600)
    notifying.tell()
    assert notifying.site.heard == []
    notifying.wait(3601)
    notifying.tell()
    [heard] = notifying.site.heard
    assert "2 jobs" in json.loads(heard.body)["text"]
    refused = service.ask("PATCH", f"{ENDPOINTS}/{endpoint}", json={"quiet": "at night"})
    assert refused.status_code == 422 and "quiet hours are" in refused.text


@pytest.mark.parametrize("channel", ["slack", "discord", "ntfy"])
def test_chats_and_phones_get_one_request_without_a_signature(notifying: Notifying, channel: str) -> None:
    endpoint = notifying.to("/there", channel=channel)
    fail(notifying, "a")
    notifying.tell()
    [heard] = notifying.site.heard
    assert b"exit code 1" in heard.body and "webhook-signature" not in heard.headers
    assert notifying.secrets[endpoint] == ""
    assert notifying.ask("POST", f"/{endpoint}/test")["delivered"]
    rotated = notifying.service.ask("POST", f"{ENDPOINTS}/{endpoint}/rotate")
    assert rotated.status_code == 422 and "only webhooks are signed" in rotated.text


def test_a_message_that_fails_is_sent_again_as_it_was_and_what_has_happened_since_comes_after_it(
    notifying: Notifying,
) -> None:
    endpoint = notifying.to("/slack", "submitted", channel="slack")
    notifying.site.answers["/slack"] = 500
    notifying.submit(seed=0)
    notifying.tell()
    notifying.submit(seed=1)
    notifying.site.answers["/slack"] = 204
    notifying.wait(10)
    notifying.tell()
    assert notifying.site.heard[0].body == notifying.site.heard[1].body
    assert [each["state"] for each in notifying.log(endpoint)] == ["waiting", "delivered"]
    notifying.wait(10 * MINUTE_S)
    notifying.tell()
    assert len(notifying.site.heard) == 3
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered"] * 2


@pytest.mark.parametrize(
    ("channel", "address", "says"),
    [
        ("mail", TO, "this server sends no mail"),
        ("mail", "Eve <eve@example.org>", "mail cannot be sent to this address"),
        ("slack", "ftp://example.org/", "is not an https:// URL"),
        ("webhook", "http://169.254.169.254/latest/", "its address is link-local"),
        ("webhook", "https://10.0.0.1/", "its address is private"),
        ("webhook", "https://user:password@example.org/", "a URL holds a user's name or password"),
    ],
)
def test_an_address_that_nothing_can_be_sent_to_is_one_sentence(
    notifying: Notifying, channel: str, address: str, says: str
) -> None:
    body = {"channel": channel, "address": address, "name": "x"}
    answer = notifying.service.ask("POST", ENDPOINTS, json=body)
    assert answer.status_code == 422 and says in answer.json()["detail"]
    assert notifying.ask("GET") == []


def test_mail_goes_to_no_domain_that_the_operator_does_not_name(notifying: Notifying, box: Mailbox) -> None:
    stranger = {"channel": "mail", "address": "someone@example.net"}
    answer = notifying.service.ask("POST", ENDPOINTS, json=stranger)
    assert answer.status_code == 422
    assert "allows mail to example.com, example.org alone" in answer.json()["detail"]
    assert notifying.ask("GET") == []


def test_nobody_can_ask_for_more_mail_than_the_operator_allows(notifying: Notifying, box: Mailbox) -> None:
    often = {"channel": "mail", "address": TO, "interval_s": 59}
    answer = notifying.service.ask("POST", ENDPOINTS, json=often)
    assert answer.status_code == 422 and "at most one mail in 60 s" in answer.json()["detail"]
    endpoint = notifying.to("/", name="me", channel="mail", address=TO, interval_s=60)
    answer = notifying.service.ask("PATCH", f"{ENDPOINTS}/{endpoint}", json={"interval_s": 0})
    assert answer.status_code == 422 and notifying.ask("GET", f"/{endpoint}")["interval_s"] == 60
    notifying.ask("PATCH", f"/{endpoint}", json={"interval_s": 3600})


def test_a_project_sends_one_test_by_mail_in_that_time_whatever_the_endpoint(
    notifying: Notifying, box: Mailbox
) -> None:
    service = notifying.service
    first, second = (notifying.to("/", name=name, channel="mail", address=TO) for name in ("a", "b"))
    assert notifying.ask("POST", f"/{first}/test")["delivered"]
    for endpoint in (first, second):
        answer = service.ask("POST", f"{ENDPOINTS}/{endpoint}/test")
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "60")
    notifying.wait(60)
    assert notifying.ask("POST", f"/{second}/test")["delivered"]
    assert len(box.mails) == 2
    hook = notifying.to("/hook")
    assert all(notifying.ask("POST", f"/{hook}/test")["delivered"] for _ in range(3)), "webhooks have no pace"
