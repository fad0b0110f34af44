"""A trainer that has loaded its libraries and waits for its run: `python -m gangline.train.run.standby MODULE...`.

One line on standard input names its module, the run's directory, and its share of the machine as variables of the environment. Until then
it knows nothing of any job and holds no card; at the end of input it ends. With `--report FD` it first writes there, as JSON, what the
machine can do.
"""

import argparse
import importlib
import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED
from gangline.train.loading import loading
from gangline.train.proof.libraries import prove, start_cards


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a sandbox holds it back until now
    parser = argparse.ArgumentParser(description="Load the libraries of trainers, and wait for a run.")
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--report", type=int, help="the file descriptor to write a proof to")
    parser.add_argument("--card", default="", help="the name of the first card, as the driver reports it")
    asked = parser.parse_args()
    cards = start_cards(asked.card)
    for module in asked.modules:
        with loading(), suppress(Exception):  # the run will raise it again, into its log; the proof reports it too
            importlib.import_module(module)
    if asked.report is not None:
        with os.fdopen(asked.report, "w") as report:
            json.dump(prove(cards), report)
    line = sys.stdin.readline()
    if not line:
        return EXIT_DONE
    order = json.loads(line)
    os.environ |= order["environment"]  # CUDA reads it when it starts, which no library does while it loads
    _move_into(Path(order["directory"]), order["log"])
    sys.argv = [order["module"], order["directory"]]
    sys.modules.pop(order["module"], None)  # its libraries stay loaded; the module runs again, as `__main__`
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    return EXIT_DONE


def _stop(*_: object) -> None:
    """End at once: nothing could be lost yet."""
    sys.exit(EXIT_STOPPED)


def _move_into(directory: Path, log: str) -> None:
    os.chdir(directory)
    os.environ["HOME"] = str(directory)
    written = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for known, stream in ((nothing, 0), (written, 1), (written, 2)):
        os.dup2(known, stream)


if __name__ == "__main__":
    sys.exit(main())
