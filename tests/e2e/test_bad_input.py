"""What a user gets wrong costs one sentence, one hint and exit code 2; and leaves nothing half made."""

import os
import pty
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from gangline.cli import main as cli
from gangline.cli.admin.box import Box
from tests.conftest import BASE, SUBJECT

TRAIN = ("--prompt", "sks cat", "--base", str(BASE), "--resolution", "64", "--steps", "5")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with Box(tmp_path_factory.mktemp("box") / "home", lease_s=10, heartbeat_interval_s=1) as made:
        yield made


@pytest.fixture
def gangline(box: Box, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run a command line as a user of `box` would; gives the exit code and what was said."""
    monkeypatch.setenv("GANGLINE_SERVER", box.url)
    monkeypatch.setenv("GANGLINE_TOKEN", box.client._http.token)
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "elsewhere"))

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gangline", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return run


def says(answer: tuple[int, str], *parts: str) -> None:
    code, text = answer
    assert code == 2, text
    assert [line for line in text.splitlines() if line.startswith("error: ")], text
    for part in parts:
        assert part in text, text


def test_a_missing_photo_folder(gangline) -> None:
    says(gangline("train", "/nowhere/photos", *TRAIN), "there is no folder /nowhere/photos", "hint: ")


def test_an_empty_photo_folder(gangline, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    says(gangline("train", str(tmp_path / "empty"), *TRAIN), "holds no photos", "hint: ")


def test_a_file_that_is_no_image(gangline, tmp_path: Path) -> None:
    shutil.copytree(SUBJECT, tmp_path / "photos")
    (tmp_path / "photos" / "notes.jpg").write_text("hello")
    says(gangline("train", str(tmp_path / "photos"), *TRAIN), "notes.jpg is not an image", "hint: ")


def test_a_photo_that_is_cut_off(gangline, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    content = (SUBJECT / "cat-face.png").read_bytes()
    (tmp_path / "photos" / "half.png").write_bytes(content[: len(content) // 2])
    says(gangline("train", str(tmp_path / "photos"), *TRAIN), "half.png cannot be read to its end")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (("--resolution", "0"), "resolution: "),
        (("--steps", "-3"), "steps: "),
        (("--learning-rate", "nan"), "learning_rate: "),
        (("--prompt", " "), "prompt: "),
        (("--precision", "int3"), "precision: "),
    ],
)
def test_a_setting_that_cannot_be(gangline, change: tuple[str, str], names: str) -> None:
    says(gangline("train", str(SUBJECT), *TRAIN, *change), names)


@pytest.mark.parametrize(
    ("base", "names"),
    [
        ("/nowhere/base", "there is no base /nowhere/base"),
        (str(SUBJECT), "holds no model"),
        (str(BASE / "model_index.json"), "is not a safetensors file"),
        ("somebody/no-such-model", "the base somebody/no-such-model at main"),
    ],
)
def test_a_base_that_is_none(gangline, base: str, names: str) -> None:
    says(gangline("train", str(SUBJECT), *TRAIN, "--base", base), names, "hint: ")


def test_a_wrong_token(gangline) -> None:
    says(gangline("jobs", "ls", "--token", "wrong"), "this server does not know the key", "hint: ")


def test_a_join_token_where_a_users_is_needed(gangline, box: Box) -> None:
    says(gangline("jobs", "ls", "--token", box.join_token), "this needs a viewer's key, and a join token was given")


def test_a_server_that_is_not_there(gangline) -> None:
    says(
        gangline("jobs", "ls", "--server", f"http://127.0.0.1:{free_port()}"),
        "there is no Gangline server at",
        "connection refused",
        "hint: start one with `gangline up`",
    )


def test_an_address_that_is_none(gangline) -> None:
    says(gangline("jobs", "ls", "--server", "no address"), "no address")


def test_an_unknown_job(gangline) -> None:
    for command in (["jobs", "show"], ["jobs", "cancel"], ["logs"], ["artifacts"]):
        says(gangline(*command, "job-none"), "there is no job job-none")


def test_a_recipe_that_is_no_toml(gangline, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("= 3")
    says(gangline("train", str(SUBJECT), *TRAIN, "--recipe", str(tmp_path / "r.toml")), "cannot be read")


def test_a_recipe_with_a_misspelt_setting(gangline, tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("stepz = 3")
    says(gangline("train", str(SUBJECT), *TRAIN, "--recipe", str(tmp_path / "r.toml")), "stepz: ")


def test_nothing_was_half_made(gangline, box: Box) -> None:
    assert list(box.client.jobs.list()) == []


def test_a_port_in_use(gangline, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        says(gangline("server", "--home", str(tmp_path / "h"), "--port", port), "cannot listen", "hint: ")
    assert not (tmp_path / "h" / "gangline.sqlite").exists()


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("4..1", "a minimum of 4, which is more than its maximum of 1"),
        ("x", "'x' is neither a number nor a range"),
        ("-1", "'-1' is neither a number nor a range"),
        ("1.5", "'1.5' is neither a number nor a range"),
        ("0..", "'0..' is neither a number nor a range"),
        ("0..1000", "1000 nodes are too many for one machine"),
    ],
)
def test_a_number_of_nodes_that_cannot_be(gangline, tmp_path: Path, nodes: str, names: str) -> None:
    says(
        gangline("up", "--home", str(tmp_path / "h"), "--nodes", nodes), names, "hint: pass --nodes a number such as 2"
    )
    assert not (tmp_path / "h").exists()


WRONG = "this server does not know the join token"


def refused_worker(box: Box, home: Path) -> list[str | Path]:
    command = [sys.executable, "-m", "gangline.cli.main", "worker", "--server", box.url, "--token", "wrong"]
    return [*command, "--home", home]


def test_a_worker_with_a_wrong_token_says_so_at_a_terminal_and_ends(box: Box, tmp_path: Path) -> None:
    ours, its = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123 - it has no path
        plain = os.environ | {"TERM": "dumb"}
        ended = subprocess.run(
            refused_worker(box, tmp_path), stdin=subprocess.DEVNULL, stderr=its, env=plain, check=False
        )
        assert ended.returncode == 2
        assert terminal.read(1000).decode().startswith(f"error: {WRONG}\r\nhint: ")
        os.close(its)


def test_a_worker_with_a_wrong_token_that_nobody_watches_says_so_and_waits_until_it_is_stopped(
    box: Box, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as written:
        waiting = subprocess.Popen(
            refused_worker(box, tmp_path / "home"), stdin=subprocess.DEVNULL, stderr=written, stdout=written
        )
    try:
        while WRONG not in log.read_text():
            assert waiting.poll() is None, log.read_text()
            Event().wait(0.05)
        assert log.read_text().rstrip().endswith("makes more; set GANGLINE_TOKEN to it); trying again")
        waiting.terminate()
        assert waiting.wait(30) == 0
    finally:
        waiting.kill()


@pytest.mark.parametrize(
    ("name", "because"),
    [("nowhere/notice", "is neither a provider nor a file"), ("lock", "exists already")],
)
def test_a_notice_that_cannot_come(box: Box, tmp_path: Path, name: str, because: str) -> None:
    (tmp_path / "lock").touch()
    command = [sys.executable, "-m", "gangline.cli.main", "worker", "--server", box.url, "--token", box.join_token]
    words = ["--home", tmp_path / "home", "--notice", tmp_path / name]
    ended = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"error: --notice {tmp_path / name} {because}\nhint: ")


def test_two_workers_in_one_home(box: Box, tmp_path: Path) -> None:
    from gangline.adapters.host.host import LocalHost

    held = LocalHost(tmp_path)
    command = [sys.executable, "-m", "gangline.cli.main", "worker", "--server", box.url, "--token", box.join_token]
    ended = subprocess.run([*command, "--home", tmp_path], capture_output=True, text=True, check=False)
    assert (ended.returncode, held.machine()) == (2, held.machine())
    assert "another worker already uses" in ended.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as once:
        return once.getsockname()[1]
