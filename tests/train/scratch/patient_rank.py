"""A rank that needs no model: it waits for SIGTERM, and ends as one that was stopped.

`python -m tests.train.scratch.patient_rank FOLDER`.
"""

import os
import signal
import sys
from pathlib import Path

from gangline.core.runs.contract import EXIT_STOPPED

if __name__ == "__main__":
    (Path(sys.argv[1]) / f"rank-{os.environ['RANK']}").touch()
    signal.sigwait({signal.SIGTERM})  # the launcher starts it with the signal blocked
    sys.exit(EXIT_STOPPED)
