"""The tests that a process on standby runs on its machine: the libraries of each kind of job, and the cards. It must not import torch
itself, which may not be installed."""

import importlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from gangline.core.runs.proof import CARD
from gangline.core.specs.kinds import KINDS, LIBRARIES, JobKind
from gangline.posix import die_with_parent

CARDS = "gangline.train.proof.cards"
CARDS_S_MAX = 120.0
"""Time limit in seconds. Starting CUDA and a burst take seconds; a broken card may hang."""


def start_cards(shown: str) -> "subprocess.Popen[bytes] | None":
    """Start to test the cards in another process, while libraries load here: a process on standby must not hold a card.

    Return None if the driver shows no card.
    """
    if not shown:
        return None
    return subprocess.Popen(
        [sys.executable, "-P", "-m", CARDS, shown],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
    )


def prove(cards: "subprocess.Popen[bytes] | None") -> dict[str, Any]:
    """Return the kinds of jobs that work here, and all problems and measurements."""
    lacks = find_lacks()
    kinds = [kind for kind in KINDS if kind not in lacks]
    found = _await_cards(cards) if cards and kinds else {"problems": {}, "measured": {}}
    return {"kinds": kinds, "problems": lacks | found["problems"], "measured": found["measured"]}


def find_lacks() -> dict[str, str]:
    """Return a sentence for each kind of job whose libraries are missing or do not load.

    They load in a fork of this process, which shares the modules that are already loaded. Whatever a library does while it loads, such as
    taking memory, starting threads or crashing, does not affect this process.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            die_with_parent()
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):  # nobody needs what libraries print as they load
                os.dup2(nowhere, stream)
            for name, kind in KINDS.items():
                os.write(writing, json.dumps([name, lack_of(kind)]).encode() + b"\n")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = dict(json.loads(line) for line in lines)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended = f"loading its libraries ends the process ({f'signal {-code}' if code < 0 else f'exit code {code}'})"
    return {name: sentence for name in KINDS if (sentence := said.get(name, ended))}


def lack_of(kind: JobKind) -> str:
    """Return why the libraries of this kind do not work; empty if they do."""
    needed = [(extra, library) for extra in kind.extras for library in LIBRARIES[extra]] or [("train", kind.loads)]
    for extra, library in needed:
        if not _is_installed(library):
            return f"{library} is not installed: pip install 'gangline[{extra}]'"
    try:
        importlib.import_module(kind.loads)
    except Exception as error:  # whatever a broken library raises
        words = (str(error) or "no message").splitlines()[0]
        return f"its libraries do not load: {type(error).__name__}: {words}"
    return ""


def _is_installed(library: str) -> bool:
    try:
        return library in sys.modules or find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def _await_cards(cards: "subprocess.Popen[bytes]") -> dict[str, Any]:
    try:
        said = cards.communicate(timeout=CARDS_S_MAX)[0]
    except subprocess.TimeoutExpired:
        cards.kill()
        return {"problems": {CARD: f"the card did not answer in {CARDS_S_MAX:.0f} s"}, "measured": {}}
    if cards.returncode != 0:
        sentence = f"the test of the card ended with exit code {cards.returncode}"
        return {"problems": {CARD: sentence}, "measured": {}}
    return json.loads(said)
