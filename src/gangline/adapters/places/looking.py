"""Run a program that decodes files of strangers: without the server's secrets, within limits of time and of its answer."""

import json
import os
import subprocess
from collections.abc import Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any

from gangline.adapters.places.saving import ASK_S, Watch
from gangline.ports.places.fetcher import Check

REFUSED = 65
LOOK_S, EXIT_S = 900, 10
ANSWER_BYTES_MAX = 64 << 20
PASSED_ON = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR")


def answer_of(command: Sequence[str], check: Check, *, seconds: float) -> Any:
    """Return the program's answer; None if it failed. The program decodes files of strangers, so its time and the size of its answer are
    limited too."""
    try:
        looking = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_without_secrets(),
        )
    except OSError:
        return None
    with looking:
        try:
            said = _read(looking.stdout, Watch(seconds, check))
            return json.loads(said) if said and looking.wait(EXIT_S) in (0, REFUSED) else None
        except (subprocess.TimeoutExpired, ValueError):
            return None
        finally:
            looking.kill()


def _read(pipe: IO[bytes] | None, watch: Watch) -> bytes | None:
    """Return the whole output; None if it is too long or takes too much time."""
    assert pipe is not None
    said = bytearray()
    with DefaultSelector() as ready:
        ready.register(pipe, EVENT_READ)
        while len(said) <= ANSWER_BYTES_MAX and watch.left_s > 0:
            watch.ask()
            if ready.select(ASK_S):
                more = os.read(pipe.fileno(), 1 << 20)
                if not more:
                    return bytes(said)
                said += more
    return None


def _without_secrets() -> dict[str, str]:
    """Return the environment without the server's secrets, as the program decodes files of strangers."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}
