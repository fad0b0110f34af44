"""`gangline jobs rm`, `checkpoints` and `storage`: the real command line against a real server."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from gangline.service.jobs import steer
from tests.service.conftest import OPERATOR, Service
from tests.service.retention.test_ages import trained
from tests.service.served import serving
from tests.service.test_rules import succeed

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(service: Service) -> Iterator[Run]:
    with serving(service.app) as served:

        def gangline(*words: str, answer: str = "", token: str = OPERATOR) -> subprocess.CompletedProcess[str]:
            where = ["--server", served.url, "--token", token]
            command = [sys.executable, "-m", "gangline.cli.main", *words, *where]
            return subprocess.run(command, input=answer, capture_output=True, text=True, check=False)

        yield gangline


def ended(service: Service) -> str:
    job, node, hold = trained(service, 10, 20, log=b"step 20")
    succeed(service, node, hold)
    return job


def test_rm_says_what_goes_and_asks(service: Service, run: Run) -> None:
    job = ended(service)
    refused = run("jobs", "rm", job, answer="n\n")
    assert (refused.returncode, "nothing was deleted" in refused.stderr) == (1, True)
    lines = {line.rsplit("  ", 2)[0].strip(): line.split()[-3:] for line in refused.stdout.splitlines()}
    assert lines["checkpoints"] == ["2", "14", "B"]
    assert lines["uploaded files (photos, data sets, bases)"] == ["1", "7", "B"]
    assert f"{job} (sks dog): 5 files, " in refused.stderr
    assert run("jobs", "show", job).returncode == 0
    deleted = run("jobs", "rm", job, answer="y\n")
    assert deleted.returncode == 0, deleted.stderr
    assert f"{job} is deleted" in deleted.stderr
    gone = run("jobs", "show", job)
    assert (gone.returncode, f"there is no job {job}" in gone.stderr) == (2, True)
    assert json.loads(run("jobs", "ls", "-o", "json").stdout) == []


def test_rm_with_yes_asks_nobody_and_without_anybody_to_ask_deletes_nothing(service: Service, run: Run) -> None:
    job = ended(service)
    alone = run("jobs", "rm", job)
    assert (alone.returncode, "pass --yes" in alone.stderr) == (2, True)
    assert run("jobs", "show", job).returncode == 0
    deleted = run("jobs", "rm", job, "--yes", "-o", "json")
    assert deleted.returncode == 0, deleted.stderr
    assert {each["kind"]: each["files"] for each in json.loads(deleted.stdout)["kept"]}["checkpoints"] == 2


def test_rm_refuses_a_job_at_work_and_says_what_to_do(service: Service, run: Run) -> None:
    job, _, _ = trained(service, 10)
    refused = run("jobs", "rm", job, "--yes")
    assert refused.returncode == 2
    assert f"{job} is running, and only a job that has ended can be deleted" in refused.stderr
    assert f"cancel it first: gangline jobs cancel {job}" in refused.stderr
    assert service.state(job) == "running"


def test_a_viewer_looks_and_deletes_nothing(service: Service, run: Run) -> None:
    job, viewer = ended(service), service.key("viewer")
    assert run("storage", token=viewer).returncode == 0
    refused = run("jobs", "rm", job, "--yes", token=viewer)
    assert refused.returncode == 2
    assert "this needs a member's key" in refused.stderr
    pinned = run("checkpoints", "pin", job, "10", token=viewer)
    assert "this needs a member's key" in pinned.stderr


def test_checkpoints_are_listed_pinned_and_unpinned(service: Service, run: Run) -> None:
    job = ended(service)
    listed = json.loads(run("checkpoints", "ls", job, "-o", "json").stdout)
    day_ms = 86_400_000
    assert [(each["step"], each["goes_ms"] == service.now_ms + day_ms) for each in listed] == [(20, True), (10, True)]
    shown = run("checkpoints", "pin", job, "10").stdout
    assert "pinned: kept until it is unpinned or its job is deleted" in shown
    assert "the job has ended: kept for 1 day after that" in shown
    assert [row["pinned"] for row in service.store.load("checkpoints_of_job", job=job)] == [0, 1]
    assert "pinned: kept" not in run("checkpoints", "unpin", job, "10").stdout
    lacking = run("checkpoints", "pin", job, "11")
    assert "keeps no checkpoint of step 11" in lacking.stderr
    assert "these steps: 20, 10" in lacking.stderr


def test_storage_says_how_much_of_what_until_when_and_that_its_cost_is_unknown(service: Service, run: Run) -> None:
    job = ended(service)
    waiting = service.submit()
    shown = run("storage").stdout
    assert "cost unknown" in shown
    assert job in shown
    found = json.loads(run("storage", "-o", "json").stdout)
    kinds = {each["kind"]: each for each in found["kinds"]}
    assert (kinds["checkpoints"]["files"], kinds["checkpoints"]["bytes"]) == (2, 14)
    assert (kinds["checkpoints"]["going_bytes"], kinds["checkpoints"]["next_ms"]) == (14, service.now_ms + 86_400_000)
    assert (kinds["uploads"]["jobs"], kinds["uploads"]["going_bytes"]) == (2, 0), "a job waits that needs it"
    assert kinds["results"]["going_bytes"] == 0
    assert found["bytes"] == sum(each["bytes"] for each in found["kinds"])
    assert found["usd_per_month"] is None
    assert [each["job"] for each in found["largest"]] == [job]
    steer.cancel(service.deployment, waiting, service.now_ms)
    kinds = {each["kind"]: each for each in json.loads(run("storage", "-o", "json").stdout)["kinds"]}
    assert kinds["uploads"]["going_bytes"] == kinds["uploads"]["bytes"] == 7
