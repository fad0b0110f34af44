"""A push that is killed for real: the next one sends no file that had arrived."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.api.app import make_app
from tests.service.conftest import OPERATOR
from tests.service.datasets.conftest import Sets, picture
from tests.service.datasets.counting import Counting, Received
from tests.service.served import serving
from tests.waiting import until

PHOTOS = 450
BEFORE_THE_KILL = 260
"""More than one batch, so that some files are recorded by then, and others only stored."""


@pytest.mark.tenths
def test_a_push_that_is_killed_sends_no_complete_file_twice(sets: Sets, tmp_path: Path) -> None:
    folder = tmp_path / "timber"
    folder.mkdir()
    for number in range(PHOTOS):
        (folder / f"{number:04}.png").write_bytes(picture(number))
    received = Received(pause_s=0.02)
    app = make_app(sets.service.deployment, sets.service.objects)  # type: ignore[arg-type]
    app.add_middleware(Counting, received=received)
    with serving(app) as at:
        command = [sys.executable, "-m", "gangline.cli.main", "datasets", "push", str(folder), "--detach", "-o", "json"]
        environment = os.environ | {
            "GANGLINE_SERVER": at.url,
            "GANGLINE_TOKEN": OPERATOR,
            "GANGLINE_HOME": str(tmp_path / "home"),
        }
        first = subprocess.Popen(command, env=environment)
        until(lambda: len(received.puts) >= BEFORE_THE_KILL or first.poll() is not None)
        first.send_signal(signal.SIGKILL)
        assert first.wait() == -signal.SIGKILL
        recorded = sets.service.look("SELECT COUNT(*) AS count FROM blob")[0]["count"] - 1
        assert 0 < recorded < len(received.puts), "some files are stored and not recorded"
        again = subprocess.run(command, env=environment, check=True, capture_output=True)
    said = json.loads(again.stdout)
    assert said["version"]["photos"] == PHOTOS and said["version"]["made"]
    assert said["sent"] + said["stored"] == PHOTOS
    assert said["stored"] >= BEFORE_THE_KILL - 24, "what was on its way when it was killed may be lost"
    assert len(received.puts) == PHOTOS and received.twice == {}
