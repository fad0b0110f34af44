"""What programs say when they start: secrets to the person who started them, and to no log."""

import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

LINE = re.compile(r"\d\d:\d\d:\d\d ")
ADDRESS = re.compile(r"Gangline serves at http://127\.0\.0\.1:\d+")


@contextmanager
def started(*words: object, to: int = subprocess.PIPE, **settings: str) -> Iterator["subprocess.Popen[str]"]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GANGLINE_")}
    command = [sys.executable, "-m", "gangline.cli.main", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=to, text=True, env=own | settings) as program:
        try:
            yield program
        finally:
            program.kill()


def first_line(program: "subprocess.Popen[str]") -> str:
    assert program.stderr
    return program.stderr.readline()


def message_of(line: str, form: str) -> str:
    if form == "json":
        return json.loads(line)["message"]
    assert LINE.match(line), line
    return LINE.sub("", line)


def sessions(home: Path) -> int:
    with closing(sqlite3.connect(home / "gangline.sqlite")) as database:
        return database.execute("SELECT COUNT(*) FROM session").fetchone()[0]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_servers_log_has_its_address_alone(tmp_path: Path, form: str) -> None:
    with started("server", "--home", tmp_path, "--port", 0, GANGLINE_LOG_FORMAT=form) as server:
        said = message_of(first_line(server), form)
        assert ADDRESS.fullmatch(said.strip())
        assert sessions(tmp_path) == 0, "no link was made that signs in"
        server.terminate()
        assert server.communicate()[1] == ""


def test_at_a_terminal_a_server_says_how_to_open_its_page_and_how_to_join(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    with started("server", "--home", tmp_path, "--port", 0, to=its), os.fdopen(ours, "rb", buffering=0) as terminal:
        os.close(its)
        said = ""
        while "gangline keys add NAME" not in said:
            said += terminal.read(4096).decode()
        token = json.loads((tmp_path / "access.json").read_text())["join_token"]
        assert ADDRESS.search(said) and f"GANGLINE_TOKEN={token}" in said and "/sign-in?code=" in said
        assert sessions(tmp_path) == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_a_worker_says_is_a_line_of_its_log_without_secrets(tmp_path: Path, form: str) -> None:
    settings = {"GANGLINE_LOG_FORMAT": form, "GANGLINE_TOKEN": "gl_join_not-a-token-of-any-server"}
    with started("worker", "--server", "http://me:hunter2@127.0.0.1:1", "--home", tmp_path, **settings) as worker:
        said = message_of(first_line(worker), form)
    assert "there is no Gangline server" in said and "hunter2" not in said
