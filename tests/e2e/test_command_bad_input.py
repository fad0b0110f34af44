"""Commands that get something wrong, or mean harm: the job ends with one sentence, and nothing is left of it on its node."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from socket import create_server
from threading import Event
from typing import Any

import pytest

from gangline.adapters.pools.local import LOG, WORKER, LocalNode, start_node
from gangline.cli.admin.box import Box
from gangline.cli.tools.run import upload
from gangline.core.errors import UserError
from gangline.core.server.isolation import IsolationLevel
from gangline.core.views import JobView
from tests.conftest import Typed
from tests.e2e.misdeeds import CONNECTS, FILLS, LEAVES, LINKS, LINKS_ALL, SPIES
from tests.processes import is_running

LEVELS: tuple[IsolationLevel, ...] = ("uid", *(("sandbox",) if shutil.which("bwrap") else ()))
SHRUNK = "48m"
MOUNTED = """
home=$1; shift
mkdir -m 755 -p "$home" "$home-open"
mount -t tmpfs -o "size=6g,mode=711" none "$home"
[ "$(stat -c %a /root)" = 755 ] || mount -t overlay -o "lowerdir=$home-open:/root" none /root
exec "$@"
"""
"""Gives a worker a disk of its own, large enough to join; and lets all users pass through the home of root, where Python may lie."""


@dataclass(frozen=True, eq=False)
class Case:
    """A script, or another command, and what else its job asks for."""

    script: str = ""
    words: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


LEFT = f"/tmp/left-{token_hex(8)}"
CASES = {
    "links": Case(LINKS, settings={"results": ["elsewhere", "linked"]}),
    "all links": Case(LINKS_ALL),
    "missing": Case(words=("nonexistent-program", "--x")),
    "daemon, 0": Case(LEAVES, ("0", f"{LEFT}-0")),
    "daemon, 3": Case(LEAVES, ("3", f"{LEFT}-3")),
    "spy": Case(SPIES, settings={"environment": ["PLANTED=planted-secret"]}),
}


@dataclass(frozen=True)
class Ended:
    """A job that has ended, with what it printed and the results that came of it."""

    job: JobView
    log: str
    results: dict[str, str]

    @property
    def state(self) -> str:
        return self.job.summary.state

    @property
    def because(self) -> str:
        return self.job.attempts[-1].because


@dataclass(frozen=True)
class Place:
    """A server, and a node that isolates runs at this level. `jobs` are those that were submitted, each with its mark."""

    box: Box
    node: LocalNode
    level: IsolationLevel
    jobs: dict[Case, tuple[str, str]] = field(default_factory=dict)

    def submit(self, case: Case) -> None:
        """Submit a job. It is tried once; what it starts has a mark in its environment."""
        mark, command = f"MARK={token_hex(8)}", {"command": case.words}
        if case.script:
            with tempfile.TemporaryDirectory() as code:
                script = Path(code) / "script.py"
                script.write_text(case.script)
                command = {"command": ("python", script.name, *case.words)} | upload(
                    self.box.client, script.parent, [script], []
                )
        settings = dict(case.settings)
        environment = [mark, *settings.pop("environment", ())]
        spec = {"kind": "command", "attempts_max": 1, "environment": environment} | command | settings
        self.jobs[case] = self.box.client.jobs.submit(spec).summary.id, mark

    def ended(self, case: Case) -> Ended:
        """Return a job whose attempt has ended, once no process and no file of it is left on its node."""
        if case not in self.jobs:
            self.submit(case)
        job, mark = self.jobs[case]
        found = self.box.client.jobs.get(job)
        while not any(each.ended_ms for each in found.attempts):
            Event().wait(0.05)
            found = self.box.client.jobs.get(job)
        if found.summary.ended_ms is None:  # a second machine is to confirm what this one says, and there is none
            self.box.client.jobs.cancel(job)
        while self.has_process(mark) or self.has_run(mark):
            Event().wait(0.05)
        with tempfile.TemporaryDirectory() as to:
            artifacts = list(self.box.client.artifacts.list(job))
            results = {each.path: self.box.client.files.download(each, Path(to)).read_text() for each in artifacts}
        return Ended(found, self.box.client.logs.get(job).text, results)

    @property
    def home(self) -> Path:
        return self.box.home.with_name(f"node-{self.level}")

    @property
    def runs(self) -> Path:
        """Its runs, whose disk the node alone sees."""
        return Path(f"/proc/{self.node.process.pid}/root{self.home}/runs")

    def has_run(self, mark: str) -> bool:
        specs = [*self.runs.glob("*/spec.json"), *self.runs.glob("*/run/spec.json")]
        return any(holds(spec, mark) for spec in specs)

    def has_process(self, mark: str) -> bool:
        found = [each for each in Path("/proc").glob("[0-9]*") if holds(each / "environ", mark)]
        return any(is_running(int(each.name)) for each in found)

    def shrink(self) -> None:
        """Take most of its disk from the node."""
        shrunk = ("mount", "-o", f"remount,size={SHRUNK}", str(self.home))
        subprocess.run(["/usr/bin/nsenter", "--mount", f"--target={self.node.process.pid}", *shrunk], check=True)


def holds(file: Path, mark: str) -> bool:
    try:
        return mark.encode() in file.read_bytes()
    except OSError:
        return False


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Place]]:
    """One for each level that this machine may have, at work on all cases that leave room for others."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk, and give a run a user of its own")
    top = Path(tempfile.mkdtemp(prefix="gangline-bad-input-", dir="/var/tmp"))
    top.chmod(0o711)  # for a user of a run's own
    made = dict[str, Place]()
    with ExitStack() as boxes:
        for level in LEVELS:
            box = boxes.enter_context(Box(top / f"box-{level}", lease_s=5, heartbeat_interval_s=0.3))
            home = top / f"node-{level}"
            inside = ("/usr/bin/unshare", "--mount", "sh", "-ec", MOUNTED, "sh", str(home))
            command = (*inside, *WORKER, "--isolation", level, "--slots", "3")
            node = start_node(name="node", home=home, server=box.url, join_token=box.join_token, command=command)
            box.nodes["node"] = node
            made[level] = Place(box, node, level)
            for case in CASES.values():
                made[level].submit(case)
        yield made
    shutil.rmtree(top)


@pytest.fixture(params=LEVELS)
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    found = places[request.param]
    while not any(each.state == "ready" for each in found.box.client.nodes.list()):
        assert found.node.process.poll() is None, (found.home / LOG).read_text()
        Event().wait(0.05)
    return found


@pytest.mark.parametrize("words", [(), ("--",), ("--no-code", "--")])
def test_no_command_at_all(typed: Typed, words: tuple[str, ...]) -> None:
    code, _, said = typed("run", *words)
    assert code == 2 and "error: Missing argument 'command'\n" in said


@pytest.mark.parametrize(
    ("option", "value"),
    [("--checkpoints", "../x"), ("--checkpoints", "/tmp/x"), ("--result", "../../etc"), ("--data", "../x:.")],
)
def test_a_folder_outside_of_the_run_is_refused_before_anything_is_sent(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, _, said = typed(
        "run", "--server", "http://127.0.0.1:9", "--token", "t", "--no-code", option, value, "--", "true"
    )
    named = value.partition(":")[0]
    assert code == 2
    assert f"must be a path below the working directory, such as output or runs/first, not {named}\n" in said


@pytest.mark.parametrize("path", ["../a", "/etc/cron.d/a", "a/../../b"])
def test_a_file_outside_of_the_run_is_refused_by_the_server(place: Place, path: str) -> None:
    file = {"path": path, "bytes": 1, "sha256": "0" * 64}
    for brought in ({"code": [file]}, {"data": [{"name": "images", "files": [file]}]}):
        with pytest.raises(UserError, match=r"path: is not acceptable here .* a path that leaves its folder"):
            place.box.client.jobs.submit({"kind": "command", "command": ["true"]} | brought)
    with pytest.raises(UserError, match="must be a path below the working directory"):
        place.box.client.jobs.submit({"kind": "command", "command": ["true"], "results": [path]})


def test_links_out_of_the_run_are_not_followed_and_a_line_says_so(place: Place) -> None:
    ended = place.ended(CASES["links"])
    assert ended.results == dict.fromkeys(("real", "nested/real", "nested/near", "elsewhere/real"), "real")
    for link in ("nested/passwd", "nested/etc", "elsewhere/passwd", "checkpoint-5/pytorch_model.bin"):
        assert f"{link} is a link out of the run, which is not followed" in ended.log


def test_an_output_folder_that_is_a_link_out_of_the_run_is_not_followed(place: Place) -> None:
    ended = place.ended(CASES["all links"])
    assert list(ended.results) == ["finished.txt"]
    assert "output is a link out of the run, which is not followed, so it is not uploaded" in ended.log


def test_a_command_that_the_node_does_not_have(place: Place) -> None:
    said = "the command nonexistent-program was not found (check that it is installed, and in PATH)"
    assert place.ended(CASES["missing"]).because.endswith(said)


@pytest.mark.parametrize("code", [0, 3])
def test_a_daemon_that_a_script_leaves_is_gone_and_the_scripts_exit_code_counts(place: Place, code: int) -> None:
    ended = place.ended(CASES[f"daemon, {code}"])
    assert "the daemon is there" in ended.log and not Path(f"{LEFT}-{code}").exists()
    assert ended.state == ("failed" if code else "succeeded")
    assert not code or "the command ended with exit code 3; its last output: the daemon is there" in ended.because


def test_a_script_that_looks_through_every_process_does_not_find_the_nodes_token(place: Place) -> None:
    """It finds what it may: a secret in its own parent's environment."""
    ended = place.ended(CASES["spy"])
    assert "found in environ of" in ended.log and "['planted-secret']" in ended.log, ended.log
    assert not re.search(r"gl_|TOKEN", ended.log), ended.log


def test_a_script_that_wants_the_network_without_saying_so_is_told_how(place: Place) -> None:
    if place.level != "sandbox":
        pytest.skip("only a sandbox has no network")
    with create_server(("127.0.0.1", 0)) as server:
        here, far = ("127.0.0.1", str(server.getsockname()[1])), ("1.1.1.1", "53")
        refused, unreachable, reached = (
            Case(CONNECTS, here),
            Case(CONNECTS, far),
            Case(CONNECTS, here, {"network": True}),
        )
        for case in (refused, unreachable, reached):
            place.submit(case)
        for case, said in ((refused, "Connection refused"), (unreachable, "Network is unreachable")):
            ended = place.ended(case)
            assert ended.state == "failed"
            assert said in ended.because and "only where it was submitted with --network" in ended.because
        assert list(place.ended(reached).results) == ["reached"]


@pytest.mark.tenths
def test_a_disk_that_is_full_ends_the_job_with_this_reason_and_the_next_one_has_its_room(place: Place) -> None:
    """Whether the script fails of it, or says nothing and ends well."""
    for case in CASES.values():
        place.ended(case)
    place.shrink()
    for words in (("fail",), ()):
        ended = place.ended(Case(FILLS, words))
        assert ended.state == "failed" and ended.because.startswith("the node's disk is full: ")
        said = "No space left on device" if words else "the command finished, but there is no room for its results"
        assert said in ended.because
    assert list(place.ended(Case("open('output/result', 'w').close()")).results) == ["result"]
    assert list(place.runs.glob("attempt-*")) == list(place.runs.glob("*/run")) == []
