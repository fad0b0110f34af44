"""`gangline costs` and `gangline queue`: the real command line against a real server."""

import csv
import json
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gangline import Client
from gangline.cli import main
from gangline.core.money.cost import DAY_MS
from gangline.core.reports.costs import CAUSES
from gangline.version import VERSION
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


def test_a_parquet_file_has_typed_columns_and_says_what_it_is_about(run: Run, jobs: list[str], tmp_path: Path) -> None:
    file = tmp_path / "costs.parquet"
    found = run("costs", "--zone", "Asia/Tokyo", "--since", "2026-01-01T00:00:00Z", "--to", str(file))
    assert found.exit_code == 0 and "the costs are in" in found.stderr, found.output
    table = pq.read_table(file)
    money = pa.decimal128(18, 6)
    columns = [("key", pa.date32()), ("label", pa.string()), ("usd", money), *((cause, money) for cause in CAUSES)]
    assert [(field.name, field.type) for field in table.schema] == columns
    (row,) = table.to_pylist()
    assert (row["key"], row["usd"], row["training"]) == (date(2026, 1, 1), Decimal("2.995000"), Decimal("3.000000"))
    assert {key.decode(): value.decode() for key, value in table.schema.metadata.items()} == {
        "gangline.by": "day",
        "gangline.zone": "Asia/Tokyo",
        "gangline.since_ms": str(NEW_YEAR_MS),
        "gangline.until_ms": "",
        "gangline.cost_lacks": "storage,egress",
        "gangline.version": VERSION,
    }
    assert run("costs", "--by", "job", "-o", "parquet", "--to", str(file)).exit_code == 0
    keys = pq.read_table(file)["key"]
    assert keys.type == pa.string() and set(keys.to_pylist()) == {*jobs, ""}
    assert run("report", "--to", str(tmp_path / "report.parquet")).exit_code == 0
    report = pq.read_table(tmp_path / "report.parquet")
    assert report.schema.field("submitted").type == pa.timestamp("ms", tz="UTC")
    assert report.schema.field("usd").type == pa.float64() and set(report["id"].to_pylist()) == set(jobs)


def test_a_file_is_csv_or_json_by_its_ending(run: Run, jobs: list[str], tmp_path: Path) -> None:
    assert run("costs", "--by", "job", "--to", str(tmp_path / "a.csv")).exit_code == 0
    assert (tmp_path / "a.csv").read_text() == run("costs", "--by", "job", "-o", "csv").stdout
    assert run("costs", "--by", "job", "--to", str(tmp_path / "a.json")).exit_code == 0
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(run("costs", "--by", "job", "-o", "json").stdout)


def test_a_file_that_cannot_be_written_is_refused_in_a_sentence(
    run: Run, jobs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: str) -> str:
        return str(run(*words).exception)

    assert "says no format" in refused("costs", "--to", str(tmp_path / "costs"))
    assert "Parquet is for files" in refused("costs", "-o", "parquet")
    assert "Parquet is for files" in refused("report", "-o", "parquet")
    assert "it is a folder" in refused("costs", "--to", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for command in ("costs", "report"):
        error = run(command, "--to", str(tmp_path / "a.parquet")).exception
        assert str(error) == "Parquet needs pyarrow" and "gangline[data]" in getattr(error, "hint", "")
    assert not list(tmp_path.glob("*.parquet"))


def test_a_forecast_is_a_sentence_for_the_day_and_one_for_the_month_beside_a_file_too(
    service: Service, run: Run, jobs: list[str], tmp_path: Path
) -> None:
    service.store.time_ms = NEW_YEAR_MS + 2 * DAY_MS
    write_lines(service, ("training", NEW_YEAR_MS + 5, NEW_YEAR_MS + 6, 10**6), job=jobs[0], project=PROJECT)
    found = run("costs", "--forecast")
    assert found.exit_code == 0, found.output
    said = " ".join(found.stdout.split())
    assert "today: $0.00 so far, about $0.00 at its end ($0.00 to $2.00), at the present rate" in said
    assert "this month: $4.00 so far, about $" in said
    assert len(json.loads(run("costs", "--forecast", "-o", "json").stdout)["forecast"]) == 2
    assert "today" not in found.stderr
    for words in (("-o", "csv"), ("--to", str(tmp_path / "a.csv")), ("--to", str(tmp_path / "a.parquet"))):
        found = run("costs", "--forecast", *words)
        said = " ".join(found.stderr.split())
        assert "today: $0.00 so far, about" in said and "this month: $4.00 so far, about $" in said
        assert "today" not in found.stdout


def test_a_threshold_that_nobody_hears_of_says_so_until_an_endpoint_does(run: Run) -> None:
    unheard = "nobody hears of thresholds in the project default yet, and notices wait"
    for words in (("set", "50", "--of", PROJECT), ("set", "60", "--notify", PROJECT), ("ls",)):
        found = run("costs", "thresholds", *words)
        assert found.exit_code == 0 and " ".join(found.stderr.split()).count(unheard) == 1, found.output
    assert run("notify", "add", "webhook", "https://example.org/hook", "--on", "failed").exit_code == 0
    assert unheard in " ".join(run("costs", "thresholds", "ls").stderr.split())
    assert run("notify", "set", "webhook", "--on", "failed", "--on", "cost_threshold").exit_code == 0
    assert run("costs", "thresholds", "ls").stderr == ""


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
        assert [each.per for each in client.costs.get("gpu", forecast=True).forecast] == ["day", "month"]
        assert [each.project for each in client.costs.budgets().projects] == [PROJECT]
        assert client.costs.fleet().usd_per_hour == 0
