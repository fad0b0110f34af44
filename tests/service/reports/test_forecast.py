"""What this day and this month will have cost: of a project, of all, with what runs now, on both stores."""

from typing import Any

from gangline.core.money.cost import DAY_MS, HOUR_MS
from gangline.service.reports.forecast import cost_rates, sums_of_scopes
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.reports.many import write_nodes_of_reports
from tests.service.reports.test_costs import NEW_YEAR_MS, ask, write_lines

NOON_MS = NEW_YEAR_MS + 9 * DAY_MS + DAY_MS // 2
"""2026-01-10T12:00:00Z."""


def forecasts(service: Service, token: str = OPERATOR, zone: str = "UTC") -> dict[str, dict[str, Any]]:
    found = ask(service, token, by="cause", zone=zone, forecast="true")["forecast"]
    return {each["per"]: each for each in found}


def at_noon(service: Service) -> None:
    service.store.time_ms = NOON_MS
    service.wait(0)


def test_a_forecast_is_asked_for_and_has_a_day_and_a_month(service: Service) -> None:
    at_noon(service)
    write_nodes_of_reports(service, 4)
    job = service.submit()
    write_lines(service, ("training", NEW_YEAR_MS, NOON_MS, 228_000_000), job=job, project=PROJECT)  # a dollar an hour
    assert ask(service)["forecast"] == []
    found = forecasts(service)
    day, month = found["day"], found["month"]
    assert (day["from_ms"], day["until_ms"]) == (NOON_MS - DAY_MS // 2, NOON_MS + DAY_MS // 2)
    assert (month["from_ms"], month["until_ms"]) == (NEW_YEAR_MS, NEW_YEAR_MS + 31 * DAY_MS)
    assert round(day["spent_usd"], 2) == 12 and round(month["spent_usd"], 2) == 228
    assert (round(day["usd"], 2), round(day["low_usd"], 2), round(day["high_usd"], 2)) == (12, 12, 24)
    assert round(month["usd"]) == 228 + (21 * 24 + 12) - 24  # nothing runs now, and then the mean
    assert day["because"] == "at the present rate, $0.00 an hour; the mean of the last 7 days is $1.00"


def test_what_runs_now_is_spent_and_is_the_present_rate(service: Service) -> None:
    at_noon(service)
    service.add_project("other")
    other = service.submit("other")
    write_lines(
        service, ("training", NOON_MS - 3 * DAY_MS, NOON_MS - 2 * DAY_MS, 24_000_000), job=other, project="other"
    )
    service.submit()
    service.claim(service.join())
    service.wait(HOUR_MS / 1000)
    (lease,) = service.look("SELECT price_micro_usd_per_hour AS price FROM lease")
    price = lease["price"] / 1e6
    everything, own = forecasts(service), forecasts(service, service.key("viewer"))
    assert price > 0 and round(everything["day"]["spent_usd"], 6) == price == round(own["day"]["spent_usd"], 6)
    assert round(everything["day"]["usd"], 4) == round(12 * price, 4)
    assert f"at the present rate, ${price:.2f} an hour" in everything["day"]["because"]
    assert own["day"]["usd"] is None and own["day"]["because"].startswith("there is no forecast")


def test_time_without_costs_counts_when_there_were_costs_before(service: Service) -> None:
    at_noon(service)
    service.add_project("other")
    jobs = {PROJECT: service.submit(), "other": service.submit("other")}
    write_nodes_of_reports(service, 4)
    month_ms = 30 * DAY_MS

    def cost(project: str, node: str, from_ms: int, to_ms: int) -> None:
        service.execute(
            "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
            f"VALUES ('{node}', 'a', 'training', {from_ms}, {to_ms}, '{jobs[project]}', '{project}', 168000000)"
        )

    cost(PROJECT, "n-0", NOON_MS - month_ms, NOON_MS - month_ms + HOUR_MS)
    own = forecasts(service, service.key("viewer"))
    assert own["month"]["usd"] == own["month"]["spent_usd"] == 0, "what is idle costs nothing"
    cost(PROJECT, "n-0", NOON_MS - HOUR_MS, NOON_MS)
    assert forecasts(service, service.key("viewer"))["day"]["because"].endswith("the mean of the last 7 days is $1.00")
    cost("other", "n-1", NOON_MS - HOUR_MS, NOON_MS)
    sums = sums_of_scopes(service.deployment, "", NOON_MS)
    days = {
        scope: cost_rates(service.deployment, sums, *scope, NOON_MS).observed_ms / DAY_MS
        for scope in (("", ""), (PROJECT, ""), ("other", ""), ("", "pool-0"), ("", "pool-1"), (PROJECT, "pool-1"))
    }
    assert list(days.values()) == [7, 7, 1 / 24, 7, 1 / 24, 0]


def test_days_and_months_are_those_of_the_zone_and_no_data_is_no_forecast(service: Service) -> None:
    at_noon(service)
    day = forecasts(service, zone="Asia/Tokyo")["day"]
    assert day["from_ms"] == NOON_MS - 21 * HOUR_MS and day["until_ms"] == NOON_MS + 3 * HOUR_MS
    assert day["usd"] is None is day["low_usd"] and day["spent_usd"] == 0


def test_an_idle_node_costs_although_the_ledger_has_not_heard_of_it(service: Service) -> None:
    at_noon(service)
    service.join()
    service.wait(HOUR_MS / 1000)
    (node,) = service.look("SELECT price_micro_usd_per_hour AS price FROM node")
    assert round(forecasts(service)["day"]["spent_usd"] * 1e6) == node["price"]
    assert forecasts(service, service.key("viewer"))["day"]["spent_usd"] == 0
