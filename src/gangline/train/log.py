"""A job's log: the standard error of all processes of a run, which share it."""

import sys
from io import TextIOWrapper


def write_whole_lines() -> None:
    """Write a line at once. Without it, under PYTHONUNBUFFERED, `print` writes a line and its end one after the other: the lines of two
    processes mix, and one that is killed in between leaves its line open."""
    if (
        isinstance(sys.stderr, TextIOWrapper) and sys.stderr is sys.__stderr__
    ):  # else whoever replaced it says how it writes
        sys.stderr.reconfigure(line_buffering=True, write_through=False)
