"""A command with everything that it starts: as it ends, as it is told to end, and when somebody else ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from gangline.adapters.host.script.command import KEEPER, KeptCommand, find_program
from gangline.core.errors import UserError
from gangline.posix import descendants
from tests.processes import words_of
from tests.waiting import until


class Shown:
    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes]] = []

    def __call__(self, stream: int, content: bytes) -> None:
        self.pieces.append((stream, content))

    def of(self, stream: int) -> bytes:
        return b"".join(content for each, content in self.pieces if each == stream)


@pytest.fixture
def shown() -> Shown:
    return Shown()


def ended(command: KeptCommand) -> int:
    while command.code is None:
        command.wait(1)
    return command.code


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_its_code_is_as_a_shell_tells_it(shown: Shown, script: str, code: int) -> None:
    command = KeptCommand(["bash", "-c", script], shown)
    assert ended(command) == code
    command.close()
    assert command.gone


def test_both_streams_are_shown_to_their_ends(shown: Shown) -> None:
    command = KeptCommand(["bash", "-c", "for i in $(seq 2000); do echo line $i; echo error $i >&2; done"], shown)
    ended(command)
    command.close()
    assert shown.of(1).splitlines()[-1] == b"line 2000" and shown.of(2).splitlines()[-1] == b"error 2000"


def test_a_launcher_that_dies_of_the_signal_does_not_end_its_child(shown: Shown) -> None:
    """The child still saves: the command has ended, but is not gone."""
    script = "(trap 'echo saved; exit 0' TERM; echo up; while true; do sleep 0.05; done) & wait"
    command = KeptCommand(["bash", "-c", script], shown)
    until(lambda: b"up" in shown.of(1))
    command.signal(signal.SIGTERM)
    until(lambda: command.gone)
    command.close()
    assert b"saved" in shown.of(1) and command.code == 143


def test_kill_ends_what_made_itself_a_session_of_its_own(shown: Shown) -> None:
    command = KeptCommand(["bash", "-c", "setsid sleep 1000 & setsid setsid sleep 1000 & echo up; wait"], shown)
    until(lambda: b"up" in shown.of(1))
    command.kill()
    until(lambda: command.gone)
    command.close()
    assert ended(command) == 137


def test_who_tells_all_processes_of_a_machine_does_not_end_the_keeper(shown: Shown) -> None:
    script = "trap 'echo saved; exit 3' TERM; echo up; while true; do sleep 0.05; done"
    command = KeptCommand(["bash", "-c", script], shown)
    until(lambda: b"up" in shown.of(1))
    os.kill(command._keeper.pid, signal.SIGTERM)
    os.kill(command._keeper.pid, signal.SIGHUP)
    command.signal(signal.SIGTERM)
    assert ended(command) == 3
    command.close()
    assert b"saved" in shown.of(1)


def test_a_keeper_that_is_killed_leaves_nothing(shown: Shown) -> None:
    command = KeptCommand(["bash", "-c", "sleep 1000 & echo $!; wait"], shown)
    until(lambda: shown.of(1).endswith(b"\n"))
    child = int(shown.of(1))
    os.kill(command._keeper.pid, signal.SIGKILL)
    assert ended(command) == 137
    command.close()
    until(lambda: "sleep" not in words_of(child))


def test_a_command_is_told_of_before_it_runs() -> None:
    """Or a keeper that is killed in between leaves a command that nobody knows."""
    news, told = os.pipe()
    os.set_blocking(told, False)
    with suppress(BlockingIOError):
        while os.write(told, b"\n"):  # nothing more can be told until somebody reads
            pass
    os.set_blocking(told, True)
    words = [sys.executable, "-P", "-m", KEEPER, str(told), "sleep", "1000"]
    keeper = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[told])
    try:
        os.close(told)
        until(lambda: any(_is_asleep(pid) for pid in descendants(keeper.pid)))
        (child,) = descendants(keeper.pid)
        assert not words_of(child).startswith("sleep")
        with os.fdopen(news) as lines:
            assert next(line for line in lines if line.strip()) == f"started {child}\n"
            until(lambda: words_of(child).startswith("sleep"))
    finally:
        keeper.kill()  # its command goes with it
        keeper.communicate()


def test_who_started_it_dies_and_all_of_it_dies(tmp_path: Path) -> None:
    starter = (
        "import os, signal\nfrom gangline.adapters.host.script.command import KeptCommand\n"
        "KeptCommand(['bash', '-c', 'setsid sleep 4321 & echo $! > pid; wait'], lambda *_: None)\n"
        "while not (os.path.exists('pid') and open('pid').read().endswith('\\n')): os.sched_yield()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", starter], cwd=tmp_path, check=False)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: "4321" not in words_of(pid))


def test_how_many_processes_there_are_is_told_by_their_environment(shown: Shown) -> None:
    command = KeptCommand(["bash", "-c", "WORLD_SIZE=4 sleep 1000 & echo up; wait"], shown)
    until(lambda: b"up" in shown.of(1) and command.processes == 4)
    command.close()
    assert not [pid for pid in descendants(os.getpid()) if "1000" in words_of(pid)]


def _is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_what_cannot_be_started_is_said_before(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text("echo hello")
    script.chmod(0o755)
    with pytest.raises(UserError, match="does not begin with a line that names its interpreter") as refusal:
        find_program(str(script))
    assert "#!/bin/sh" in refusal.value.hint
    find_program("bash")


def test_what_fails_to_start_all_the_same_has_a_code(shown: Shown, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    command = KeptCommand([str(script)], shown)
    assert ended(command) == 126
    command.close()
