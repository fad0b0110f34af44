"""What a span of time cost: the ledger's sums agree by whatever they are asked for, on both stores, and each key sees its own project's."""

from itertools import pairwise
from random import Random
from typing import Any, get_args

import pytest

from gangline.core.money.cost import DAY_MS, HOUR_MS, Cause
from gangline.core.reports.costs import CAUSES, CostKey
from gangline.service.reports import costs as use_case
from gangline.service.reports.costs import costs
from gangline.sim.scenario import load_scenario
from gangline.sim.simulation import Simulation
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.reports.many import write_nodes_of_reports
from tests.service.test_http import problem
from tests.service.test_rules import succeed

KEYS: tuple[CostKey, ...] = get_args(CostKey)
NEW_YEAR_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""


def ask(service: Service, token: str = OPERATOR, **params: Any) -> dict[str, Any]:
    answer = service.ask("GET", "/v1/costs", token, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def micro(usd: float) -> int:
    return round(usd * 1e6)


def sums(found: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Return the sum of the rows and of what was left out, with their parts, which are those of the whole answer."""
    rows = [*found["rows"], *([found["others"]] if found["others"] else [])]
    parts = {cause: sum(micro(row["parts"].get(cause, 0)) for row in rows) for cause in CAUSES}
    known = {cause: each for cause, each in parts.items() if each}
    assert known == {cause: micro(usd) for cause, usd in found["parts"].items()}
    assert all(micro(row["usd"]) == sum(map(micro, row["parts"].values())) for row in rows)
    total = sum(micro(row["usd"]) for row in rows)
    assert total == micro(found["usd"])
    return total, known


def write_lines(service: Service, *lines: tuple[str, int, int, int], job: str = "", project: str = "") -> None:
    """Write lines of the ledger: cause, beginning, end, micro-dollars."""
    values = ",".join(
        f"('n-{number % 4}', '{job}-{number}', '{cause}', {begins}, {ends}, '{job}', '{project}', {cost})"
        for number, (cause, begins, ends, cost) in enumerate(lines)
    )
    service.execute(
        f"INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) VALUES {values}"
    )


@pytest.fixture
def ledger(service: Service) -> int:
    """Lines of all causes, of seconds and of months, of two projects and of none. Return what they cost together."""
    write_nodes_of_reports(service, 4)
    service.add_project("other")
    chance, total = Random(7), 0
    for job, project in (
        ("", ""),
        (service.submit(), PROJECT),
        (service.submit(), PROJECT),
        (service.submit("other"), "other"),
    ):
        lines = list[tuple[str, int, int, int]]()
        for cause in get_args(Cause):
            for _ in range(6):
                begins = NEW_YEAR_MS + chance.randrange(200 * DAY_MS)
                ends = begins + chance.choice((0, 1, 999, 5 * HOUR_MS + 7, 3 * DAY_MS, 95 * DAY_MS + 1))
                cost = chance.randrange(-50, 0) if ends == begins else chance.choice((0, 1, 7, 10**6 + 3, 10**11 + 9))
                lines.append((cause, begins, ends, cost))
                total += cost
        write_lines(service, *lines, job=job, project=project)
    return total


@pytest.mark.parametrize("by", KEYS)
def test_the_sums_are_the_whole_ledger_by_whatever_they_are_asked_for(service: Service, ledger: int, by: str) -> None:
    for zone in ("UTC", "America/New_York", "Asia/Kathmandu"):
        assert sums(ask(service, by=by, zone=zone))[0] == ledger


def test_the_sums_of_any_span_agree_and_those_of_its_parts_add_up(service: Service, ledger: int) -> None:
    cuts = ["2026-01-01T00:00:00Z", "2026-02-03T04:05:06.789Z", "2026-02-03T18:00:00Z", "2026-07-01T00:00:00+02:00"]
    spans = [
        {"until": cuts[0]},
        *({"since": a, "until": b} for a, b in pairwise(cuts)),
        {"since": cuts[-1]},
    ]
    found = [{by: sums(ask(service, by=by, zone="Europe/Berlin", **span)) for by in KEYS} for span in spans]
    for of_span in found:
        assert all(each == of_span["cause"] for each in of_span.values())
    assert sum(of_span["day"][0] for of_span in found) == ledger


def test_a_line_costs_each_day_as_much_as_it_has_time_in_it(service: Service) -> None:
    """In Berlin the 29th of March 2026 has 23 hours."""
    begins = NEW_YEAR_MS + 85 * DAY_MS + 23 * HOUR_MS  # the 28th begins there
    write_lines(service, ("training", begins, begins + 71 * HOUR_MS, 71_000_000), ("correction", begins, begins, -5))
    rows = ask(service, by="day", zone="Europe/Berlin")["rows"]
    assert [row["key"] for row in rows] == ["2026-03-28", "2026-03-29", "2026-03-30"]
    assert [row["usd"] for row in rows] == pytest.approx([24, 23, 24], abs=0.001)
    assert rows[0]["parts"]["correction"] == -5e-6 and rows[0]["label"] == "2026-03-28"


def test_the_rows_that_cost_most_come_first_and_the_others_are_one(service: Service) -> None:
    jobs = [service.submit() for _ in range(5)]
    for number, job in enumerate(jobs):
        write_lines(service, ("training", NEW_YEAR_MS, NEW_YEAR_MS + 5, 10 + number), job=job, project=PROJECT)
    found = ask(service, by="job", limit=2)
    assert [(row["key"], row["label"], micro(row["usd"])) for row in found["rows"]] == [
        (jobs[4], "sks dog", 14),
        (jobs[3], "sks dog", 13),
    ]
    assert (found["others"]["label"], micro(found["others"]["usd"]), found["others_count"]) == ("3 others", 33, 3)
    assert (ask(service, by="job", limit=5)["others"], ask(service, by="job", limit=5)["others_count"]) == (None, 0)


def test_time_of_nodes_that_nobody_caused_is_shown_to_operators_alone(service: Service) -> None:
    write_nodes_of_reports(service, 4)
    write_lines(service, ("idle", NEW_YEAR_MS, NEW_YEAR_MS + 5, 70))
    write_lines(service, ("training", NEW_YEAR_MS, NEW_YEAR_MS + 5, 4), job=service.submit(), project=PROJECT)
    service.add_project("other")
    write_lines(service, ("training", NEW_YEAR_MS, NEW_YEAR_MS + 5, 1), job=service.submit("other"), project="other")
    labels = {row["label"]: micro(row["usd"]) for row in ask(service, by="project")["rows"]}
    assert labels == {"no project": 70, PROJECT: 4, "other": 1}
    assert {row["label"] for row in ask(service, by="node")["rows"]} == {"node-0"}
    assert {row["key"] for row in ask(service, by="pool")["rows"]} == {"pool-0"}
    for by in KEYS:
        found = ask(service, service.key("viewer"), by=by)
        assert micro(found["usd"]) == 4 and set(found["parts"]) == {"training"}
    headers = {"Authorization": f"Bearer {OPERATOR}", "Gangline-Project": "other"}
    assert micro(service.http.get("/v1/costs?by=cause", headers=headers).json()["usd"]) == 1


def test_users_are_the_keys_that_asked_for_jobs_and_what_nobody_asked_for_is_told_apart(service: Service) -> None:
    jobs = [service.submit(), service.submit(), service.submit()]
    service.key("member")
    (asker,) = {row["id"] for row in service.look("SELECT id FROM credential WHERE role = 'member'")}
    service.execute(f"UPDATE job SET owner = '{asker}' WHERE id IN ('{jobs[0]}', '{jobs[1]}')")
    for number, job in enumerate(jobs):
        line = ("training", NEW_YEAR_MS, NEW_YEAR_MS + 5, 10**number)
        write_lines(service, line, job=job, project=PROJECT)
    write_lines(service, ("idle", NEW_YEAR_MS, NEW_YEAR_MS + 5, 1000))
    (name,) = {row["name"] for row in service.look(f"SELECT name FROM credential WHERE id = '{asker}'")}
    rows = ask(service, by="user")["rows"]
    assert [(row["key"], row["label"], micro(row["usd"])) for row in rows] == [
        ("", "no user", 1000),
        ("unknown", "unknown", 100),
        (asker, name or asker, 11),
    ]
    assert sums(ask(service, by="user", limit=1))[0] == 1111


def test_gpus_are_those_of_the_nodes_and_a_node_without_one_is_told_apart(service: Service) -> None:
    write_nodes_of_reports(service, 4)
    service.execute("UPDATE node SET gpu = '' WHERE id = 'n-2'")
    job, lines = service.submit(), []
    for number, node in enumerate(("n-0", "n-1", "n-2", "gone", "")):
        begins = NEW_YEAR_MS + number
        lines.append(f"('{node}', 'a', 'storage', {begins}, {begins + 5}, '{job}', '{PROJECT}', {10**number})")
    columns = "node, attempt, cause, from_ms, to_ms, job, project, micro_usd"
    service.execute(f"INSERT INTO ledger ({columns}) VALUES {','.join(lines)}")
    rows = ask(service, by="gpu")["rows"]
    assert [(row["key"], row["label"], micro(row["usd"])) for row in rows] == [
        ("", "no node", 10_000),
        ("unknown", "unknown", 1000),
        ("none", "none", 100),
        ("gpu-1", "gpu-1", 10),
        ("gpu-0", "gpu-0", 1),
    ]


def test_what_a_project_has_spent_is_what_its_lines_cost(service: Service) -> None:
    job, node = service.submit(), service.join()
    assignment = service.claim(node)
    service.wait(100)
    found = ask(service, service.key("viewer"), by="job")
    assert (found["usd"], found["rows"], micro(found["running_usd"])) == (0, [], 10_000)
    succeed(service, node, assignment.hold)
    found = ask(service, service.key("viewer"), by="job")
    assert (found["running_usd"], [row["key"] for row in found["rows"]]) == (0, [job])
    assert found["usd"] == service.ask("GET", "/v1/project").json()["spent_usd"] > 0


def test_a_price_that_is_not_known_is_named(service: Service) -> None:
    assert ask(service)["cost_lacks"] == ["storage", "egress"]
    service.submit()
    token = service.join_token(pool="unpriced")["secret"]
    assert service.join_with(token).is_success
    (node,) = service.look("SELECT id FROM node")
    service.claim(node["id"])
    assert ask(service)["cost_lacks"] == ["node time", "storage", "egress"]
    assert ask(service, until="1970-01-02T00:00:00Z")["cost_lacks"] == ["storage", "egress"]


def test_what_cannot_be_asked_is_refused_in_a_sentence(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**params: str) -> str:
        return problem(service.ask("GET", "/v1/costs", params=params), 422, "bad-input")["detail"]

    assert refused(zone="Mars/Olympus") == "zone: there is no time zone 'Mars/Olympus'"
    assert "not a time" in refused(since="yesterday")
    assert service.ask("GET", "/v1/costs", params={"by": "colour"}).status_code == 422
    monkeypatch.setattr(use_case, "DAYS_MAX", 10)
    write_lines(service, ("idle", NEW_YEAR_MS, NEW_YEAR_MS + 11 * DAY_MS, 70))
    assert refused(by="day") == "these are more than 10 days, the most that one answer has"
    assert ask(service, by="day", since="2026-01-05T00:00:00Z")["rows"][0]["key"] == "2026-01-05"
    assert ask(service, by="cause")["usd"] == 70e-6


@pytest.mark.parametrize(
    "seed", [3, pytest.param(4, marks=pytest.mark.nightly), pytest.param(5, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_sums_of_a_simulated_ledger_agree_and_are_what_projects_spent(service: Service, seed: int) -> None:
    """With interruptions, failures, start-ups, idle nodes and corrections of providers' bills."""
    played = Simulation(load_scenario("small"), seed=seed)
    played.run()
    deployment = played.service.deployment
    (whole,) = played.store.look("SELECT SUM(micro_usd) FROM ledger")[0]
    for project in (None, *(row["id"] for row in deployment.store.load("projects"))):
        found = {by: costs(deployment, project, by, 0) for by in KEYS}
        for each in found.values():
            rows = [*each.rows, *([each.others] if each.others else [])]
            assert sum(micro(row.usd) for row in rows) == micro(each.usd)
        assert len({(each.usd, tuple(each.parts.items())) for each in found.values()}) == 1
        if project is None:
            assert micro(found["day"].usd) == whole > 0
        else:
            (known,) = deployment.store.load("project", id=project)
            assert micro(found["job"].usd - found["job"].parts.get("storage", 0)) == known["spent"]
