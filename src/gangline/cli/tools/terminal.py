"""What another program prints, and a line of our own that stays below it on a terminal."""

import os
import signal
from collections import deque
from contextlib import suppress
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import BinaryIO

from gangline.core.display import printable

SAVE, RESTORE, CLEAR = b"\x1b7", b"\x1b8", b"\x1b[K"
DIM, PLAIN = b"\x1b[2m", b"\x1b[0m"
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
FLUSH_S = 2.0
WAITING_MAX = 1000


class Terminal:
    """Safe for threads. Words of our own are written by a thread of their own, so that a reader who has stopped reading holds up the
    program alone. The status keeps the last row of the terminal for itself (DECSTBM): progress bars of others, which move the cursor, do
    not meet it. Where standard error is no terminal, or one that is `dumb`, there is none. With `apart`, what the program prints on
    standard output goes to standard error: standard output is for our own data."""

    def __init__(self, log: Path, *, apart: bool, dumb: bool) -> None:
        self._log: BinaryIO | None = log.open("wb", buffering=0)
        self._logging = Lock()
        self._out, self._err = STANDARD_ERROR if apart else STANDARD_OUTPUT, STANDARD_ERROR
        self._writing = {self._out: Lock(), self._err: Lock()}
        self._words = deque[bytes](maxlen=WAITING_MAX)
        self._status: str | None = None
        self._changed = Condition()
        self._closing = False
        self._rows = 0
        self._is_terminal = os.isatty(self._err) and not dumb
        self._thread = Thread(target=self._speak, daemon=True)
        self._thread.start()

    def show(self, stream: int, content: bytes) -> None:
        self._keep(content)
        self._write(self._out if stream == STANDARD_OUTPUT else self._err, content)

    def say(self, text: str) -> None:
        content = f"gangline: {printable(text)}\n".encode()
        self._keep(content)
        with self._changed:
            self._words.append(content)
            self._changed.notify()

    def status(self, text: str) -> None:
        """Empty takes it away."""
        if self._is_terminal:
            with self._changed:
                self._status = text
                self._changed.notify()

    def close(self) -> None:
        """Write what is still waiting, as long as the terminal accepts it."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(FLUSH_S)

    def _speak(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._words or self._status is not None or self._closing)
                words, self._words = list(self._words), deque[bytes](maxlen=WAITING_MAX)
                status, self._status = self._status, None
                if not words and status is None:
                    return
            for content in words:
                self._write(self._err, content)
            if status is not None:
                with suppress(OSError):  # the terminal has gone
                    self._write(self._err, self._drawn(status))

    def _drawn(self, text: str) -> bytes:
        size, drawn = os.get_terminal_size(self._err), b""
        if text and size.lines != self._rows:
            # a line feed moves the text of the last row up, so that this row is free for the status
            drawn = b"\n" + SAVE + b"\x1b[1;%dr" % (size.lines - 1) + RESTORE + b"\x1b[1A"
            self._rows = size.lines
        if not self._rows:
            return b""
        row = SAVE + b"\x1b[%d;1H" % self._rows + CLEAR
        if text:
            return drawn + row + DIM + printable(text)[: size.columns - 1].encode() + PLAIN + RESTORE
        self._rows = 0
        return row + b"\x1b[r" + RESTORE

    def _keep(self, content: bytes) -> None:
        """Append to the log. A full disk ends the log, not the program."""
        with self._logging:
            try:
                if self._log:
                    self._log.write(content)
            except OSError as error:
                self._log, why = None, error.strerror
            else:
                return
        self.say(f"warning: the log can no longer be written: {why}")

    def _write(self, handle: int, content: bytes) -> None:
        """Write all of the content, as long as the terminal accepts it."""
        with self._writing[handle], suppress(OSError):
            while content:
                content = content[os.write(handle, content) :]


def parse_signal(name: str) -> int:
    """TERM, SIGTERM or 15. Raises ValueError."""
    if name.isdecimal():
        return int(signal.Signals(int(name)))
    upper = name.upper()
    try:
        return int(signal.Signals[upper if upper.startswith("SIG") else f"SIG{upper}"])
    except KeyError:
        raise ValueError(name) from None
