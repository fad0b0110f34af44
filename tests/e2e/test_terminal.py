"""What people type at a terminal: short names of jobs, completion, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gangline.cli.admin.box import Box
from tests.conftest import BASE, SUBJECT

TRAIN = ("train", str(SUBJECT), "--base", str(BASE), "--recipe", "tiny_subject")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A server without a node: jobs wait."""
    with Box(tmp_path_factory.mktemp("box") / "home", lease_s=10, heartbeat_interval_s=1) as made:
        yield made


@pytest.fixture(scope="module")
def environ(box: Box) -> dict[str, str]:
    return os.environ | {
        "GANGLINE_SERVER": box.url,
        "GANGLINE_TOKEN": box.client._http.token,
        "GANGLINE_HOME": str(box.home / "elsewhere"),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }


def typed(environ: dict[str, str], *words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "gangline.cli.main", *words]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == code, ran.stderr
    return ran.stdout if code == 0 else ran.stderr


@pytest.fixture(scope="module")
def jobs(environ: dict[str, str]) -> list[str]:
    return [typed(environ, *TRAIN, "--name", name, "--detach").strip() for name in ("first cat", "second cat")]


def test_a_job_is_named_in_every_way_that_means_it(environ: dict[str, str], jobs: list[str]) -> None:
    for given, job in {"last": jobs[1], "first cat": jobs[0], jobs[0][-8:]: jobs[0], jobs[1]: jobs[1]}.items():
        assert json.loads(typed(environ, "jobs", "show", given, "-o", "json"))["summary"]["id"] == job
    assert "there is no job third cat" in typed(environ, "jobs", "show", "third cat", code=2)
    said = typed(environ, "jobs", "cancel", "job-1", code=2)
    assert "there is no job job-1" in said  # nothing is canceled by a coincidence


def completed(environ: dict[str, str], line: str) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_GANGLINE_COMPLETE": "complete_bash"}
    program = "import sys; sys.argv = ['gangline']; from gangline.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environ | words, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.stderr == ""
    return [word for word in ran.stdout.splitlines() if word]


def test_a_shell_completes_commands_options_and_jobs(environ: dict[str, str], jobs: list[str]) -> None:
    assert completed(environ, "gangline rec") == ["recipes"]
    assert completed(environ, "gangline jobs sh") == ["show"]
    assert completed(environ, "gangline train --reci") == ["--recipe"]
    offered = completed(environ, "gangline jobs show ")
    assert {"last", jobs[0], jobs[0][-8:], jobs[1]} <= set(offered)
    assert completed(environ, f"gangline logs {jobs[1][-8:-1]}") == [jobs[1][-8:]]


def test_where_no_server_answers_a_shell_completes_nothing_and_says_nothing(environ: dict[str, str]) -> None:
    assert completed(environ | {"GANGLINE_SERVER": "http://127.0.0.1:1"}, "gangline jobs show ") == []


def test_ctrl_c_ends_the_watching_and_not_the_job_and_says_so_to_scripts(box: Box, environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "gangline.cli.main", *TRAIN, "--name", "watched"]
    watching = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stderr
    assert any("is queued" in line for line in watching.stderr)
    watching.send_signal(signal.SIGINT)
    said = watching.stderr.read()
    assert watching.wait(60) == 130
    job = box.client.jobs.find("watched")
    assert f"the job continues; `gangline jobs show {job}` shows it again" in said
    assert box.client.jobs.get(job).summary.state == "queued"
