"""`gangline costs` and `gangline queue`: the real command line against a real server."""

import csv
import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from gangline import Client
from gangline.cli import main
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.reports.many import write_nodes_of_reports
from tests.service.reports.test_cli_reports import Run
from tests.service.reports.test_costs import NEW_YEAR_MS, write_lines
from tests.service.served import Served, serving

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def served(service: Service) -> Iterator[Served]:
    with serving(service.app) as served:
        yield served


@pytest.fixture
def run(served: Served) -> Run:
    return lambda *words: CliRunner().invoke(main.app, [*words, "--server", served.url, "--token", OPERATOR])


@pytest.fixture
def jobs(service: Service) -> list[str]:
    write_nodes_of_reports(service, 4)
    made = [service.submit(), service.submit()]
    for number, job in enumerate(made, 1):
        write_lines(service, ("training", NEW_YEAR_MS, NEW_YEAR_MS + 5, number * 10**6), job=job, project=PROJECT)
    write_lines(service, ("correction", NEW_YEAR_MS, NEW_YEAR_MS, -5000))
    return made


def test_costs_are_a_table_with_a_column_for_each_cause_and_a_sum(run: Run, jobs: list[str]) -> None:
    found = run("costs", "--by", "project")
    assert found.exit_code == 0, found.output
    lines = [line.split() for line in found.stdout.splitlines()]
    assert lines[:4] == [
        ["project", "cost", "training", "correction"],
        ["default", "$3.00", "$3.00", "–"],
        ["no", "project", "-$0.0050", "–", "-$0.0050"],
        ["all", "$3.00", "$3.00", "-$0.0050"],
    ]
    assert "no price is set for storage and egress" in found.stdout
    found = run("costs", "--since", "2026-02-01T00:00:00Z")
    assert "nothing in this span of time has cost anything" in found.stderr


def test_costs_are_lines_for_a_spreadsheet_or_json(run: Run, jobs: list[str]) -> None:
    rows = list(csv.DictReader(run("costs", "--by", "job", "--limit", "1", "-o", "csv").stdout.splitlines()))
    assert [(row["key"], row["usd"], row["correction"]) for row in rows] == [
        (jobs[1], "2.000000", "0.000000"),
        ("", "0.995000", "-0.005000"),
    ]
    assert json.loads(run("costs", "-o", "json").stdout)["rows"][0]["key"] == "2026-01-01"
    refused = run("costs", "--zone", "Mars")
    assert refused.exception is not None and "no time zone" in str(refused.exception)


def test_the_queue_is_a_table_and_each_kind_of_work_says_what_would_help(run: Run, jobs: list[str]) -> None:
    found = run("queue", "--limit", "1")
    assert found.exit_code == 0, found.output
    assert jobs[0] in found.stdout and jobs[1] not in found.stdout
    assert "2 lora of default, the first for" in found.stdout and "  start a worker: `gangline worker`" in found.stdout
    assert "2 jobs wait in all: `gangline queue --after 1` lists more" in found.stderr.replace("\n", " ")
    assert json.loads(run("queue", "-o", "json").stdout)["jobs"] == 2


def test_the_python_client_has_all_of_it(served: Served, jobs: list[str]) -> None:
    with Client(served.url, OPERATOR) as client:
        assert [job.job for job in client.queue.get().page] == jobs
        assert client.costs.get("cause", until="2027-01-01T00:00:00Z").usd == 2.995
        assert [each.project for each in client.costs.budgets().projects] == [PROJECT]
        assert client.costs.fleet().usd_per_hour == 0
