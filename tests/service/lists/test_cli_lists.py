"""`gangline jobs ls`, `jobs label` and `jobs show`: the real command line against a real server."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from typer.testing import CliRunner

from gangline.cli import main
from gangline.cli.jobs.lists.filters import moment
from gangline.core.errors import BadInput, Unreachable
from gangline.core.jobs.lists.filters import parse_moment
from gangline.core.parsing import to_json
from tests.servers import served as served_by
from tests.service.conftest import OPERATOR, Service
from tests.service.served import serving

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(service: Service) -> Iterator[Run]:
    with serving(service.app) as served:

        def gangline(*words: str) -> subprocess.CompletedProcess[str]:
            where = ["--server", served.url, "--token", OPERATOR]
            command = [sys.executable, "-m", "gangline.cli.main", *words, *where]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        yield gangline


def submit(service: Service, token: str = OPERATOR, **more: object) -> str:
    body = {"spec": to_json(service.spec())} | more
    return service.ask("POST", "/v1/jobs", token, json=body).json()["summary"]["id"]


def test_jobs_are_found_and_labelled_from_a_terminal(service: Service, run: Run) -> None:
    ada = service.make_key("member", name="ada")
    hers, mine = submit(service, ada["secret"], labels={"team": "vision"}), submit(service)
    old = service.submit()
    table = run("jobs", "ls")
    assert table.returncode == 0, table.stderr
    head, *rows = table.stdout.splitlines()
    assert head.split() == ["job", "name", "state", "step", "ETA", "cost", "owner", "labels", "why"]
    assert [row.split()[0] for row in rows] == [old, mine, hers]
    assert "ada" in rows[2] and "team=vision" in rows[2] and " – " in rows[0]
    found = run(
        "jobs", "ls", "--label", "team=vision", "--owner", "ada", "--state", "queued", "--kind", "lora", "-o", "json"
    )
    assert [job["id"] for job in json.loads(found.stdout)] == [hers]
    lines = run("jobs", "ls", "--limit", "2", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [old, mine]
    labelled = run("jobs", "label", mine, "team=audio", "urgent=")
    assert labelled.returncode == 0 and "team=audio, urgent=" in labelled.stderr
    assert "has no labels" in run("jobs", "label", mine, "team-", "urgent-").stderr
    shown = run("jobs", "show", hers).stdout
    assert f"ada ({ada['key']['id']})" in shown and "team=vision" in shown
    assert "not known" in run("jobs", "show", old).stdout


def test_one_owner_and_no_labels_take_no_columns(service: Service, run: Run) -> None:
    submit(service)
    assert run("jobs", "ls").stdout.splitlines()[0].split() == ["job", "name", "state", "step", "ETA", "cost", "why"]


def test_lines_are_printed_before_the_next_page_is_read(service: Service) -> None:
    submit(service)
    page = service.ask("GET", "/v1/jobs?limit=200").json()
    app, asked = FastAPI(), list[str]()

    @app.get("/v1/jobs")
    def answer(request: Request) -> Response:
        asked.append(request.url.query)
        return JSONResponse(page | {"next": "more"}) if len(asked) < 3 else Response("bad gateway", 502)

    with served_by(app) as url:
        where = ["--server", url, "--token", OPERATOR]
        found = CliRunner().invoke(main.app, ["jobs", "ls", "-o", "jsonl", *where])
    assert asked == ["limit=200", "limit=200&cursor=more", "limit=200&cursor=more"]
    assert [json.loads(line)["id"] for line in found.stdout.splitlines()] == 2 * [page["jobs"][0]["id"]]
    assert isinstance(found.exception, Unreachable)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("jobs", "ls", "--owner", "nobody"), "no key 'nobody'"),
        (("jobs", "ls", "--label", "Team"), "the label 'Team'"),
        (("jobs", "ls", "--since", "soon"), "neither an age nor a time"),
        (("jobs", "ls", "--since", "2026-01-31"), "not a time with its zone"),
        (("jobs", "ls", "--until", "999999w"), "--until '999999w' is before the year 1"),
        (("jobs", "ls", "--kind", "sample"), "not a kind"),
        (("jobs", "label", "last", "team"), "has no ="),
    ],
)
def test_a_wrong_word_is_answered_with_a_hint(service: Service, run: Run, words: tuple[str, ...], says: str) -> None:
    service.submit()
    ended = run(*words)
    assert ended.returncode == 2 and says in ended.stderr and "hint:" in ended.stderr


@pytest.mark.parametrize(
    ("age", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("7d", 604_800), ("2w", 1_209_600)]
)
def test_an_age_is_counted_back_from_now(age: str, seconds: int) -> None:
    now, then = parse_moment(moment("0s", "--since"), "since"), parse_moment(moment(age, "--since"), "since")
    assert 0 <= then - (now - seconds * 1000) < 5000


def test_a_time_is_left_to_the_server_and_nothing_to_nobody() -> None:
    assert moment("2026-01-31T18:00:00Z", "--since") == "2026-01-31T18:00:00Z" and moment("", "--since") == ""
    with pytest.raises(BadInput):
        moment("2 hours", "--since")
