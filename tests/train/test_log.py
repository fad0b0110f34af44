"""The log of a run is one of whole lines, whoever else writes to it and whenever somebody is killed."""

import os
import subprocess
import sys

import pytest

PRINT = "import sys; print('out of memory', file=sys.stderr)"
WHOLE = f"from gangline.train.log import write_whole_lines; write_whole_lines(); {PRINT}"


@pytest.mark.parametrize(("program", "writes"), [(PRINT, [b"out of memory", b"\n"]), (WHOLE, [b"out of memory\n"])])
def test_a_line_is_written_at_once_where_python_is_told_not_to_buffer(program: str, writes: list[bytes]) -> None:
    reading, writing = os.pipe2(os.O_DIRECT)  # which keeps writes apart
    subprocess.run([sys.executable, "-u", "-c", program], stderr=writing, check=True)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as log:
        assert list(iter(lambda: log.read(4096), b"")) == writes
