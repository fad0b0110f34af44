"""Reports of a server's jobs: the figures of its ledger and attempts, by both stores, for the jobs that a list has."""

from typing import Any

import pytest

from gangline.service.reports import report as reports
from tests.service.conftest import PROJECT, Service
from tests.service.reports.many import write_nodes_of_reports
from tests.service.test_http import problem

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def write_try(
    service: Service,
    job: str,
    fencing: int,
    node: int,
    state: str,
    *,
    at: int,
    minutes: int,
    steps: tuple[int, int] = (0, 100),
) -> None:
    """Write an attempt that began `at` minutes, and its training in the ledger, at a cent a minute."""
    begun = START_MS + at * MINUTE_MS
    ended = begun + minutes * MINUTE_MS
    where = f"'n-{node}', 'm-{node}', 'pool-{node % 2}', 'gpu-{node % 4}'"
    service.execute(
        "INSERT INTO attempt (id, job, node, machine, pool, gpu, gpu_memory_gb, workload, fencing, kind, committed_step, state, because, "
        "slots, price_micro_usd_per_hour, from_step, step, beat_ms, started_ms, ended_ms, price_known) "
        f"VALUES ('{job}-{fencing}', '{job}', {where}, 24, 'w', {fencing}, '', 0, '{state}', 'so', 1, 600000, {steps[0]}, {steps[1]}, "
        f"{begun}, {begun}, {ended}, 1)",
        f"UPDATE job SET state = '{'queued' if state == 'interrupted' else state}', fencing = {fencing}, "
        f"submitted_ms = {START_MS}, ended_ms = {ended}, because = 'it {state}' WHERE id = '{job}'",
    )
    write_line(service, node, "training" if state != "failed" else "failed", at, minutes, job, fencing)


def write_line(
    service: Service, node: int, cause: str, at: int, minutes: int, job: str = "", fencing: int | None = None
) -> None:
    begun, attempt = START_MS + at * MINUTE_MS, f"{job}-{fencing}" if job else ""
    project = f"(SELECT project FROM job WHERE id = '{job}')" if job else "''"
    service.execute(
        "INSERT INTO ledger (node, attempt, cause, from_ms, to_ms, job, project, micro_usd) "
        f"VALUES ('n-{node}', '{attempt}', '{cause}', {begun}, {begun + minutes * MINUTE_MS}, '{job}', {project}, {minutes * 10_000})"
    )


def report(service: Service, **params: Any) -> dict[str, Any]:
    answer = service.ask("GET", "/v1/report", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def named(groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for group in groups}


@pytest.fixture
def worked(service: Service) -> dict[str, str]:
    """Three jobs by their names on nodes 0 and 1; the nodes are idle for some time, too."""
    write_nodes_of_reports(service, 4)
    jobs = {name: service.submit() for name in ("smooth", "rough", "bad")}
    write_try(service, jobs["smooth"], 1, 0, "succeeded", at=1, minutes=10)
    write_try(service, jobs["rough"], 1, 0, "interrupted", at=11, minutes=5, steps=(0, 60))
    write_try(service, jobs["rough"], 2, 1, "succeeded", at=20, minutes=15, steps=(50, 100))
    write_try(service, jobs["bad"], 1, 1, "failed", at=2, minutes=1)
    write_line(service, 0, "idle", 16, 15)
    write_line(service, 1, "start-up", 1, 1)
    return jobs


def test_the_figures_are_those_of_attempts_and_ledger(service: Service, worked: dict[str, str]) -> None:
    found = report(service)
    assert found["jobs"] == {"failed": 1, "succeeded": 2}
    assert found["attempts"] == {"failed": 1, "interrupted": 1, "succeeded": 2}
    assert found["because"] == [f"{worked['bad']}: it failed"]
    assert found["steps_redone"] == 10
    assert found["first_try_failed_share"] == pytest.approx(1 / 3)
    each = found["per_job"]
    assert (each["share_uninterrupted"], each["share_interrupted_once"]) == (0.5, 0.5)
    assert (each["minutes_min"], each["minutes_mean"], each["minutes_max"]) == (10, 15, 20)
    assert (each["usd_per_job_mean"], each["usd_per_step_min"]) == (pytest.approx(0.15), pytest.approx(0.001))
    assert each["usd_per_job_all_in"] == pytest.approx((0.10 + 0.20 + 0.01 + 0.15 + 0.01) / 2)
    assert {part["cause"]: part["node_hours"] * 60 for part in found["spent"]} == pytest.approx(
        {"training": 30, "start-up": 1, "failed": 1, "idle": 15}
    )
    assert [(wait["project"], wait["jobs"], wait["seconds_max"]) for wait in found["waits"]] == [(PROJECT, 3, 660)]
    assert (found["from_ms"], found["until_ms"]) == (START_MS, START_MS + 35 * MINUTE_MS)


def test_each_gpu_class_and_pool_has_what_its_nodes_did(service: Service, worked: dict[str, str]) -> None:
    found = report(service)
    gpus, pools = named(found["by_gpu"]), named(found["by_pool"])
    assert set(gpus) == {"gpu-0", "gpu-1"} and set(pools) == {"pool-0", "pool-1"}
    assert gpus["gpu-0"]["node_hours"] * 60 == pytest.approx(30)
    assert gpus["gpu-0"]["share_wasted"] == pytest.approx(0.5)
    assert (gpus["gpu-0"]["attempts"], gpus["gpu-0"]["interrupted"], gpus["gpu-0"]["failed"]) == (2, 1, 0)
    assert (pools["pool-1"]["attempts"], pools["pool-1"]["usd"]) == (2, pytest.approx(0.17))


def test_a_node_that_worked_for_others_too_costs_each_its_part(service: Service, worked: dict[str, str]) -> None:
    service.add_project("other")
    theirs = service.submit("other")
    write_try(service, theirs, 1, 0, "succeeded", at=31, minutes=15)  # half of the time that jobs had node 0
    found = report(service)
    assert {part["cause"]: part["node_hours"] * 60 for part in found["spent"]}["idle"] == pytest.approx(7.5)
    assert found["jobs"] == {"failed": 1, "succeeded": 2}


def test_what_a_node_did_for_nobody_before_and_after_is_of_no_report(service: Service, worked: dict[str, str]) -> None:
    write_line(service, 0, "idle", -600, 500)
    write_line(service, 0, "idle", 36, 500)
    assert {part["cause"]: part["node_hours"] * 60 for part in report(service)["spent"]}["idle"] == pytest.approx(15)


def test_a_report_is_of_the_jobs_that_a_list_with_its_filters_has(service: Service, worked: dict[str, str]) -> None:
    service.ask("PATCH", f"/v1/jobs/{worked['smooth']}/labels", json={"labels": {"team": "vision"}})
    assert report(service, label="team=vision")["jobs"] == {"succeeded": 1}
    assert report(service, state=["failed"])["jobs"] == {"failed": 1}
    assert report(service, named=worked["bad"])["jobs"] == {"failed": 1}
    assert report(service, until="2020-01-01T00:00:00Z")["jobs"] == {}
    assert "not a time" in problem(service.ask("GET", "/v1/report", params={"since": "x"}), 422, "bad-input")["detail"]


def test_a_report_lists_jobs_and_attempts_if_it_is_asked_to(service: Service, worked: dict[str, str]) -> None:
    found = report(service)
    assert (found["lines"], found["bars"]) == ([], [])
    found = report(service, include=["jobs", "attempts"])
    lines = {line["id"]: line for line in found["lines"]}
    assert set(lines) == set(worked.values())
    rough = lines[worked["rough"]]
    assert (rough["attempts"], rough["interrupted"], rough["steps_redone"], rough["wait_s"]) == (2, 1, 10, 660)
    assert rough["usd"] == pytest.approx(0.2)
    assert [(bar["machine"], bar["from_ms"] // MINUTE_MS) for bar in found["bars"]] == [
        ("m-0", 1),
        ("m-1", 2),
        ("m-0", 11),
        ("m-1", 20),
    ]


def test_too_many_jobs_or_attempts_are_refused_in_a_sentence(
    service: Service, worked: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "BARS_MAX", 3)
    refused = problem(service.ask("GET", "/v1/report", params={"include": "attempts"}), 422, "bad-input")
    assert refused["detail"] == "these jobs had 4 attempts, and a report lists at most 3"
    monkeypatch.setattr(reports, "JOBS_MAX", 2)
    refused = problem(service.ask("GET", "/v1/report"), 422, "bad-input")
    assert refused["detail"] == "more than 2 jobs meet these filters, which is the most that one report has"
    assert report(service, state=["succeeded"])["jobs"] == {"succeeded": 2}


def test_a_report_says_which_prices_are_not_known(service: Service, worked: dict[str, str]) -> None:
    assert report(service)["cost_lacks"] == ["storage", "egress"]
    service.execute("UPDATE attempt SET price_known = 0 WHERE node = 'n-1'")
    assert report(service)["cost_lacks"] == ["node time", "storage", "egress"]


def test_a_job_that_waits_and_a_project_without_jobs_have_reports(service: Service) -> None:
    assert report(service)["per_job"] is None
    service.submit()
    found = report(service)
    assert (found["jobs"], found["unfinished"], found["waits"], found["cost_lacks"]) == ({"queued": 1}, 1, [], [])


def test_everything_is_the_whole_ledger(service: Service, worked: dict[str, str]) -> None:
    write_line(service, 3, "idle", -600, 500)  # of a node that never worked
    found = reports.report_of_everything(service.store)
    (row,) = service.look("SELECT SUM(micro_usd) AS micro_usd FROM ledger")
    assert found.usd == pytest.approx(int(row["micro_usd"]) / 1e6)
    assert found.jobs == {"failed": 1, "succeeded": 2}
    assert {group.name for group in found.by_gpu} == {"gpu-0", "gpu-1", "gpu-3"}
