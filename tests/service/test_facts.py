"""The facts of a project are one stream: each has a number once it is committed, and no reader passes over one."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from subprocess import PIPE
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from gangline.api.answers import streams
from gangline.api.app import make_app
from gangline.cli.main import app as app_of_cli
from gangline.core.server.limits import Limits
from gangline.ports.server import Failed
from gangline.service.facts import FACTS_MAX, facts_after, number_facts
from gangline.service.jobs.finish import finish
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.jobs.test_follow import IN_TIME_S, Follower
from tests.service.jobs.test_samples import commit, rendered, train
from tests.service.served import Served, serving
from tests.service.test_http import problem

FOLLOWERS = 50


@pytest.fixture
def app(service: Service, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    monkeypatch.setattr(streams, "POLL_S", 0.02)
    return make_app(service.deployment, service.objects, Limits())


@pytest.fixture
def served(app: FastAPI) -> Iterator[Served]:
    with serving(app) as served:
        yield served


@pytest.fixture
def follow(served: Served) -> Iterator[Any]:
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=served.url, timeout=IN_TIME_S, limits=limits) as http:

        def open_one(last: str = "") -> Follower:
            headers = {"Authorization": f"Bearer {OPERATOR}", "Last-Event-ID": last}
            request = http.build_request("GET", "/v1/facts/stream", headers=headers)
            return Follower(http.send(request, stream=True))

        yield open_one


def numbers(service: Service, project: str = PROJECT, after: int = 0) -> list[int]:
    return [fact.number for fact in facts_after(service.deployment, project, after)]


def test_the_facts_of_all_jobs_of_a_project_are_numbered_in_one_row(service: Service) -> None:
    one, other = service.submit(seed=1), service.submit(seed=2)
    service.tick()
    assert numbers(service) == [1, 2]
    service.claim(service.join())
    assert numbers(service) == [1, 2], "a fact has no number before it is committed and it is the controller's turn"
    service.tick()
    found = facts_after(service.deployment, PROJECT, 0)
    assert [fact.number for fact in found] == list(range(1, len(found) + 1))
    for job in (one, other):
        events = [event["kind"] for event in service.ask("GET", f"/v1/jobs/{job}/events").json()]
        assert [fact.kind for fact in found if fact.job == job] == events


def test_each_project_has_a_stream_of_its_own(service: Service) -> None:
    service.add_project("other")
    for project in ("other", PROJECT, "other"):
        service.submit(project)
    service.tick()
    assert numbers(service, "other") == [1, 2] and numbers(service) == [1]
    assert numbers(service, "other", after=1) == [2]


def test_a_number_is_never_given_twice(service: Service) -> None:
    kept = service.submit(seed=1)
    service.tick()
    removed = service.submit(seed=2)
    service.ask("POST", f"/v1/jobs/{removed}/cancel").raise_for_status()
    service.tick()
    assert numbers(service) == [1, 2, 3]
    service.ask("DELETE", f"/v1/jobs/{removed}").raise_for_status()
    assert numbers(service) == [1]
    service.ask("POST", f"/v1/jobs/{kept}/pause").raise_for_status()
    service.tick()
    assert numbers(service) == [1, 4]


def test_a_server_whose_turn_is_over_numbers_nothing(service: Service) -> None:
    service.tick()
    service.submit()
    service.execute("UPDATE service SET ticker = 'another'")
    number_facts(service.deployment, service.now_ms)
    assert numbers(service) == []


def test_what_an_older_version_left_is_numbered_too(service: Service) -> None:
    service.submit()
    service.execute("UPDATE event SET fact = NULL, project = NULL, numbered = 0, state = ''")
    service.tick()
    assert numbers(service) == [1]


def test_an_event_with_which_an_older_server_ended_a_job_gets_its_state(service: Service) -> None:
    job = service.submit()
    service.wait(1)
    service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    service.execute("UPDATE event SET state = ''")
    service.tick()
    assert [row["state"] for row in service.look("SELECT state FROM event ORDER BY fact")] == ["", "canceled"]


def test_many_events_that_wait_for_a_number_get_theirs_at_once(service: Service) -> None:
    job = service.submit()
    service.execute(
        "INSERT INTO event (job, number, kind, because, at_ms, numbered) "
        "WITH RECURSIVE old AS (SELECT 2 AS number UNION ALL SELECT number + 1 FROM old WHERE number < 2500) "
        f"SELECT '{job}', number, 'paused', '', 0, 0 FROM old"
    )
    number_facts(service.deployment, service.now_ms)
    assert not service.store.load("unnumbered_facts")


def test_a_fact_says_which_state_its_job_is_in_after_it(service: Service) -> None:
    job = service.submit()
    node = service.join()
    finish(
        service.deployment,
        node,
        service.claim(node).hold,
        Failed(kind="crashed", because="exit code 1"),
        service.now_ms,
    )
    service.tick()
    found = [(fact.kind, fact.state) for fact in facts_after(service.deployment, PROJECT, 0)]
    assert found == [("submitted", "queued"), ("claimed", "running"), ("failed", "queued")]
    service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
    service.tick()
    last = facts_after(service.deployment, PROJECT, 3)[-1]
    assert (last.kind, last.state) == ("canceled", "canceled")


def test_jobs_that_render_pictures_of_another_one_are_not_told_of(service: Service) -> None:
    first, second = service.join("node-a"), service.join("node-b")
    training = train(service, first)
    commit(service, first, training, 10)
    rendered(service, second, service.claim(second))
    service.tick()
    found = facts_after(service.deployment, PROJECT, 0)
    assert {fact.job for fact in found} == {training.job}
    assert [fact.number for fact in found] == list(range(1, len(found) + 1))
    assert service.look("SELECT job FROM event WHERE numbered = 0") == []


# ------------------------------------------------------------------------------------------------------------- followers


def test_who_follows_hears_each_fact_once_in_order_and_resumes_after_the_last(service: Service, follow: Any) -> None:
    first = service.submit(seed=1)
    service.tick()
    follower = follow()
    number, fact = follower.next()
    assert (number, fact["number"], fact["job"], fact["kind"]) == ("1", 1, first, "submitted")
    second = service.submit(seed=2)
    service.ask("POST", f"/v1/jobs/{first}/cancel").raise_for_status()
    service.tick()
    assert [follower.next()[1]["job"] for _ in range(2)] in ([second, first], [first, second])
    again = follow(last="2")
    assert again.next()[0] == "3"


def test_a_page_of_facts_ends_where_the_next_begins(service: Service) -> None:
    for seed in range(3):
        service.submit(seed=seed)
    service.tick()
    found = service.ask("GET", "/v1/facts").json()
    assert [fact["number"] for fact in found] == [1, 2, 3]
    assert service.ask("GET", "/v1/facts?after=2").json() == found[2:]


def test_what_many_follow_is_rendered_once(
    service: Service, app: FastAPI, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.submit(seed=1)
    service.tick()
    followers = [follow() for _ in range(FOLLOWERS)]
    for follower in followers:
        follower.next()
    rendered, render = [], streams._message
    monkeypatch.setattr(streams, "_message", lambda *told: rendered.append(told) or render(*told))
    service.submit(seed=2)
    service.tick()
    for follower in followers:
        assert follower.next()[0] == "2"
    assert len(rendered) == 1


# ---------------------------------------------------------------------------------------------------------- the command


def test_the_command_shows_the_newest_and_continues_after_a_number(service: Service, served: Served) -> None:
    first = service.submit(seed=1)
    for seed in range(2, 5):
        service.submit(seed=seed)
    service.ask("POST", f"/v1/jobs/{first}/cancel").raise_for_status()
    service.tick()

    def shown(*words: str) -> list[str]:
        found = CliRunner().invoke(app_of_cli, ["events", "--server", served.url, "--token", OPERATOR, *words])
        assert found.exit_code == 0, found.output
        return found.stdout.splitlines()

    assert len(shown()) == 5
    assert [line.split()[0] for line in shown("--last", "2")] == ["4", "5"]
    assert [json.loads(line)["number"] for line in shown("--after", "3", "-o", "json")] == [4, 5]
    (canceled,) = shown("--kind", "canceled")
    assert first[-6:] in canceled and "sks dog" in canceled


def test_followers_are_told_more_than_a_page_at_each_look(
    service: Service, monkeypatch: pytest.MonkeyPatch, served: Served, follow: Any
) -> None:
    follower = follow()
    write_facts(service, 4 * FACTS_MAX)
    begin_s = time.monotonic()
    monkeypatch.setattr(streams, "POLL_S", 3)
    heard = [follower.next()[0] for _ in range(4 * FACTS_MAX)]
    assert heard == [str(number) for number in range(1, 4 * FACTS_MAX + 1)]
    assert time.monotonic() - begin_s < 8, "four looks take twelve seconds"


def write_facts(service: Service, count: int) -> None:
    job = service.submit()
    while service.store.load("unnumbered_facts"):
        service.tick()
    rows = ",".join(
        f"('{job}', {number}, 'paused', '', {service.now_ms}, 1, '{PROJECT}', {number}, 'queued')"
        for number in range(2, count + 1)
    )
    service.execute(
        f"INSERT INTO event (job, number, kind, because, at_ms, numbered, project, fact, state) VALUES {rows}"
    )
    service.execute(f"UPDATE project SET facts = {count} WHERE id = '{PROJECT}'")


def test_who_has_heard_what_the_server_does_not_know_is_refused(service: Service, served: Served, follow: Any) -> None:
    job = service.submit()
    service.tick()
    for path in ("/v1/facts/stream", f"/v1/jobs/{job}/events/stream", f"/v1/jobs/{job}/logs/stream"):
        last = "7.0" if "logs" in path else "7"
        found = problem(service.http.get(path, headers=as_operator(last)), 404, "not-found")
        assert f"{last} is after the last message of this stream" in found["detail"] and "start" in found["hint"]
    problem(service.ask("GET", "/v1/facts?after=7"), 404, "not-found")
    assert service.ask("GET", "/v1/facts?after=1").json() == []


def as_operator(last: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {OPERATOR}", "Last-Event-ID": last}


@pytest.mark.parametrize("lost", ["revoked", "expired"])
def test_a_stream_ends_once_its_key_is_lost_and_the_others_go_on(
    service: Service, monkeypatch: pytest.MonkeyPatch, served: Served, follow: Any, lost: str
) -> None:
    monkeypatch.setattr(streams, "CHECK_S", 0.05)
    job = service.submit()
    service.tick()
    made = service.ask("POST", "/v1/keys", json={"name": "a", "role": "viewer"}).json()
    kept = follow()
    assert kept.next()[0] == "1"
    with httpx.Client(base_url=served.url, timeout=IN_TIME_S) as http:
        headers = {"Authorization": f"Bearer {made['secret']}"}
        paths = ["/v1/facts/stream", f"/v1/jobs/{job}/events/stream"]
        theirs = [Follower(http.send(http.build_request("GET", path, headers=headers), stream=True)) for path in paths]
        assert [follower.next()[0] for follower in theirs] == ["1", "1"]
        column = f"{lost if lost == 'revoked' else 'expires'}_ms"
        service.execute(f"UPDATE credential SET {column} = {service.now_ms} WHERE id = '{made['key']['id']}'")
        assert [follower.rest() for follower in theirs] == [[], ["progress"]]
        problem(http.get(paths[0], headers=headers), 401, "denied")
    service.ask("POST", f"/v1/jobs/{job}/pause").raise_for_status()
    service.tick()
    assert kept.next()[0] == "2"


@pytest.fixture
def interrupted(service: Service, served: Served) -> Iterator[Any]:
    """What the command prints, and says, until Ctrl-C: pressed once it follows, and `then` has happened and is printed."""

    def run(*words: str, then: Callable[[], object] | None = None) -> tuple[list[str], str]:
        where = ["--server", served.url, "--token", OPERATOR, "--project", PROJECT]
        command = [sys.executable, "-m", "gangline.cli.main", "events", "--follow", *words, *where]
        with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as running:
            until_s = time.monotonic() + IN_TIME_S
            while not served.app.state.followers.count and time.monotonic() < until_s:
                threading.Event().wait(0.02)
            assert served.app.state.followers.count, "it follows"
            lines: list[str] = []
            if then:
                then()
                service.tick()
                assert running.stdout
                lines.append(running.stdout.readline())
            running.send_signal(signal.SIGINT)
            rest, said = running.communicate(timeout=IN_TIME_S)
        assert running.returncode == 130, said
        return [line.split()[0] for line in lines + rest.splitlines()], said

    return run


def test_who_asks_for_none_of_the_newest_sees_only_what_comes(service: Service, interrupted: Any) -> None:
    service.submit(seed=1)
    service.tick()
    seen, said = interrupted("--last", "0", then=lambda: service.submit(seed=2))
    assert seen == ["2"] and "--follow --after 2 --server" in said and f"--project {PROJECT}`" in said


def test_the_newest_numbers_may_be_those_of_deleted_jobs(service: Service, interrupted: Any) -> None:
    service.submit(seed=1)
    for seed in (2, 3):
        job = service.submit(seed=seed)
        service.ask("POST", f"/v1/jobs/{job}/cancel").raise_for_status()
        service.tick()
        service.ask("DELETE", f"/v1/jobs/{job}").raise_for_status()
        service.tick()
    newest = service.ask("GET", "/v1/facts?last=0")
    assert (newest.json(), newest.links["next"]["url"]) == ([], "?after=5")
    seen, said = interrupted("--last", "3", then=lambda: service.submit(seed=4))
    assert seen == ["6"] and "--after 6 " in said


def test_who_interrupts_before_the_first_event_continues_where_they_began(service: Service, interrupted: Any) -> None:
    service.submit(seed=1)
    service.tick()
    seen, said = interrupted("--after", "1", "--kind", "failed", "--kind", "over budget", "-o", "json")
    assert seen == []
    assert "--after 1 " in said and "--kind failed --kind 'over budget' -o json`" in " ".join(said.split())
    assert OPERATOR not in said
