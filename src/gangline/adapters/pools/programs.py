"""Run a program of somebody else's with limits: on its time and on what it may print. It gets no environment but the one it is given."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from selectors import EVENT_READ, BaseSelector, DefaultSelector, SelectorKey

from gangline.core.display import printable
from gangline.core.errors import BadInput, Unreachable

BASIC_VARIABLES = ("PATH", "HOME", "LANG")
OUTPUT_BYTES_MAX = 16 << 20
ERRORS_BYTES_KEPT = 16 << 10
LAST_LINE_MAX = 300
PIECE_BYTES = 65_536


class TimedOut(Unreachable):
    """A program did not end in time and was killed. What it was to do may have happened. `errors` is the end of what it had printed."""

    def __init__(self, message: str, errors: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.errors = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program that has ended. `code` is negative if a signal killed it; `errors` is the end of what it printed to stderr."""

    code: int
    output: bytes
    errors: str

    @property
    def ended(self) -> str:
        """Return how it ended, with the last line that it printed to stderr, for people."""
        how = f"was killed by {_signal(-self.code)}" if self.code < 0 else f"ended with exit code {self.code}"
        line = last_line(self.errors)
        return f"{how}: {line}" if line else f"{how} and printed no reason"


def choose_variables(surroundings: Mapping[str, str], names: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of a program: `BASIC_VARIABLES` and these, as far as they are set."""
    return {name: surroundings[name] for name in (*BASIC_VARIABLES, *names) if name in surroundings}


def run_program(
    words: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    given: bytes = b"",
    called: str = "",
    output_bytes_max: int = OUTPUT_BYTES_MAX,
) -> Ran:
    """Run a program that reads `given` from stdin, and return how it ended. No shell is involved. Errors name it as it is `called`
    (default: its first word).

    A program that takes longer or prints more is killed with its process group, and `TimedOut` or `Unreachable` is raised. What it left
    running in the background when it ended by itself is left alone. Raises `BadInput` if there is no such program.
    """
    stdin = os.memfd_create("stdin")  # unlike a pipe, it cannot fill up and make this process wait
    try:
        os.write(stdin, given)
        os.lseek(stdin, 0, os.SEEK_SET)
        process = _started(words, environment, stdin)
    finally:
        os.close(stdin)
    with process:
        try:
            return _read_until_end(
                process, called or words[0], time.monotonic() + timeout_s, timeout_s, output_bytes_max
            )
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def last_line(errors: str) -> str:
    """Return the last line with words, safe to show and of bounded length."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return printable(lines[-1])[:LAST_LINE_MAX] if lines else ""


def _started(words: Sequence[str], environment: Mapping[str, str], stdin: int) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            list(words),
            env=dict(environment),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise BadInput(
            f"the program {words[0]} was not found", hint="check its path, and that it is installed"
        ) from None
    except BlockingIOError as error:
        raise Unreachable(f"no process can be started on this machine now: {error.strerror}") from None
    except OSError as error:
        hint = "make it executable with `chmod +x`, and begin a script with a line like #!/bin/sh"
        raise BadInput(f"the program {words[0]} cannot be started: {error.strerror}", hint=hint) from None
    except ValueError:
        raise BadInput("the words or the environment of a program contain a zero byte") from None


def _read_until_end(
    process: "subprocess.Popen[bytes]", name: str, until_s: float, timeout_s: float, output_bytes_max: int
) -> Ran:
    """Collect what the process prints until it has ended, not until its pipes are closed: a process in the background may hold them."""
    assert process.stdout and process.stderr
    output, errors = bytearray(), bytearray()
    ended = os.pidfd_open(process.pid)
    with DefaultSelector() as selector:
        for stream, kept in ((process.stdout, output), (process.stderr, errors)):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream.fileno(), EVENT_READ, kept)
        selector.register(ended, EVENT_READ)
        try:
            running = True
            while running:
                ready = {key.fd for key, _ in selector.select(max(0, until_s - time.monotonic()))}
                running = ended not in ready
                if running and (not ready or time.monotonic() >= until_s):
                    raise TimedOut(f"{name} did not end within {timeout_s:g} s and was stopped", _text(errors))
                for key in list(selector.get_map().values()):
                    # Once it has ended, everything that it printed is in the pipes.
                    if key.fd != ended and (key.fd in ready or not running):
                        _read_piece(selector, key, output_bytes_max)
                if len(output) > output_bytes_max:
                    raise Unreachable(f"{name} printed more than {output_bytes_max:,} bytes and was stopped")
                del errors[:-ERRORS_BYTES_KEPT]
        finally:
            os.close(ended)
    return Ran(code=process.wait(), output=bytes(output), errors=_text(errors))


def _read_piece(selector: BaseSelector, key: SelectorKey, bytes_max: int) -> None:
    """Read what is in the pipe, up to a piece beyond the limit, and forget the pipe once it is closed."""
    with suppress(BlockingIOError):
        while len(key.data) <= bytes_max:
            piece = os.read(key.fd, PIECE_BYTES)
            if not piece:
                selector.unregister(key.fd)
                return
            key.data.extend(piece)


def _text(errors: bytearray) -> str:
    return errors.decode(errors="replace")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
