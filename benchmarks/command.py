"""What a job costs a command: `python benchmarks/command.py [speed] [restart] [--rounds 3] [--seconds 90]`.

speed     the rate of a training that saves 66 MB every 30 s: by itself, and as a job whose server, agent and store are on this machine
restart   seconds from the death of a node to the next step of the command on another one that is idle, beside lease + start of the script
"""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1])
# isort: split

import argparse
import json
import os
import statistics
import subprocess
import time
from tempfile import TemporaryDirectory
from threading import Event

from benchmarks.exec import CHECKPOINT_BYTES, SCRIPT
from tests.exec.chain import __file__ as CHAIN

from gangline.cli.admin.box import Box
from gangline.cli.tools.run import upload
from gangline.core.specs.command import parse_command
from gangline.core.views import JobView

EVERY_S = 30.0
LEASE_S = 3.0
BEAT_S = 0.5


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="*", default=["speed", "restart"])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=90.0)
    asked = options.parse_args()
    if "speed" in asked.what:
        speed(asked.rounds, asked.seconds)
    if "restart" in asked.what:
        restart(asked.rounds)


def speed(rounds: int, seconds: float) -> None:
    alone, job = list[float](), list[float]()
    saved = 0
    with TemporaryDirectory() as home, Box(Path(home), lease_s=45.0, heartbeat_interval_s=10.0) as box:
        box.start_node("node")
        for _ in range(rounds):
            alone.append(by_itself(seconds)["rate"])
            said = as_job(box, seconds)
            job.append(said["rate"])
            saved += round(said["saved"])
    share = [100 * (1 - one / other) for one, other in zip(job, alone, strict=True)]
    print(f"steps/s by itself: {', '.join(f'{each:.1f}' for each in alone)}")
    print(
        f"steps/s as a job:  {', '.join(f'{each:.1f}' for each in job)}, {saved} checkpoints of {CHECKPOINT_BYTES / 1e6:.0f} MB"
    )
    rates = ", ".join(f"{each:.2f}" for each in share)
    print(f"a job takes {statistics.median(share):.2f} % of its speed (median of {rounds} rounds in turns: {rates})")


def by_itself(seconds: float) -> dict[str, float]:
    command = [sys.executable, "-c", SCRIPT, "output", str(seconds), str(EVERY_S), str(CHECKPOINT_BYTES)]
    with TemporaryDirectory() as home:
        ran = subprocess.run(
            command, cwd=home, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, capture_output=True, text=True
        )
    return rate_in(ran.stdout)


def as_job(box: Box, seconds: float) -> dict[str, float]:
    command = ["python", "-c", SCRIPT, "output", str(seconds), str(EVERY_S), str(CHECKPOINT_BYTES)]
    spec = parse_command({"command": command, "environment": ["OMP_NUM_THREADS=1"]}, options=True)
    job = box.client.jobs.submit(spec).summary.id
    ended = until(box, job)
    assert ended.summary.state == "succeeded", ended.summary.because
    return rate_in(box.client.logs.get(job).text)


def rate_in(text: str) -> dict[str, float]:
    return next(json.loads(line) for line in text.splitlines() if line.startswith('{"rate"'))


def until(box: Box, job: str, attempts: int = 0, step: int = 0) -> JobView:
    """Wait until the job has ended, or its so many-th attempt has come to a step."""
    while True:
        found = box.client.jobs.get(job)
        if found.summary.ended_ms is not None or (
            0 < attempts <= len(found.attempts) and found.attempts[-1].step >= step
        ):
            return found
        Event().wait(0.05)


def restart(rounds: int) -> None:
    took = list[float]()
    with TemporaryDirectory() as home, Box(Path(home), lease_s=LEASE_S, heartbeat_interval_s=BEAT_S) as box:
        code = upload(box.client, Path(CHAIN).parent, [Path(CHAIN)], [])
        command = ["python", "chain.py", "output", "100000", "--every", "50", "--step-s", "0.02"]
        job = box.client.jobs.submit(parse_command({"command": command, **code}, options=True)).summary.id
        box.start_node("node-0")
        for number in range(rounds):
            box.start_node(f"node-{number + 1}")
            found = until(box, job, number + 1, step=1)
            while found.summary.committed_step == 0:
                found = until(box, job, number + 1, step=1)
            Event().wait(2 * BEAT_S)
            killed_s = time.monotonic()
            box.nodes[str(found.summary.node_name)].kill()
            until(box, job, number + 2, step=found.summary.committed_step + 1)
            took.append(time.monotonic() - killed_s)
    began = time.monotonic()
    with TemporaryDirectory() as home:
        subprocess.run([sys.executable, CHAIN, home, "1", "--every", "1"], check=True, capture_output=True)
    script_s = time.monotonic() - began
    print(
        f"kill → next step: {', '.join(f'{each:.1f}' for each in took)} s; lease {LEASE_S:.1f} s, start of the script {script_s:.1f} s"
    )


if __name__ == "__main__":
    main()
