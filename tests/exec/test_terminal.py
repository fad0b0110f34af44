"""What a person sees: the command's output as it is, and a line of our own below it that is in nobody's way."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exec.conftest import CHAIN, GANGLINE, Line
from tests.waiting import until

ROWS, COLUMNS = 12, 100


class Screen:
    """As much of a terminal as is needed to see where what stands: cursor, scroll region, line feeds."""

    def __init__(self) -> None:
        self.rows = [[" "] * COLUMNS for _ in range(ROWS)]
        self.row = self.column = 0
        self.top, self.bottom = 0, ROWS - 1
        self.saved = (0, 0)

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            letter = text[at]
            if letter == "\x1b":
                at = self._escape(text, at + 1)
                continue
            if letter == "\r":
                self.column = 0
            elif letter == "\n":
                self._line_feed()
            elif letter >= " " and self.column < COLUMNS:
                self.rows[self.row][self.column] = letter
                self.column += 1
            at += 1

    def _line_feed(self) -> None:
        if self.row == self.bottom:
            del self.rows[self.top]
            self.rows.insert(self.bottom, [" "] * COLUMNS)
        elif self.row < ROWS - 1:
            self.row += 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "7":
            self.saved = self.row, self.column
            return at + 1
        if text[at] == "8":
            self.row, self.column = self.saved
            return at + 1
        assert text[at] == "[", text[at : at + 5]
        end = next(index for index in range(at + 1, len(text)) if text[index].isalpha())
        numbers = [int(each) for each in text[at + 1 : end].split(";") if each]
        match text[end]:
            case "r":
                self.top, self.bottom = (numbers[0] - 1, numbers[1] - 1) if numbers else (0, ROWS - 1)
                self.row = self.column = 0
            case "H":
                self.row, self.column = numbers[0] - 1, numbers[1] - 1
            case "K":
                self.rows[self.row][self.column :] = [" "] * (COLUMNS - self.column)
            case "A":
                self.row -= numbers[0]
            case "m":
                pass
            case other:
                raise AssertionError(other)
        return end + 1

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    yield ours, theirs
    for handle in (ours, theirs):
        try:
            os.close(handle)
        except OSError:
            continue


def start(line: Line, theirs: int, *options: str, chain: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    (line.root / "a").mkdir()
    words = [*GANGLINE, "exec", "--checkpoints", "out", "--to", line.to, *options, "--"]
    return subprocess.Popen(
        [*words, sys.executable, str(CHAIN), "out", *chain],
        cwd=line.root / "a",
        env=line.environment | {"TERM": "xterm-256color"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )


def read_until(ours: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        seen += os.read(ours, 65_536)
    return seen


def test_the_last_row_tells_how_it_stands_and_the_rest_is_the_commands(line: Line, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    process = start(line, theirs, "--price", "2", chain=("100", "--step-s", "0.05"))
    screen = Screen()
    screen.feed(read_until(ours, b"checkpoint-30 is safe,").decode())
    screen.feed(read_until(ours, b"step 50").decode())
    *above, last = screen.lines
    assert last.startswith("run 1 · checkpoint-") and " s old" in last and "$" in last
    assert any(each.startswith("step ") for each in above) and not any("run 1 ·" in each for each in above)
    screen.feed(read_until(ours, b"in all").decode())
    process.wait()
    assert (screen.top, screen.bottom) == (0, ROWS - 1)
    assert not any("run 1 ·" in each for each in screen.lines)
    assert any("the command finished, step 100" in each for each in screen.lines)


def test_a_terminal_that_goes_away_does_not_end_the_training(line: Line, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    process = start(line, theirs, chain=("60", "--step-s", "0.05"))
    read_until(ours, b"step 10")
    os.close(theirs)
    os.close(ours)
    assert process.wait() == 0
    assert (line.root / "a" / "out" / "result.txt").exists()


def test_who_does_not_read_does_not_hold_up_the_end(line: Line) -> None:
    """A pager that waits, a terminal that was stopped: the signal gets through all the same."""
    shout = "import sys, time, signal\nsignal.signal(15, lambda *_: open('told', 'w').close())\nwhile True: print('x' * 1000)"
    running = line.start("a", command=(sys.executable, "-c", shout), options=("--grace", 0.5))
    told = line.root / "a" / "told"
    running.until("gangline: run 1")
    log = line.root / "a" / ".out.gangline" / "log.txt"
    until(lambda: log.stat().st_size >= 10_000)
    running.signal(signal.SIGTERM)
    until(told.exists)
    assert running.end()[0] == 75


def test_a_folder_will_do_as_a_store_for_large_files_too(line: Line, tmp_path: Path) -> None:
    line.to = str(tmp_path / "store")
    chain = (20, "--bytes", 40_000_000)
    first = line.start("a", chain=chain)
    first.until("checkpoint-10 is safe")
    first.kill()
    second = line.start("b", chain=chain)
    code, told = second.end()
    assert code == 0 and told["restored_step"] >= 10, second.text
    assert (tmp_path / "store" / "runs" / "000002" / "output" / "result.txt").exists()
