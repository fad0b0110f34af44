"""A job's log is the standard error of all processes of a run, which they share."""

import sys
from io import TextIOWrapper


def write_whole_lines() -> None:
    """Make each line one write.

    Under PYTHONUNBUFFERED, `print` writes a line and its newline separately: the lines of two processes then mix, and a process that is
    killed in between leaves its line without an end.
    """
    if (
        isinstance(sys.stderr, TextIOWrapper) and sys.stderr is sys.__stderr__
    ):  # whoever replaced it decides how it writes
        sys.stderr.reconfigure(line_buffering=True, write_through=False)
