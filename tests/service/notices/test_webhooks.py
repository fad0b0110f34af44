"""Webhooks as Standard Webhooks says: each fact arrives, signed, under one id; the reference implementation verifies each."""

from dataclasses import replace
from datetime import timedelta

import pytest
from standardwebhooks import WebhookVerificationError

from gangline.adapters.sealing import JweSealer
from gangline.core.notices.retry import RETRY_S
from gangline.core.parsing import to_json
from gangline.service.facts import number_facts
from gangline.service.notices.endpoints import reseal_endpoints
from tests.service.conftest import PROJECT
from tests.service.notices.conftest import ENDPOINTS, Notifying

DAY_S = 86_400
HTML = "<script>alert(1)</script>"


def test_an_endpoint_is_told_of_each_fact_that_it_chose_and_the_reference_implementation_verifies_it(
    notifying: Notifying,
) -> None:
    service = notifying.service
    endpoint = notifying.to("/hook", "submitted", "canceled")
    job = notifying.submit()
    service.ask("POST", f"/v1/jobs/{job}/pause").raise_for_status()
    service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    notifying.tell()
    first, second = notifying.site.at("/hook")
    assert first.verify(notifying.secrets[endpoint])["type"] == "job.submitted"
    told = second.verify(notifying.secrets[endpoint])
    assert (told["type"], told["data"]["job"], told["data"]["state"]) == ("job.canceled", job, "canceled")
    assert [first.json["data"]["fact"], told["data"]["fact"]] == [1, 3], "its number is that of the stream of facts"
    assert first.headers["content-type"] == "application/json"
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered", "delivered"]
    assert notifying.ask("GET", f"/{endpoint}")["delivered_ms"] == service.now_ms
    notifying.tell()
    assert len(notifying.site.heard) == 2, "it is sent once"


def test_nobody_is_told_of_what_happened_before_or_of_another_project(notifying: Notifying) -> None:
    service = notifying.service
    service.add_project("other")
    notifying.submit(seed=1)
    service.tick()
    service.wait(1)
    notifying.to("/mine", "submitted")
    notifying.to("/others", "submitted", project="other")
    notifying.submit(seed=2)
    other = notifying.submit("other", seed=3)
    notifying.tell()
    assert notifying.site.facts("/mine") == [2]
    assert [each.json["data"]["job"] for each in notifying.site.at("/others")] == [other]


def test_a_fact_that_had_happened_before_but_has_no_number_yet_is_not_told(notifying: Notifying) -> None:
    notifying.submit()
    notifying.wait(1)
    notifying.to("/hook", "submitted")
    notifying.tell()
    assert notifying.site.heard == []


def test_without_a_choice_a_webhook_is_told_of_each_change_of_a_jobs_state(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook")
    shown = notifying.ask("GET", f"/{endpoint}")
    assert {"submitted", "succeeded", "failed", "over_budget"} <= set(shown["kinds"])
    assert "committed" not in shown["kinds"]


def test_every_try_has_the_same_id_and_bytes_and_a_timestamp_of_its_own(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    notifying.site.answers["/hook"] = 500
    notifying.submit()
    notifying.tell()
    notifying.wait(RETRY_S[0] * 1.3)
    notifying.service.ask("POST", f"/v1/jobs/{notifying.log(endpoint)[0]['job']}/cancel").raise_for_status()
    notifying.tell()
    first, second = notifying.site.heard
    assert (first.id, first.body) == (second.id, second.body)
    assert int(second.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"]) in (6, 7)
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]
    [notice] = notifying.log(endpoint)
    assert (notice["id"], notice["state"], notice["tries"]) == (first.id, "waiting", 2)
    assert notice["because"] == "127.0.0.1 answered 500"


def test_a_notice_that_fails_is_tried_for_three_days_while_later_facts_are_told(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    failing = iter([500] * len(RETRY_S))
    notifying.site.answers["/hook"] = lambda: next(failing, 204)
    notifying.submit(seed=1)
    for pause_s in (0.0, *RETRY_S[:-1]):
        notifying.wait(pause_s * 1.2 + 1)
        notifying.tell()
    assert notifying.site.facts("/hook") == [1] * len(RETRY_S)
    notifying.submit(seed=2)
    notifying.tell()
    assert notifying.site.facts("/hook")[-1] > 1, "a later fact does not wait for an earlier one"
    notifying.wait(RETRY_S[-1] * 1.2 + 1)
    notifying.tell()
    assert notifying.site.facts("/hook")[-1] == 1
    assert [each["state"] for each in notifying.log(endpoint)] == ["delivered", "delivered"]


def test_after_the_last_try_a_notice_has_failed_and_says_why(notifying: Notifying) -> None:
    bad = notifying.to("/bad", "submitted")
    notifying.to("/good", "submitted")
    notifying.site.answers["/bad"] = 503
    notifying.submit()
    for pause_s in (0.0, *RETRY_S):
        notifying.wait(pause_s * 1.2 + 1)
        notifying.tell()
    [notice] = notifying.log(bad)
    assert notice["state"] in ("failed", "dropped") and "answered 503" in notice["because"]
    shown = notifying.ask("GET", f"/{bad}")
    assert shown["state"] == "disabled"
    assert shown["because"] == "nothing could be delivered for three days: 127.0.0.1 answered 503"
    assert len(notifying.site.at("/good")) == 1


def test_an_endpoint_that_recovers_has_three_days_again(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    for status, days in ((500, 0.0), (204, 2.0), (500, 0.5), (500, 2.0)):
        notifying.wait(days * DAY_S)
        notifying.site.answers["/hook"] = status
        notifying.submit(seed=status + round(days * 10))
        notifying.tell()
        assert notifying.ask("GET", f"/{endpoint}")["state"] == "active"
        assert (notifying.ask("GET", f"/{endpoint}")["failing_since_ms"] is None) == (status == 204)


def test_a_receiver_that_answers_410_is_sent_nothing_more(notifying: Notifying) -> None:
    endpoint = notifying.to("/gone", "submitted")
    for seed in range(3):
        notifying.submit(seed=seed)
    notifying.site.answers["/gone"] = 410
    notifying.tell()
    assert len(notifying.site.heard) == 1
    assert [each["state"] for each in notifying.log(endpoint)] == ["dropped"] * 3
    notifying.submit(seed=9)
    notifying.tell()
    shown = notifying.ask("GET", f"/{endpoint}")
    assert (shown["state"], shown["waiting"]) == ("disabled", 0) and "answered 410" in shown["because"]
    assert len(notifying.log(endpoint)) == 3, "a disabled endpoint receives nothing"


def test_a_receiver_that_asks_to_wait_is_sent_nothing_meanwhile(notifying: Notifying) -> None:
    notifying.to("/busy", "submitted")
    notifying.site.answers["/busy"] = 429
    for seed in range(2):
        notifying.submit(seed=seed)
        notifying.tell()
    assert notifying.site.facts("/busy") == [1]
    notifying.wait(601)
    notifying.site.answers["/busy"] = 204
    notifying.tell()
    assert sorted(notifying.site.facts("/busy")) == [1, 1, 2]


def test_html_in_a_name_arrives_as_data_in_ascii(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted", name="<img src=x onerror=alert(1)>")
    service = notifying.service
    service._keep_photo(PROJECT)
    submitted = {"spec": to_json(service.spec()), "name": f"{HTML} 猫"}
    job = service.ask("POST", "/v1/jobs", json=submitted).json()
    notifying.tell()
    [heard] = notifying.site.heard
    assert heard.body.isascii()
    assert heard.verify(notifying.secrets[endpoint])["data"]["name"] == f"{HTML} 猫" == job["summary"]["name"]
    assert notifying.ask("POST", f"/{endpoint}/test")["delivered"]


# ------------------------------------------------------------------------------------------------------------- secrets


def test_no_secret_and_no_address_is_in_the_database_or_in_another_answer(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook?token=very-secret", "submitted", name="hook")
    secret = notifying.secrets[endpoint]
    shown = str([notifying.ask("GET"), notifying.ask("GET", f"/{endpoint}"), notifying.log(endpoint)])
    dump = notifying.service.dump()
    for hidden in ("very-secret", secret, secret.removeprefix("whsec_")):
        assert hidden not in dump and hidden not in shown
    assert notifying.ask("GET", f"/{endpoint}")["to"] == notifying.site.url


def test_while_a_secret_rotates_both_verify_and_then_the_new_one_alone(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    old = notifying.secrets[endpoint]
    new = notifying.ask("POST", f"/{endpoint}/rotate", json={"old_s": 60})["secret"]
    assert new != old and new.startswith("whsec_")
    notifying.submit(seed=1)
    notifying.tell()
    for secret in (old, new):
        notifying.site.heard[0].verify(secret)
    assert notifying.ask("GET", f"/{endpoint}")["old_until_ms"] == notifying.service.now_ms + 60_000
    notifying.wait(61)
    notifying.submit(seed=2)
    notifying.tell()
    late = notifying.site.heard[1]
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        late.verify(old)
    assert len(late.headers["webhook-signature"].split()) == 1
    assert notifying.ask("GET", f"/{endpoint}")["old_until_ms"] is None


def test_two_endpoints_have_two_secrets(notifying: Notifying) -> None:
    secrets = {notifying.secrets[notifying.to(path, "submitted")] for path in ("/a", "/b")}
    assert len(secrets) == 2


def test_a_secret_stays_the_same_when_the_deployments_key_changes_until_the_old_key_is_gone(
    notifying: Notifying,
) -> None:
    service = notifying.service
    endpoint = notifying.to("/hook", "submitted")
    first, second = "a key of 32 characters, or longer", "another key of 32 characters, or longer"

    def with_keys(*keys: str) -> None:
        service.deployment = replace(service.deployment, sealer=JweSealer(keys))
        service.app.state.deployment = service.deployment
        reseal_endpoints(service.deployment)
        notifying.restart()

    with_keys(second, first)
    notifying.submit(seed=1)
    notifying.tell()
    notifying.site.heard[-1].verify(notifying.secrets[endpoint])
    with_keys(second)
    shown = notifying.ask("GET", f"/{endpoint}")
    assert "rotate its secret" in shown["because"], (
        "its address is readable under the new key, but its secret is not derived from that"
    )
    notifying.submit(seed=2)
    notifying.tell()
    assert len(notifying.site.heard) == 1 and notifying.ask("GET", f"/{endpoint}")["waiting"] == 1
    new = notifying.ask("POST", f"/{endpoint}/rotate")["secret"]
    notifying.wait(61)
    notifying.send()
    notifying.site.heard[-1].verify(new)


# ----------------------------------------------------------------------------------------------------- log and replay


def test_a_message_is_replayed_under_the_id_that_it_has(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    notifying.submit()
    notifying.tell()
    [heard] = notifying.site.heard
    assert notifying.ask("POST", f"/{endpoint}/replay", json={"message": heard.id})["replayed"] == 1
    notifying.send()
    assert [each.id for each in notifying.site.heard] == [heard.id] * 2
    assert notifying.site.heard[1].verify(notifying.secrets[endpoint]) == heard.json


def test_facts_are_replayed_after_a_number_or_since_a_moment_also_those_that_were_never_sent(
    notifying: Notifying,
) -> None:
    endpoint = notifying.to("/hook", "submitted")
    notifying.ask("PATCH", f"/{endpoint}", json={"state": "disabled"})
    for seed in range(4):
        notifying.submit(seed=seed)
        notifying.tell()
        notifying.wait(10)
    since_ms = notifying.service.now_ms - 15_000
    refused = notifying.service.ask("POST", f"{ENDPOINTS}/{endpoint}/replay", json={"after": 0})
    assert refused.status_code == 422 and "is disabled" in refused.text
    notifying.ask("PATCH", f"/{endpoint}", json={"state": "active"})
    notifying.send()
    assert notifying.site.heard == []
    found = notifying.ask("POST", f"/{endpoint}/replay", json={"after": 1})
    assert (found["replayed"], found["through"], found["more"]) == (3, 4, False)
    notifying.send()
    assert sorted(notifying.site.facts("/hook")) == [2, 3, 4]
    assert notifying.ask("POST", f"/{endpoint}/replay", json={"since_ms": since_ms})["replayed"] == 1
    notifying.send()
    assert sorted(notifying.site.facts("/hook")) == [2, 3, 4, 4]


def test_a_replay_never_sends_what_the_endpoint_is_not_told_of(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "canceled")
    notifying.service.add_project("other")
    job = notifying.submit()
    notifying.submit("other")
    notifying.service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    notifying.tell()
    assert notifying.ask("POST", f"/{endpoint}/replay", json={"after": 0})["replayed"] == 1
    notifying.send()
    assert notifying.site.facts("/hook") == [2, 2]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "nothing to send again is named"),
        ({"message": "msg_x_1", "after": 1}, "contradict"),
        ({"message": "msg_x_1"}, "has no message"),
        ({"message": "nonsense"}, "has no message"),
    ],
)
def test_a_replay_of_nothing_is_a_sentence(notifying: Notifying, body: object, says: str) -> None:
    endpoint = notifying.to("/hook")
    answer = notifying.service.ask("POST", f"{ENDPOINTS}/{endpoint}/replay", json=body)
    assert answer.status_code in (404, 422) and says in answer.text


def test_the_log_has_pages_newest_first(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    for seed in range(120):
        notifying.submit(seed=seed)
    notifying.service.tick()
    first = notifying.ask("GET", f"/{endpoint}/log")
    assert [each["fact"] for each in first["notices"]] == list(range(120, 20, -1)) and first["next"] == 21
    second = notifying.ask("GET", f"/{endpoint}/log?before=21")
    assert [each["fact"] for each in second["notices"]] == list(range(20, 0, -1)) and second["next"] is None


def test_the_log_is_kept_for_as_long_as_the_settings_say(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted")
    notifying.submit(seed=1)
    notifying.tell()
    notifying.wait(timedelta(days=29).total_seconds())
    notifying.submit(seed=2)
    notifying.tell()
    assert len(notifying.log(endpoint)) == 2
    notifying.wait(timedelta(days=2).total_seconds())
    notifying.service.tick()
    assert [each["fact"] for each in notifying.log(endpoint)] == [2]


def test_a_job_that_its_owner_deletes_takes_its_notices_with_it(notifying: Notifying) -> None:
    endpoint = notifying.to("/hook", "submitted", "canceled")
    service = notifying.service
    job, kept = notifying.submit(seed=1), notifying.submit(seed=2)
    service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    service.tick()
    service.ask("DELETE", f"/v1/jobs/{job}").raise_for_status()
    notifying.send()
    assert [each.json["data"]["job"] for each in notifying.site.heard] == [kept]
    assert [each["job"] for each in notifying.log(endpoint)] == [kept]


def test_a_backlog_is_bounded_and_the_log_says_what_was_dropped(notifying: Notifying) -> None:
    service = notifying.service
    service.deployment = replace(service.deployment, notices=replace(service.deployment.notices, backlog_max=3))
    endpoint = notifying.to("/hook", "submitted")
    other = notifying.to("/other", "submitted")
    notifying.service.execute(f"UPDATE endpoint SET hold_until_ms = {service.now_ms + 10**9} WHERE id = '{endpoint}'")
    for seed in range(5):
        notifying.submit(seed=seed)
    number_facts(service.deployment, service.now_ms)
    notifying.send()
    service.tick()
    log = notifying.log(endpoint)
    assert [each["state"] for each in log] == ["waiting"] * 3 + ["dropped"] * 2
    assert log[-1]["because"] == "more than 3 notices waited for this endpoint"
    assert [each["state"] for each in notifying.log(other)] == ["delivered"] * 5
