"""Programs of others run with limits: none can hold up the server, fill its memory or read its environment."""

import sys
import time
from pathlib import Path
from threading import Event

import pytest

from gangline.adapters.pools.programs import OUTPUT_BYTES_MAX, Ran, TimedOut, choose_variables, run_program
from gangline.core.errors import BadInput, Unreachable
from tests.processes import is_running

LONG_S, SHORT_S = 60.0, 0.5


def run_python(text: str, *, timeout_s: float = LONG_S, given: bytes = b"", output_bytes_max: int = 1 << 20) -> Ran:
    return run_program(
        [sys.executable, "-c", text],
        environment={"ONE": "1"},
        timeout_s=timeout_s,
        given=given,
        output_bytes_max=output_bytes_max,
    )


def until_gone(pid: int) -> None:
    """Look again until pytest's time-out ends it."""
    while is_running(pid):
        Event().wait(0.01)


def test_a_program_reads_what_it_is_given_and_its_output_comes_back_however_long_both_are() -> None:
    given = b"\x00abc\xff" * 200_000
    ran = run_python(
        "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", given=given, output_bytes_max=1 << 20
    )
    assert (ran.code, ran.output, ran.errors) == (0, given, "")


def test_a_program_has_no_variable_that_it_was_not_given() -> None:
    assert run_python("import os; print({*os.environ} - {'LC_CTYPE'})").output == b"{'ONE'}\n"


def test_only_basic_variables_and_named_ones_are_chosen() -> None:
    surroundings = {"PATH": "/bin", "HOME": "/root", "SECRET": "s", "MINE": "m"}
    assert choose_variables(surroundings, ["MINE", "UNSET"]) == {"PATH": "/bin", "HOME": "/root", "MINE": "m"}


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            "import sys; print('a\\nno such key\\n\\n', file=sys.stderr); sys.exit(3)",
            3,
            "ended with exit code 3: no such key",
        ),
        ("raise SystemExit(1)", 1, "ended with exit code 1 and printed no reason"),
        ("import os; os.kill(os.getpid(), 9)", -9, "was killed by SIGKILL and printed no reason"),
        ("import os; os.kill(os.getpid(), 40)", -40, "was killed by signal 40 and printed no reason"),
        (
            "import sys; sys.stderr.buffer.write(b'\\x1b[31m\\xffred'); sys.exit(1)",
            1,
            "ended with exit code 1: \\x1b[31m�red",
        ),
    ],
)
def test_how_a_program_ended_is_one_line_with_the_last_line_of_its_errors(text: str, code: int, said: str) -> None:
    ran = run_python(text)
    assert (ran.code, ran.ended) == (code, said)


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    text = (
        "import os, pathlib, signal, subprocess, sys, threading; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid)); os.write(2, b'stuck here\\n')\n"
        "threading.Event().wait()"
    )
    began_s = time.monotonic()
    with pytest.raises(TimedOut, match=r"did not end within 2 s and was stopped") as error:
        run_python(text, timeout_s=2)
    assert time.monotonic() - began_s < LONG_S
    assert error.value.errors == "stuck here\n"
    until_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("stream", [1, 2])
def test_a_program_that_prints_without_an_end_is_killed(stream: int) -> None:
    sentence = {1: "printed more than 100,000 bytes", 2: "did not end within 0.5 s"}[stream]
    with pytest.raises(Unreachable, match=sentence):
        run_python(
            f"import os\nwhile True: os.write({stream}, b'x' * 10_000)", timeout_s=SHORT_S if stream == 2 else LONG_S,
            output_bytes_max=100_000,
        )  # fmt: skip


def test_a_megabyte_of_errors_is_cut_to_its_end() -> None:
    ran = run_python("import sys; print('x' * 1_000_000, file=sys.stderr); print('the end', file=sys.stderr); exit(1)")
    assert ran.ended == "ended with exit code 1: the end" and len(ran.errors) < 100_000


def test_output_up_to_the_limit_is_kept_and_one_byte_more_is_refused() -> None:
    assert len(run_python("print('x' * 99, end='')", output_bytes_max=99).output) == 99
    with pytest.raises(Unreachable, match="printed more than 98 bytes"):
        run_python("print('x' * 99, end='')", output_bytes_max=98)
    assert OUTPUT_BYTES_MAX >= 1 << 20


def test_what_a_program_left_running_is_neither_waited_for_nor_killed(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import threading; threading.Event().wait()'])\n"
        "print(child.pid)"
    )
    ran = run_python(text)
    pid = int(ran.output)
    assert ran.code == 0 and is_running(pid)
    run_program(["/bin/kill", "-9", str(pid)], environment={}, timeout_s=LONG_S)
    until_gone(pid)


def test_a_program_that_closes_its_pipes_is_still_waited_for() -> None:
    assert (
        run_python("import os, threading; os.close(1); os.close(2); threading.Event().wait(0.2); os._exit(7)").code == 7
    )


@pytest.mark.parametrize(
    ("content", "mode", "sentence"),
    [
        (None, 0, "was not found"),
        ("#!/bin/sh\n", 0o600, "cannot be started: Permission denied"),
        ("no program", 0o700, "cannot be started: Exec format error"),
    ],
)
def test_a_program_that_cannot_be_started_is_named(
    tmp_path: Path, content: str | None, mode: int, sentence: str
) -> None:
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content)
        program.chmod(mode)
    with pytest.raises(BadInput, match=sentence) as error:
        run_program([str(program)], environment={}, timeout_s=LONG_S)
    assert str(program) in error.value.message and error.value.hint


def test_a_zero_byte_in_a_word_is_refused() -> None:
    with pytest.raises(BadInput, match="zero byte"):
        run_program(["/bin/true", "a\0b"], environment={}, timeout_s=LONG_S)
