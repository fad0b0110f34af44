"""What another program prints, and a line of our own that stays below it on a terminal."""

import os
import signal
import sys
from pathlib import Path
from threading import Lock
from typing import BinaryIO

SAVE, RESTORE, CLEAR = b"\x1b7", b"\x1b8", b"\x1b[K"
DIM, PLAIN = b"\x1b[2m", b"\x1b[0m"
STANDARD_OUTPUT = 1


class Terminal:
    """Safe for threads. The status keeps the last row of the terminal for itself (DECSTBM), so that progress bars of others, which
    move the cursor, do not meet it. Where standard error is no terminal there is none. With `apart`, what the program prints on standard
    output goes to standard error: standard output is for our own data."""

    def __init__(self, log: Path, *, apart: bool) -> None:
        self._lock = Lock()
        self._log: BinaryIO | None = log.open("ab", buffering=0)
        self._apart = apart
        self._rows = 0
        self._is_terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, stream: int, content: bytes) -> None:
        to_output = stream == STANDARD_OUTPUT and not self._apart
        with self._lock:
            _write(sys.stdout.fileno() if to_output else sys.stderr.fileno(), content)
            self._keep(content)

    def say(self, text: str) -> None:
        with self._lock:
            _write(sys.stderr.fileno(), f"gangline: {text}\n".encode())
            self._keep(f"gangline: {text}\n".encode())

    def status(self, text: str) -> None:
        """Empty takes it away."""
        if not self._is_terminal:
            return
        with self._lock:
            size = os.get_terminal_size(sys.stderr.fileno())
            if text and size.lines != self._rows:
                # a line more, so that what stands in the last row moves up; then that row is ours
                _write(sys.stderr.fileno(), b"\n" + SAVE + b"\x1b[1;%dr" % (size.lines - 1) + RESTORE + b"\x1b[1A")
                self._rows = size.lines
            if not self._rows:
                return
            row = b"\x1b[%d;1H" % self._rows
            if text:
                line = text[: size.columns - 1].encode()
                _write(sys.stderr.fileno(), SAVE + row + CLEAR + DIM + line + PLAIN + RESTORE)
            else:
                _write(sys.stderr.fileno(), SAVE + row + CLEAR + b"\x1b[r" + RESTORE)
                self._rows = 0

    def _keep(self, content: bytes) -> None:
        """A full disk ends the log, not the program."""
        try:
            if self._log:
                self._log.write(content)
        except OSError as error:
            self._log = None
            _write(sys.stderr.fileno(), f"gangline: warning: the log ends here: {error.strerror}\n".encode())


def _write(handle: int, content: bytes) -> None:
    """All of it, to whoever still reads."""
    while content:
        try:
            content = content[os.write(handle, content) :]
        except BlockingIOError:
            continue
        except OSError:
            return


def parse_signal(name: str) -> int:
    """TERM, SIGTERM or 15. Raises ValueError."""
    if name.isdecimal():
        return int(signal.Signals(int(name)))
    upper = name.upper()
    try:
        return int(signal.Signals[upper if upper.startswith("SIG") else f"SIG{upper}"])
    except KeyError:
        raise ValueError(name) from None
