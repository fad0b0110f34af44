"""A signal that reaches a trainer in the moment of its end does not make a crash of it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ENDS = """
import os, sys
from gangline.train import program

class Late:  # while the interpreter is taken down, when it has given every handler back
    def __init__(self, number): self.kill, self.pid, self.number = os.kill, os.getpid(), number
    def __del__(self): self.kill(self.pid, self.number)

late = Late(int(sys.argv.pop()))
sys.exit(program.main(lambda run, orders: 0))
"""


@pytest.mark.tenths
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_what_is_asked_of_a_trainer_that_has_done_its_work_does_not_end_it_otherwise(
    number: signal.Signals, tmp_path: Path
) -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS, str(tmp_path), str(int(number))], check=False)
    assert ended.returncode == 0
