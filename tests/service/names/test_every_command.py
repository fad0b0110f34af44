"""Every command in front of hostile data: no name, reason, log or file steers a terminal, forges a row, vanishes, or ends a command
in a traceback."""

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import click
import pytest

from gangline.adapters.objects.local import LocalObjects
from gangline.cli import main as cli
from tests.service.conftest import OPERATOR, a_service
from tests.service.names.commands import COMMANDS, Run
from tests.service.names.hostile import FORGED, MARK, TYPED, fill
from tests.service.served import serving
from tests.unit.test_display import CONTROLS, SGR


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "files").mkdir()
    with (
        a_service(folder, str(folder / "db.sqlite"), LocalObjects(folder / "store", "secret")) as service,
        serving(service.app) as served,
    ):
        yield fill(service, folder / "files") | {"server": served.url, "home": str(folder / "client")}


@pytest.fixture
def gangline(words: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.setenv("GANGLINE_SERVER", words["server"])
    monkeypatch.setenv("GANGLINE_TOKEN", OPERATOR)
    monkeypatch.setenv("GANGLINE_HOME", words["home"])
    monkeypatch.chdir(words["folder"])

    def run(*typed: str) -> Ended:
        """In this process, with streams as a terminal has them: a text that is no UTF-8 cannot be written."""
        monkeypatch.setattr(sys, "argv", ["gangline", *typed])
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", how) for how in ("strict", "backslashreplace"))
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            cli.main()
        of_process = capfd.readouterr()
        written = [_text(stream) for stream in (out, err)]
        return Ended(int(ended.value.code or 0), written[0] + of_process.out, written[1] + of_process.err)

    return run


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def leaves() -> dict[str, click.Command]:
    """Every command by its words."""
    found: dict[str, click.Command] = {}
    for name, lazy in cli.COMMANDS.items():
        command = lazy.load(name)
        below = getattr(command, "commands", None)
        found |= {name: command} if below is None else {f"{name} {each}": one for each, one in below.items()}
    return found


def test_every_command_is_in_the_table() -> None:
    assert set(COMMANDS) == set(leaves())


def test_no_command_is_steered_by_what_others_wrote(words: dict[str, str], gangline: Command) -> None:
    commands, wrong = leaves(), list[str]()
    for name, runs in COMMANDS.items():
        takes_json = any("--output" in parameter.opts for parameter in commands[name].params)
        for run in () if isinstance(runs, str) else runs:
            typed = [*name.split(), *(word.format(**words) for word in run.words.split())]
            for more in ((), ("-o", "json")) if takes_json and run.json and not run.code else ((),):
                try:
                    found = list(flaws(gangline(*typed, *more), run, as_json=bool(more)))
                except (Exception, pytest.fail.Exception) as error:
                    found = [f"a traceback: {error!r}"]
                wrong += [f"{name} {run.words} {' '.join(more)}: {each}"[:700] for each in found]
    assert not wrong, "\n".join(map(ascii, wrong))


def flaws(ended: Ended, run: Run, *, as_json: bool) -> Iterator[str]:
    shown = ended.out + ended.err
    if ended.code != run.code:
        yield f"exit code {ended.code}, not {run.code}: {shown[-500:]}"
    steering = CONTROLS.search(SGR.sub("", shown) if run.logs else shown.replace("\r", "\x00"))
    if steering:
        place = steering.start()
        yield f"a raw {steering[0]!a}: {shown[max(0, place - 60) : place + 60]!a}"
    if any(line.startswith(FORGED) for line in shown.splitlines()) and not run.logs:
        yield f"a forged row: {shown[:500]!a}"
    if "Traceback" in shown:
        yield f"a traceback: {shown[-500:]!a}"
    if run.shows not in shown and not (as_json and run.shows != MARK):
        yield f"no {run.shows!r}: {shown[:500]!a}"
    if as_json and ended.code == 0 and not run.logs:
        for line in ended.out.splitlines():
            json.loads(line)


@pytest.mark.parametrize(
    "typed",
    [
        (TYPED,),
        ("jobs", TYPED),
        ("jobs", "ls", TYPED),
        ("jobs", "ls", f"--{TYPED}"),
        ("jobs", "ls", "-o", TYPED),
        ("jobs", "ls", "--server", TYPED),
        ("jobs", "ls", "--server", f"http://{TYPED}"),
    ],
    ids=ascii,
)
def test_words_that_no_command_takes_are_shown_escaped(gangline: Command, typed: tuple[str, ...]) -> None:
    assert list(flaws(gangline(*typed), Run("", 2), as_json=False)) == []


@pytest.mark.parametrize(
    "job", ["", ".", "..", "../keys", "a/../../../healthz", "%2e%2e", "job-000000/cancel", "a?b#c"]
)
def test_an_id_leads_to_nothing_else(gangline: Command, job: str) -> None:
    for command in (("show",), ("cancel",), ("rm", "--yes")):
        ended = gangline("jobs", *command, job)
        assert ended.code == 2
        assert "error: " in ended.err and "Traceback" not in ended.err
