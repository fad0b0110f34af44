"""What happened to one job, as its owner sees it: phases of its whole time, marks, money, and one sentence. By both stores."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangline.cli import main
from gangline.compose.client import Client
from gangline.core.parsing import to_json
from gangline.ports.server import Assignment, Beat, Failed, Hold, Released, Stale
from gangline.service.jobs import renew, steer
from gangline.service.jobs.finish import finish
from gangline.service.reports.costs import count_interruptions
from gangline.service.reports.spending import PoolInterruptions, interruptions_of_pools
from gangline.web.live.feed import ProjectFeed
from tests.service.conftest import OPERATOR, POLICY, PRICE, PROJECT, Service
from tests.service.jobs.test_metrics import lose, save
from tests.service.served import serving


def beat(service: Service, node: str, hold: Hold, phase: Any, step: int = 0, **said: Any) -> None:
    answer = renew.renew(service.deployment, node, hold, Beat(phase=phase, step=step, **said), service.now_ms)
    assert not isinstance(answer, Stale)


def begin(service: Service, name: str) -> tuple[str, Assignment]:
    """A claim, then 10 s of downloading and 10 s of preparing."""
    node = service.join(name)
    assignment = service.claim(node)
    beat(service, node, assignment.hold, "downloading")
    service.wait(10)
    beat(service, node, assignment.hold, "preparing")
    service.wait(10)
    return node, assignment


def train(service: Service, node: str, hold: Hold, step: int, seconds: int) -> None:
    """Beats of training every 10 s."""
    for _ in range(seconds // 10):
        beat(service, node, hold, "training", step, loss=0.5, seconds_per_step=1.0, training_s=0.0)
        service.wait(10)


def timeline(service: Service, job: str, token: str = OPERATOR) -> dict[str, Any]:
    answer = service.ask("GET", f"/v1/jobs/{job}/timeline", token)
    assert answer.status_code == 200, answer.text
    return answer.json()


def phases(found: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["phase"], (each["to_ms"] - each["from_ms"]) // 1000) for each in found["segments"]]


def assert_whole(found: dict[str, Any]) -> None:
    segments = found["segments"]
    assert sum(each["to_ms"] - each["from_ms"] for each in segments) == found["until_ms"] - found["from_ms"]
    for before, after in pairwise(segments):
        assert before["to_ms"] == after["from_ms"]


@pytest.fixture
def interrupted(service: Service) -> str:
    """A job that node-a lost after 40 s of training, with a checkpoint of its middle, and that node-b trains again for 30 s."""
    job = service.submit()
    service.wait(5)
    node, assignment = begin(service, "node-a")
    train(service, node, assignment.hold, 20, 20)
    save(service, node, assignment.hold, 20)
    train(service, node, assignment.hold, 40, 20)
    lose(service)
    node, assignment = begin(service, "node-b")
    train(service, node, assignment.hold, 50, 30)
    return job


def test_an_interruption_is_seen_with_its_phases_marks_and_cost(service: Service, interrupted: str) -> None:
    found = timeline(service, interrupted)
    assert_whole(found)
    silent = POLICY.lease_s + 1 + 10  # the last beat was 10 s before the wait
    assert phases(found) == [
        ("queued", 5),
        ("downloading", 10),
        ("preparing", 10),
        ("training", 30),
        ("silent", silent),
        ("downloading", 10),
        ("preparing", 10),
        ("training", 30),
    ]
    assert [each["node_name"] for each in found["segments"]] == ["", *["node-a"] * 4, *["node-b"] * 3]
    assert [each["ended"] for each in found["segments"] if each["ended"]] == ["interrupted"]
    marks = [(mark["kind"], mark["step"], mark["node_name"]) for mark in found["marks"]]
    assert marks == [("committed", 20, "node-a"), ("interrupted", None, "node-a"), ("resumed", 20, "node-b")]
    view = service.ask("GET", f"/v1/jobs/{interrupted}").json()
    lost = silent + 20 + 20  # until node-b trained, and the steps 21 to 40 again, a second each
    assert view["seconds_lost"] == lost
    paid = (
        10 + 20 + 46 + 20
    )  # the steps after the checkpoint, the silence after the last beat, and what node-b took to begin
    assert view["verdict"] == found["verdict"]
    assert view["verdict"] == (
        "Training on node-b, step 50 of 100, about 50 seconds left; "
        f"one interruption cost 1 min {lost - 60} s and ${paid * PRICE / 3600 / 1e6:.4f} so far."
    )


def test_an_attempt_ends_at_the_step_and_the_moment_that_were_heard_of_last(service: Service) -> None:
    """Its node was lost between two heartbeats, and had stored a checkpoint since the last one."""
    job = service.submit()
    node, assignment = begin(service, "node-a")
    beat(service, node, assignment.hold, "training", 6, loss=0.5, seconds_per_step=0.1, training_s=0.0)
    service.wait(4)
    save(service, node, assignment.hold, 53)
    lose(service)
    found = timeline(service, job)
    assert phases(found)[-2:] == [("training", 4), ("silent", POLICY.lease_s + 1)]
    silent, committed = found["segments"][-1], next(mark for mark in found["marks"] if mark["kind"] == "committed")
    assert committed["at_ms"] <= silent["from_ms"]
    assert [each["step"] for each in service.ask("GET", f"/v1/jobs/{job}").json()["attempts"]] == [53]


def test_a_node_that_is_not_heard_any_more_is_noticed_after_two_heartbeats(service: Service) -> None:
    job = service.submit(steps=700)
    node, assignment = begin(service, "local-3")
    beat(service, node, assignment.hold, "training", 53, loss=0.5, seconds_per_step=0.1, training_s=0.0)
    service.tick()  # which numbers the facts
    feed = ProjectFeed(PROJECT)
    feed.look(service.deployment)
    service.wait(2 * POLICY.heartbeat_interval_s)
    assert timeline(service, job)["verdict"].startswith("Training on local-3, step 53 of 700, about ")
    assert not feed.look(service.deployment).jobs
    service.wait(1)
    assert feed.look(service.deployment).jobs == {job}  # so that an open page says it
    found = service.ask("GET", f"/v1/jobs/{job}").json()
    said = "Nothing heard from local-3 for 20 s; it was training, step 53 of 700; after 45 s the job goes back to the queue."
    assert found["verdict"] == timeline(service, job)["verdict"] == said
    assert (found["summary"]["phase"], found["summary"]["eta_s"]) == ("silent", None)
    assert phases(timeline(service, job))[-1] == ("silent", 21)
    assert not feed.look(service.deployment).jobs
    service.wait(4)
    assert feed.look(service.deployment).jobs == {job}
    beat(service, node, assignment.hold, "training", 60)
    assert timeline(service, job)["verdict"].startswith("Training on local-3, step 60 of 700")
    assert phases(timeline(service, job))[-1] == ("training", 25)


def test_a_node_that_spoke_to_nobody_while_the_server_was_away_is_not_silent(service: Service) -> None:
    job = service.submit()
    node, assignment = begin(service, "node-a")
    beat(service, node, assignment.hold, "training", 5)
    service.tick()
    service.store.time_ms += 600_000
    service.tick()
    service.wait(5)
    assert service.ask("GET", f"/v1/jobs/{job}").json()["summary"]["phase"] == "training"


def test_the_cost_ends_with_what_the_job_costs(service: Service, interrupted: str) -> None:
    service.change_policy(storage_usd_per_gb_month=1000.0)
    found = timeline(service, interrupted)
    usd = [point["usd"] for point in found["spent"]]
    assert usd == sorted(usd) and usd[0] == 0
    assert found["spent"][-1]["at_ms"] == found["until_ms"]
    assert usd[-1] == pytest.approx(
        service.ask("GET", f"/v1/jobs/{interrupted}").json()["summary"]["cost_usd"], abs=2e-6
    )


def test_the_band_is_that_of_the_machines_of_the_same_class_at_the_same_work(
    service: Service, interrupted: str
) -> None:
    (row,) = service.look(f"SELECT workload FROM job WHERE id = '{interrupted}'")
    for machine, pace in (("x", 0.5), ("y", 2.0), ("z", 1.0)):
        service.execute(
            "INSERT INTO pace (workload, gpu, machine, seconds_per_step, at_ms) "
            f"VALUES ('{row['workload']}', '', '{machine}', {pace}, 1), ('other', '', '{machine}', 9, 1)",
            "DELETE FROM pace WHERE machine LIKE 'machine-of-%'",
        )
    (band,) = timeline(service, interrupted)["bands"]
    assert (band["gpu"], band["machines"], band["median"]) == ("", 3, pytest.approx(1.0))
    assert band["low"] == pytest.approx(1 / band["high"])


def test_a_pause_is_neither_an_interruption_nor_lost_time(service: Service) -> None:
    job = service.submit()
    node, assignment = begin(service, "node-a")
    train(service, node, assignment.hold, 20, 20)
    save(service, node, assignment.hold, 20)
    steer.pause(service.deployment, job, service.now_ms)
    finish(service.deployment, node, assignment.hold, Released(), service.now_ms)
    service.wait(3600)
    steer.resume(service.deployment, job, service.now_ms)
    service.wait(5)
    found = timeline(service, job)
    assert_whole(found)
    assert phases(found)[-2:] == [("paused", 3600), ("queued", 5)]
    train(service, node, service.claim(node).hold, 30, 10)
    view = service.ask("GET", f"/v1/jobs/{job}").json()
    assert view["seconds_lost"] == 0 and "interruption" not in view["verdict"]
    assert view["summary"]["interruptions"] == counted(service) == 0
    lose(service)
    other = service.join("node-b")
    train(service, other, service.claim(other).hold, 40, 10)
    view = service.ask("GET", f"/v1/jobs/{job}").json()
    assert view["summary"]["interruptions"] == counted(service) == 1 and "; one interruption cost " in view["verdict"]


def counted(service: Service) -> int:
    """The interruptions of the project, as the screens of costs and of the fleet count them: they are the same."""
    found = count_interruptions(service.deployment, PROJECT, since_ms=None, until_ms=None)
    assert sum(each.count for each in interruptions_of_pools(service.deployment, 0).values()) == found
    return found


def test_a_job_that_is_handed_back_was_interrupted_too_and_a_pool_tells_those_that_fell_silent(
    service: Service, interrupted: str
) -> None:
    assert counted(service) == 1
    (row,) = service.look("SELECT id AS attempt, fencing, node FROM attempt WHERE state = 'live'")
    finish(
        service.deployment,
        row["node"],
        Hold(attempt=row["attempt"], fencing=row["fencing"]),
        Released(),
        service.now_ms,
    )
    assert counted(service) == 2
    assert interruptions_of_pools(service.deployment, 0) == {"default": PoolInterruptions(count=2, silent=1)}
    assert interruptions_of_pools(service.deployment, service.now_ms + 1) == {}


def test_a_failure_is_marked_with_the_ban_and_the_strike_that_follow(service: Service) -> None:
    job = service.submit()
    node, assignment = begin(service, "node-a")
    finish(service.deployment, node, assignment.hold, Failed(kind="gpu error", because="Xid 79"), service.now_ms)
    found = timeline(service, job)
    assert {mark["kind"] for mark in found["marks"]} == {"failed", "banned", "strike"}
    assert {mark["node_name"] for mark in found["marks"]} == {"node-a"}
    assert {mark["attempt"] for mark in found["marks"]} == {assignment.hold.attempt}


def test_a_phase_is_written_once_and_a_beat_that_brings_none_writes_no_row(service: Service) -> None:
    service.submit()
    node, assignment = begin(service, "node-a")
    train(service, node, assignment.hold, 20, 60)
    rows = service.look("SELECT attempt, phase FROM attempt_phase ORDER BY at_ms")
    assert [row["phase"] for row in rows] == ["downloading", "preparing", "training"]
    beat(service, node, assignment.hold, "uploading", 100)
    beat(service, node, assignment.hold, "uploading", 100)  # again within the same millisecond
    assert len(service.look("SELECT * FROM attempt_phase")) == 4


def test_an_older_server_beside_this_one_leaves_a_timeline_without_gaps(service: Service, interrupted: str) -> None:
    service.execute("DELETE FROM attempt_phase", "UPDATE event SET state = ''")
    found = timeline(service, interrupted)
    assert_whole(found)
    assert {phase for phase, _ in phases(found)} == {"queued", "starting", "training", "silent"}


def test_a_deleted_job_leaves_no_phases(service: Service, interrupted: str) -> None:
    steer.cancel(service.deployment, interrupted, service.now_ms)
    assert service.look("SELECT * FROM attempt_phase")
    assert service.ask("DELETE", f"/v1/jobs/{interrupted}").status_code == 200
    assert not service.look("SELECT * FROM attempt_phase")
    assert service.ask("GET", f"/v1/jobs/{interrupted}/timeline").status_code == 404


def test_another_project_does_not_see_it(service: Service) -> None:
    job = service.submit()
    service.add_project("other")
    assert service.ask("GET", f"/v1/jobs/{job}/timeline", service.key("viewer", "other")).status_code == 404
    assert timeline(service, job, service.key("viewer", PROJECT))["job"] == job


def test_the_command_line_shows_it_and_draws_it(
    service: Service, interrupted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(service.app) as served:
        monkeypatch.setenv("GANGLINE_SERVER", served.url)
        monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
        shown = CliRunner().invoke(main.app, ["jobs", "timeline", interrupted])
        first = CliRunner().invoke(main.app, ["jobs", "show", interrupted])
        of_client = Client(served.url, OPERATOR).jobs.timeline(interrupted)
        drawn = CliRunner().invoke(main.app, ["jobs", "timeline", interrupted, "--svg", str(tmp_path / "t.svg")])
    said = of_client.verdict
    assert json.loads(json.dumps(to_json(of_client))) == timeline(service, interrupted)
    assert shown.output.startswith(said) and first.output.startswith(said)
    assert "silent" in shown.output and "committed step 20" in shown.output and "░" in shown.output
    assert drawn.exit_code == 0 and (tmp_path / "t.svg").read_text().startswith("<svg")
