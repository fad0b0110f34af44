"""What a report is written as: no name of a job is a formula of a spreadsheet, or markup of a page."""

import csv
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO

import pytest

from gangline.cli.reports.cells import as_csv
from gangline.cli.reports.page import report_page
from gangline.core.charts.timeline import Bar
from gangline.core.display import safe_cell
from gangline.core.reports.report import JobsReport, report_on
from gangline.core.reports.rows import TriedOn
from gangline.core.reports.view import ReportView, job_line
from tests.unit.reports.ledger import FAILED, ONCE, QUIET, a_job

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)>\x1b[31m&amp;'


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text, newline="")))


def view(name: str = "sks dog") -> ReportView:
    jobs = [QUIET, replace(ONCE, name=name), replace(FAILED, because=name), a_job(name, project=name)]
    nodes = [TriedOn(gpu=name, pool=name, attempts={"succeeded": 1}, expenses=QUIET.expenses)]
    found = report_on(jobs, nodes, {}, ("storage",))
    bars = [
        Bar(job=job.id, attempt=name, machine=name, state=job.state, because=name, from_ms=0, to_ms=job.node_ms)
        for job in jobs
    ]
    values = {field: getattr(found, field) for field in JobsReport.__slots__}
    return ReportView(**values, from_ms=0, until_ms=10**6, lines=tuple(map(job_line, jobs)), bars=tuple(bars))


@pytest.mark.parametrize(
    "formula", ["=1+1", "+1", "-1", "@SUM(A1)", "＝1", " =1", '=cmd|"/C calc"!A0', "\u200d=1", "\xa0 @x"]
)
def test_a_cell_never_begins_as_a_formula(formula: str) -> None:
    (found,) = rows(as_csv([job_line(a_job(formula))]))
    assert found["name"].startswith("'")
    assert found["name"].endswith(formula[-1])


@pytest.mark.parametrize("control", ["\t=1", "\r=1", "\n=1", "a\nb", "a\x00b", "\u202e=1"])
def test_a_cell_has_no_control_characters(control: str) -> None:
    (found,) = rows(as_csv([job_line(a_job("x", because=control))]))
    assert found["because"] == safe_cell(control)
    assert found["because"].isprintable() and found["because"].startswith(("\\", "a"))


def test_a_name_with_commas_and_quotes_is_one_cell_and_others_are_as_they_are() -> None:
    found = rows(as_csv([job_line(a_job('a, "b"; c')), job_line(a_job("sks dog = a dog"))]))
    assert [row["name"] for row in found] == ['a, "b"; c', "sks dog = a dog"]
    assert (found[0]["minutes"], found[0]["usd"], found[0]["submitted"]) == ("10", "1", "1970-01-01T00:00:00Z")


class _Page(HTMLParser):
    """Collects the tags, the attributes and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.names, self.words, self.addresses = set[str](), set[str](), "", set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.names.update(name for name, _ in attrs)
        self.addresses.update(value or "" for name, value in attrs if name in ("src", "href", "xlink:href"))

    def handle_data(self, data: str) -> None:
        self.words += data


def test_no_name_becomes_markup_of_the_page() -> None:
    plain, hostile = _Page(report_page(view(), "All jobs")), _Page(report_page(view(HOSTILE), HOSTILE))
    assert hostile.tags == plain.tags
    assert hostile.names == plain.names
    assert '<script>alert("x")</script>' in hostile.words
    assert "\x1b" not in report_page(view(HOSTILE), HOSTILE)


def test_the_page_needs_no_other_file_and_runs_no_program() -> None:
    page = report_page(view(), "All jobs")
    found = _Page(page)
    assert not found.tags & {"script", "link", "img", "iframe"}
    assert found.addresses == set()
    assert "url(http" not in page and "@import" not in page


def test_the_page_has_the_figures_the_charts_and_the_timeline() -> None:
    found = _Page(report_page(view(), "All jobs"))
    assert {"svg", "table"} <= found.tags
    for words in (
        "interrupted once",
        "redone steps",
        "sks dog",
        "By pool",
        "Minutes on nodes",
        "no price is set for storage",
    ):
        assert words in found.words, words


def test_the_lanes_of_the_timeline_have_the_names_of_the_jobs() -> None:
    page = report_page(view("portrait of timber, rank 8"), "All jobs")
    assert f">portra… rank 8<title>portrait of timber, rank 8, {ONCE.id}</title>" in page
