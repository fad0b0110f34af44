"""A threshold of costs tells the endpoints that its operator names, once for each share in a day or month, and stops nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gangline.core.money.cost import DAY_MS, HOUR_MS
from gangline.service.controller import Controller
from gangline.service.reports.thresholds import watch_thresholds
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.notices.conftest import Notifying
from tests.service.test_http import problem

PLACE = "/v1/costs/thresholds"
WISH = {"usd": 10, "per": "day", "project": PROJECT}


def put(service: Service, **wish: Any) -> dict[str, Any]:
    answer = service.ask("PUT", PLACE, OPERATOR, json=WISH | wish)
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(service: Service, token: str = OPERATOR) -> list[dict[str, Any]]:
    return service.ask("GET", PLACE, token).json()


def spend(service: Service, job: str, usd: float, project: str = PROJECT) -> None:
    """A line of the ledger that ended just now."""
    now_ms = service.now_ms
    service.execute(
        "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
        f"VALUES ('n', 'a', 'training', {now_ms - 1}, {now_ms}, '{job}', '{project}', {round(usd * 1e6)})"
    )


def at_noon(notifying: Notifying) -> None:
    store = notifying.service.store
    store.time_ms += DAY_MS - store.now_ms() % DAY_MS + DAY_MS // 2
    notifying.wait(0)


def heard(notifying: Notifying) -> list[str]:
    return [json.loads(each.body)["data"]["because"] for each in notifying.site.heard]


def test_each_share_is_told_once_a_day_and_the_next_day_again(notifying: Notifying) -> None:
    at_noon(notifying)
    service, endpoint = notifying.service, notifying.to("/hook", "cost_threshold")
    job = notifying.submit()
    put(service, forecast=False)
    for usd in (4, 1.5, 0.1, 3, 2):
        spend(service, job, usd)
        notifying.wait(61)
        notifying.tell()
    of = "of the threshold of $10.00 a day"
    assert heard(notifying) == [
        f"the project default has cost $5.50 today: 50 % {of}",
        f"the project default has cost $8.60 today: 80 % {of}",
        f"the project default has cost $10.60 today: 100 % {of}",
    ]
    first = json.loads(notifying.site.heard[0].body)
    assert first["type"] == "cost.threshold" and first["data"] == {
        "project": PROJECT,
        "fact": first["data"]["fact"],
        "event": "cost threshold",
        "costs_of": "the project default",
        "because": f"the project default has cost $5.50 today: 50 % {of}",
    }
    log = notifying.log(endpoint)
    assert [(each["notice"], each["job"], each["state"]) for each in log] == [("cost_threshold", "", "delivered")] * 3
    (shown,) = listed(service)
    assert [each["percent"] for each in shown["notices"]] == [50, 80, 100] and round(shown["spent_usd"], 2) == 10.6
    notifying.wait(DAY_MS / 1000)
    spend(service, job, 6)
    notifying.wait(61)
    notifying.tell()
    assert len(heard(notifying)) == 4 and "has cost $6.00 today: 50 %" in heard(notifying)[-1]


def test_a_forecast_that_crosses_it_is_told_before_the_money_is_spent(notifying: Notifying) -> None:
    at_noon(notifying)
    service = notifying.service
    notifying.to("/hook", "cost_threshold")
    job, before_ms = notifying.submit(), service.now_ms - 2 * DAY_MS
    service.execute(
        "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
        f"VALUES ('n', 'a', 'training', {before_ms}, {before_ms + HOUR_MS}, '{job}', '{PROJECT}', 5)"
    )
    service.claim(service.join())
    (lease,) = service.look("SELECT price_micro_usd_per_hour AS price FROM lease")
    price = lease["price"] / 1e6
    shown = put(service, usd=8 * price, percents=[100])
    assert shown["expected_usd"] > shown["usd"] > shown["spent_usd"]
    for _ in range(3):
        notifying.wait(20)
        notifying.tell()
    (because,) = heard(notifying)
    assert because.startswith("the project default is expected to cost $") and "a day" in because
    (shown,) = listed(service)
    assert [(each["percent"], each["forecast"]) for each in shown["notices"]] == [(100, True)]


def test_two_servers_tell_once(notifying: Notifying) -> None:
    at_noon(notifying)
    service, endpoint = notifying.service, notifying.to("/hook", "cost_threshold")
    other = replace(service.deployment, server="another")
    put(service, percents=[50])
    spend(service, notifying.submit(), 6)
    notifying.wait(61)
    watch_thresholds(other, service.now_ms)  # it has no turn
    assert service.look("SELECT * FROM cost_crossing") == []
    service.tick()
    watch_thresholds(service.deployment, service.now_ms)
    watch_thresholds(other, service.now_ms)
    Controller(other).tick(service.now_ms)
    notifying.send()
    assert len(notifying.log(endpoint)) == len(service.look("SELECT * FROM cost_crossing")) == 1


def test_a_crossing_has_a_number_that_no_event_has(notifying: Notifying) -> None:
    at_noon(notifying)
    service, endpoint = notifying.service, notifying.to("/hook", "cost_threshold", "submitted")
    put(service, percents=[50])
    spend(service, notifying.submit(seed=1), 6)
    notifying.tell()
    notifying.wait(61)
    notifying.tell()
    notifying.submit(seed=2)
    notifying.tell()
    log = notifying.log(endpoint)
    assert [each["notice"] for each in log] == ["submitted", "cost_threshold", "submitted"]
    assert [each["fact"] for each in log] == [3, 2, 1]
    facts = service.ask("GET", "/v1/facts").json()
    assert [each["number"] for each in facts] == [1, 3]
    again = notifying.ask("POST", f"/{endpoint}/replay", json={"message": log[1]["id"]})
    assert again["replayed"] == 1
    notifying.send()
    assert len(notifying.site.heard) == 4 and notifying.site.heard[-1].body == notifying.site.heard[1].body


def test_crossings_are_replayed_with_the_facts_among_which_they_are_numbered(notifying: Notifying) -> None:
    at_noon(notifying)
    service, endpoint = notifying.service, notifying.to("/hook", "cost_threshold", "submitted")
    other = notifying.to("/other", "submitted")
    put(service, percents=[50], forecast=False)
    job = notifying.submit(seed=1)
    notifying.tell()
    notifying.wait(61)
    spend(service, job, 6)
    notifying.tell()
    crossed_ms = listed(service)[0]["notices"][0]["at_ms"]
    notifying.wait(61)
    notifying.submit(seed=2)
    notifying.tell()

    def replayed(of: str, **body: int) -> list[int]:
        before = len(notifying.site.heard)
        notifying.ask("POST", f"/{of}/replay", json=body)
        notifying.send()
        return sorted(json.loads(each.body)["data"]["fact"] for each in notifying.site.heard[before:])

    assert replayed(endpoint, after=0) == [1, 2, 3] and replayed(other, after=0) == [1, 3]
    assert replayed(endpoint, after=1) == [2, 3] and replayed(endpoint, after=2) == [3]
    assert replayed(endpoint, since_ms=crossed_ms) == [2, 3] and replayed(endpoint, since_ms=crossed_ms + 1) == [3]


def test_a_threshold_that_nobody_hears_of_says_so_and_its_notice_waits(notifying: Notifying) -> None:
    at_noon(notifying)
    service = notifying.service
    deaf, disabled = notifying.to("/deaf", "submitted"), notifying.to("/off", "cost_threshold")
    notifying.ask("PATCH", f"/{disabled}", json={"state": "disabled"})
    assert put(service, percents=[50], forecast=False)["endpoints"] == 0
    spend(service, notifying.submit(), 6)
    notifying.wait(61)
    notifying.tell()
    (shown,) = listed(service)
    assert (shown["endpoints"], shown["notices"], service.look("SELECT * FROM cost_crossing")) == (0, [], [])
    notifying.ask("PATCH", f"/{deaf}", json={"kinds": ["submitted", "cost_threshold"]})
    notifying.to("/late", "cost_threshold")
    notifying.wait(61)
    notifying.tell()
    assert sorted(each.path for each in notifying.site.heard if b"cost.threshold" in each.body) == ["/deaf", "/late"]
    (shown,) = listed(service)
    assert shown["endpoints"] == 2 and [each["percent"] for each in shown["notices"]] == [50]


def test_who_reads_gets_a_sentence_and_several_are_one_message(notifying: Notifying) -> None:
    at_noon(notifying)
    service = notifying.service
    notifying.to("/slack", channel="slack")  # of the kinds that people get if they choose none
    put(service, percents=[50], forecast=False)
    put(service, usd=100, per="month", percents=[5], project="", notify=PROJECT, forecast=False)
    spend(service, notifying.submit(), 6)
    notifying.wait(61)
    notifying.tell()
    [message] = notifying.site.heard
    assert "2 thresholds of costs" in json.loads(message.body)["text"]
    put(service, percents=[60], forecast=False)
    notifying.wait(700)
    notifying.tell()
    text = json.loads(notifying.site.heard[-1].body)["text"]
    assert (
        "A threshold of the costs of the project default" in text and "The project default has cost $6.00 today" in text
    )


def test_sums_are_of_the_project_and_the_pool_that_were_named(service: Service) -> None:
    service.add_project("other")
    node = service.join()
    (pool,) = {row["pool"] for row in service.look(f"SELECT pool FROM node WHERE id = '{node}'")}
    now_ms, job = service.now_ms, service.submit()
    for number, (of_node, project) in enumerate(((node, PROJECT), ("gone", PROJECT), (node, "other"), (node, ""))):
        service.execute(
            "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
            f"VALUES ('{of_node}', 'a', 'storage', {now_ms - number - 1}, {now_ms}, '{job}', '{project}', {10**number})"
        )
    wanted = {"per": "month", "notify": PROJECT}
    sums = [
        put(service, **wanted, project=project, pool=of_pool)["spent_usd"]
        for project in (PROJECT, "other", "")
        for of_pool in ("", pool)
    ]
    assert [round(usd * 1e6) for usd in sums] == [11, 1, 100, 100, 1111, 1101]
    assert [each["project"] for each in listed(service, service.key("viewer"))] == [PROJECT, PROJECT]


def test_a_threshold_is_changed_and_removed_by_operators_and_another_amount_is_told_anew(notifying: Notifying) -> None:
    at_noon(notifying)
    service = notifying.service
    notifying.to("/hook", "cost_threshold")
    first = put(service, percents=[100, 50, 50], forecast=False)
    assert first["percents"] == [50, 100]
    spend(service, notifying.submit(), 6)
    for usd, told in ((10, 1), (10, 1), (11, 2)):
        assert put(service, usd=usd, percents=[50], forecast=False)["id"] == first["id"]
        notifying.wait(61)
        notifying.tell()
        assert len(heard(notifying)) == told
    member = service.key("admin")
    assert service.ask("PUT", PLACE, member, json=WISH).status_code == 403
    assert service.ask("DELETE", f"{PLACE}/{first['id']}", member).status_code == 403
    for _ in range(2):
        assert service.ask("DELETE", f"{PLACE}/{first['id']}", OPERATOR).status_code == 204
    assert listed(service) == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_what_cannot_be_set_is_refused_in_a_sentence_and_nothing_is_set(service: Service) -> None:
    def refused(status: int = 422, **wish: Any) -> str:
        kind = "not-found" if status == 404 else "bad-input"
        return problem(service.ask("PUT", PLACE, OPERATOR, json=WISH | wish), status, kind)["detail"]

    assert refused(project="") == "nobody would get a notice"
    assert refused(404, project="nobody") == refused(404, notify="nobody") == "there is no project nobody"
    assert refused(404, pool="spott") == "there is no pool spott"
    assert refused(zone="Mars") == "zone: there is no time zone 'Mars'"
    for wish in ({"usd": 0}, {"usd": -1}, {"per": "week"}, {"percents": []}, {"percents": [0]}, {"percents": [1001]}):
        assert service.ask("PUT", PLACE, OPERATOR, json=WISH | wish).status_code == 422, wish
    assert listed(service) == []
