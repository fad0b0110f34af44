"""Parts as processes of their own: one that is killed, fails or takes too long ends no other, and what it had found is kept."""

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress

from benchmarks.on_card.part import Case, Part
from benchmarks.on_card.results import Results, shown
from benchmarks.on_card.scale import Scale

from gangline.posix import die_with_parent

SHORTEST_S = 20.0
"""With less than that left no process is begun: to load the libraries takes as long."""


def lacking(part: Part, scale: Scale, results: Results) -> list[str]:
    """Return the cases that have not ended well yet."""
    found = results.of(part.name)
    return [case.name for case in part.cases(scale) if case.name not in found or found[case.name].because]


def run_part(part: Part, scale: Scale, results: Results, until_s: float, command: Sequence[str]) -> str:
    """Run what is lacking, at most until then by `time.monotonic`. Returns why cases were not begun, if there are any.

    A process takes its cases in their order and writes a line for each. So it died in the first one that has none; another process goes on
    after that, unless no case at all ended in it.
    """
    todo = lacking(part, scale, results)
    while todo:
        if until_s - time.monotonic() < SHORTEST_S:
            return "the time is over"
        before = len(results.told(part.name))
        died = run_process([*command, part.name, "--cases", *todo], until_s)
        ended = len(results.told(part.name)) - before
        todo = todo[ended:]
        if died and todo:
            results.write(part.name, todo.pop(0), 0, because=died)
            if not ended:
                return f"the process {died} in the case before"
    return ""


def run_process(command: Sequence[str], until_s: float) -> str:
    """Returns how it died, if it did. All that it has started dies with it, and it with this process."""
    started_s = time.monotonic()
    process = subprocess.Popen(command, process_group=0, preexec_fn=die_with_parent)  # noqa: PLW1509 - one call into libc
    try:
        code = process.wait(max(0.0, until_s - started_s))
    except subprocess.TimeoutExpired:
        return f"was cut off after {time.monotonic() - started_s:.0f} s"
    finally:
        end_group(process)
    return f"ended with {code}" if code else ""


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Also what the process left behind: the next part would be timed beside it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_cases(part: Part, names: Sequence[str], scale: Scale, results: Results) -> None:
    """In this process, one after another: one that fails says why, and the next one begins with free memory."""
    cases = {case.name: case for case in part.cases(scale)}
    for name in names:
        run_case(part, cases[name], results)
        free_memory()


def run_case(part: Part, case: Case, results: Results) -> None:
    started_s = time.monotonic()
    rows, because = [], ""
    try:
        for row in case.rows():
            rows.append(row)
            print(f"{part.name} {time.monotonic() - started_s:6.0f} s  {shown(row)}", flush=True)
    except Exception as error:  # whatever it is: the other cases are to be run
        traceback.print_exc()
        because = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[-1][:150]}"
    results.write(part.name, case.name, time.monotonic() - started_s, rows=rows, because=because)


def free_memory() -> None:
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
