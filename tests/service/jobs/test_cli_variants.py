"""`gangline jobs clone` and `jobs diff`, and `jobs ls --search`: the real command line against a real server."""

import json
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from gangline.cli import main
from gangline.core.parsing import to_json
from gangline.core.runs.metrics import Point
from gangline.ports.server import Points
from gangline.service.jobs import metrics
from gangline.service.jobs.lists.compared import compared_jobs
from tests.service.conftest import OPERATOR, PROJECT, Service
from tests.service.jobs.test_extend import row
from tests.service.served import serving
from tests.service.test_rules import beat, succeed

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
Invoke = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def run(service: Service) -> Iterator[Invoke]:
    with serving(service.app) as served:

        def gangline(*words: str) -> tuple[int, str, str]:
            where = ["--server", served.url, "--token", OPERATOR]
            done = CliRunner().invoke(main.app, [*words, *where])
            error = done.exception
            message = f"{error.message} {error.hint}" if hasattr(error, "message") else ""  # type: ignore[union-attr]
            return done.exit_code, done.stdout, done.stderr + message

        yield gangline


def test_a_job_is_cloned_from_a_terminal(service: Service, run: Invoke) -> None:
    old = service.submit()
    code, out, err = run("jobs", "clone", old, "--set", "rank=8", "--set", "learning_rate=3e-4", "--name", "eight")
    assert code == 0, err
    new = out.strip()
    spec = json.loads(row(service, new)["spec"])
    assert (spec["rank"], spec["learning_rate"], row(service, new)["name"]) == (8, 3e-4, "eight")
    assert [line.split() for line in err.splitlines()[:3]] == [
        ["setting", "old", "new"],
        ["rank", "16", "8"],
        ["learning_rate", "0.0001", "0.0003"],
    ]


def test_the_plan_of_a_clone_submits_nothing(service: Service, run: Invoke) -> None:
    old, before = service.submit(), service.look("SELECT COUNT(*) AS jobs FROM job")
    code, out, err = run("jobs", "clone", old, "--set", "rank=8", "--plan")
    assert (code, out) == (0, "") and "rank" in err
    assert "the files of the base were not read, so the time is known only after such a job has run" in " ".join(
        err.split()
    )
    found = json.loads(run("jobs", "clone", old, "--set", "rank=8", "--plan", "-o", "json")[1])
    assert found["changes"] == [{"setting": "rank", "before": 16, "after": 8}]
    assert service.look("SELECT COUNT(*) AS jobs FROM job") == before


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("rnak=8", "did you mean rank?"),
        ("rank", "has no value"),
        ("rank=many", "--set rank=many: must be a whole number"),
        ("photos=x", "photos"),
    ],
)
def test_a_wrong_setting_of_a_clone_is_one_sentence(service: Service, run: Invoke, setting: str, said: str) -> None:
    _, _, err = run("jobs", "clone", service.submit(), "--set", setting)
    assert said in err


def test_two_jobs_are_compared_on_a_terminal(service: Service, run: Invoke) -> None:
    first = service.submit()
    node = service.join("node-a", gpu="RTX 4090")
    hold = service.claim(node).hold
    beat(service, node, hold, 50, loss=0.25)
    points = (
        Point(step=25, values={"loss": 0.35, "held_out_loss": 0.125}),
        Point(step=50, values={"loss": 0.25, "held_out_loss": 0.25}),
    )
    metrics.take(service.deployment, node, hold, Points(points=points), service.now_ms)
    service.wait(60)
    succeed(service, node, hold)
    second = run("jobs", "clone", first, "--set", "rank=8")[1].strip()
    code, out, err = run("jobs", "diff", first, second)
    assert code == 0, err
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert lines["rank"].split() == ["rank", "16", "8"]
    assert lines["held-out loss"].split() == ["held-out", "loss", "0.1250", "–"]
    assert lines["training loss"].split() == ["training", "loss", "0.3000", "–"], "as experiments compare it"
    assert "RTX 4090" in lines["GPU"] and "succeeded" in lines["state"] and "queued" in lines["state"]
    assert lines["time"].split()[1:4] == ["1", "min", "00"]
    found = json.loads(run("jobs", "diff", first, second, "-o", "json")[1])
    assert found["settings"] == [{"setting": "rank", "before": 16, "after": 8}]
    assert (found["first"]["gpus"], found["first"]["held_out_loss"]) == (["RTX 4090"], 0.25)
    assert found["first"]["best_held_out_loss"] == 0.125
    assert found["same_numerics"] is None
    on_the_page = compared_jobs(service.deployment, PROJECT, first, second, service.now_ms)
    assert json.loads(json.dumps(to_json(on_the_page))) == found


def test_a_search_from_a_terminal_goes_on_by_itself(service: Service, run: Invoke) -> None:
    wanted = service.submit(prompt="a photo of Timber")
    for _ in range(3):
        service.wait(0.001)
        service.submit()
    code, out, err = run("jobs", "ls", "--search", "TIMBER", "-o", "json")
    assert code == 0, err
    assert [job["id"] for job in json.loads(out)] == [wanted]
