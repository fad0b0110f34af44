"""`gangline report`: the real command line against a real server."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gangline.cli import main
from tests.service.conftest import OPERATOR, Service
from tests.service.reports.many import write_nodes_of_reports
from tests.service.reports.test_reports import write_try
from tests.service.served import serving

Run = Callable[..., Result]


@pytest.fixture
def run(service: Service) -> Iterator[Run]:
    with serving(service.app) as served:
        yield lambda *words: CliRunner().invoke(
            main.app, ["report", *words, "--server", served.url, "--token", OPERATOR], catch_exceptions=True
        )


@pytest.fixture
def jobs(service: Service) -> list[str]:
    write_nodes_of_reports(service, 2)
    made = [service.submit(), service.submit()]
    write_try(service, made[0], 1, 0, "succeeded", at=1, minutes=10)
    write_try(service, made[1], 1, 1, "failed", at=2, minutes=1)
    return made


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_each_kind_of_report_is_written_into_a_file(run: Run, jobs: list[str], tmp_path: Path) -> None:
    texts = dict[str, str]()
    for kind in ("text", "json", "csv", "html"):
        file = tmp_path / f"report.{kind}"
        found = run("--named", jobs[0], "-o", kind, "--to", str(file))
        assert found.exit_code == 0, found.output
        assert file.name in found.stderr.replace("\n", "") and not found.stdout
        texts[kind] = file.read_bytes().decode()
    assert f"Jobs (named {jobs[0]})" in texts["text"] and "\x1b" not in texts["text"]
    assert json.loads(texts["json"])["jobs"] == {"succeeded": 1}
    (line,) = csv.DictReader(texts["csv"].splitlines())
    assert (line["id"], line["minutes"], line["state"]) == (jobs[0], "10", "succeeded")
    assert texts["html"].startswith("<!DOCTYPE html>") and jobs[0] in texts["html"]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_report_is_printed_with_why_jobs_failed_and_what_the_cost_lacks(run: Run, jobs: list[str]) -> None:
    found = run()
    assert found.exit_code == 0, found.output
    words = " ".join(found.stdout.split())
    for expected in (
        "All jobs",
        "jobs 1 failed, 1 succeeded",
        "failed at the first try 50.0%",
        "minutes a job, median 10.00",
        "gpu-0 1 0 0 0.17",
        f"failed: {jobs[1]}: it failed",
        "no price is set for storage and egress",
    ):
        assert expected in words, words


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_file_in_no_folder_is_refused_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    found = run("--to", str(tmp_path / "nowhere" / "report.csv"), "-o", "csv")
    assert found.exit_code != 0 and "does not exist" in str(found.exception)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_without_a_format_the_ending_of_the_file_decides(run: Run, jobs: list[str], tmp_path: Path) -> None:
    begins = {"r.html": "<!DOCTYPE html>", "r.CSV": "id,name", "r.json": "{", "r.txt": "All jobs", "report": "All jobs"}
    for name, beginning in begins.items():
        assert run("--to", str(tmp_path / name)).exit_code == 0
        assert (tmp_path / name).read_text().startswith(beginning), name
    run("--to", str(tmp_path / "r.html"), "-o", "csv")
    assert (tmp_path / "r.html").read_text().startswith("id,name")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_report_of_no_jobs_is_a_sentence(run: Run, jobs: list[str]) -> None:
    found = run("--label", "team=nobody")
    assert (found.exit_code, found.stdout) == (0, "no job meets these filters\n")
    page = run("--label", "team=nobody", "-o", "html").stdout
    assert "<p>no job meets these filters</p>" in page and "<table" not in page
    assert len(run("--label", "team=nobody", "-o", "csv").stdout.splitlines()) == 1
    assert json.loads(run("--label", "team=nobody", "-o", "json").stdout)["jobs"] == {}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_server_without_jobs_says_so(run: Run) -> None:
    assert run().stdout == "there is no job yet\n"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_running_attempt_has_not_ended(run: Run, service: Service) -> None:
    service.submit()
    service.claim(service.join())
    shown = " ".join(run().stdout.split())
    assert "attempts that run 1" in shown and "ended live" not in shown and " here " not in shown
