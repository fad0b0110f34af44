"""A line of `gangline exec` as somebody types it, on nodes that are folders, over a bucket that is real."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gangline.adapters.host.script.results import LocalResults
from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.adapters.objects.s3 import S3Objects
from gangline.adapters.objects.s3_abilities import find_abilities
from gangline.adapters.objects.s3_wire import S3Bucket, Wire

GANGLINE = (sys.executable, "-m", "gangline.cli.main")
CHAIN = Path(__file__).parent / "chain.py"


@dataclass
class Running:
    """A process of `gangline exec -o json`, and what it says, line by line."""

    process: "subprocess.Popen[str]"
    said: list[str] = field(default_factory=list)

    def until(self, words: str, times: int = 1) -> str:
        """The line that has these words, for the so-many-th time from here on. The test's time-out ends the wait."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))
            times -= words in line
            if not times:
                return line
        raise AssertionError(f"{words!r} was not said:\n" + "\n".join(self.said))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end()

    def end(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the summary, once it has ended."""
        assert self.process.stderr and self.process.stdout
        self.said += [line.rstrip("\n") for line in self.process.stderr]
        printed = self.process.stdout.read()
        code = self.process.wait()
        for stream in (self.process.stderr, self.process.stdout):
            stream.close()
        return code, json.loads(printed) if printed else {}

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@dataclass
class Line:
    """`node` is the machine: a folder of its own. The same words mean the same line."""

    root: Path
    to: str
    environment: dict[str, str]
    started: list[Running] = field(default_factory=list)

    def start(
        self,
        node: str,
        *,
        chain: tuple[object, ...] = (60,),
        options: tuple[object, ...] = (),
        command: tuple[str, ...] = (),
    ) -> Running:
        home = self.root / node
        home.mkdir(exist_ok=True)
        words = command or (sys.executable, str(CHAIN), "out", *map(str, chain))
        process = subprocess.Popen(
            [
                *GANGLINE,
                "exec",
                "-o",
                "json",
                "--checkpoints",
                "out",
                "--to",
                self.to,
                *map(str, options),
                "--",
                *words,
            ],
            cwd=home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self.started.append(Running(process))
        return self.started[-1]

    def result(self, node: str) -> str:
        return (self.root / node / "out" / "result.txt").read_text()


def results_in(workspace: LocalWorkspace, *besides: Path) -> dict[str, Path]:
    """What goes up at the end, by its path in the store, beside checkpoints and what looks like one."""
    files = LocalResults(workspace.root, workspace.state, workspace.rules, besides, workspace.is_written)
    return {path: look.at for path, look in files.scan().items() if look.turn != "state"}


@pytest.fixture
def place(bucket: S3Bucket) -> S3Objects:
    """A prefix of its own in the bucket."""
    wire = Wire(replace(bucket, prefix=f"exec/{uuid4().hex[:8]}"))
    return S3Objects(wire, find_abilities(wire))


def environment_of(bucket: S3Bucket) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
        "AWS_ACCESS_KEY_ID": bucket.credentials.access_key or "",
        "AWS_SECRET_ACCESS_KEY": bucket.credentials.secret_key or "",
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def make_line(tmp_path: Path) -> Iterator[Callable[[S3Bucket], Line]]:
    made: list[Line] = []

    def make(bucket: S3Bucket) -> Line:
        made.append(Line(tmp_path, f"s3://{bucket.name}/{bucket.prefix}", environment_of(bucket)))
        return made[-1]

    yield make
    for line in made:
        for running in line.started:
            if running.process.poll() is None:
                running.kill()


@pytest.fixture
def line(make_line: Callable[[S3Bucket], Line], place: S3Objects) -> Line:
    return make_line(place._wire.bucket)
