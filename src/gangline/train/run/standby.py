"""A trainer that has loaded its libraries and waits for its run: `python -m gangline.train.run.standby MODULE...`.

Until one line on standard input names its module and the run's directory it knows nothing of any job, and holds no card.
It ends where the line does not come.
"""

import importlib
import json
import os
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

from gangline.core.runs.contract import EXIT_DONE, EXIT_STOPPED


def main() -> int:
    signal.signal(signal.SIGTERM, _stop)
    for module in sys.argv[1:]:
        with suppress(ImportError):  # said where the log is read: when its run comes
            importlib.import_module(module)
    line = sys.stdin.readline()
    if not line:
        return EXIT_DONE
    order = json.loads(line)
    _move_into(Path(order["directory"]), order["log"])
    sys.argv = [order["module"], order["directory"]]
    sys.modules.pop(order["module"], None)  # its libraries stay; itself it runs anew, as a program
    runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
    return EXIT_DONE


def _stop(*_: object) -> None:
    """It has done nothing that could be lost."""
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
