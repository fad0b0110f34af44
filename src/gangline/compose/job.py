"""The program that runs a command's job on a node: `python -m gangline.compose.job DIRECTORY`, by the trainer contract."""

import json
import os
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from gangline.adapters.host.script.command import KeptCommand, find_program
from gangline.adapters.host.script.results import LocalResults
from gangline.adapters.host.script.workspace import LocalWorkspace
from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
from gangline.compose.exec import exec_rules
from gangline.core.command.masking import Masking
from gangline.core.errors import BadInput, GanglineError
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_STOPPED
from gangline.core.specs.command import CommandSpec, command_hash, parse_command
from gangline.exec.job.command_job import WORK, CommandJob, Endings, Silence, fail_around, lay_out_work
from gangline.exec.job.contract_reports import STDERR, STDOUT, STORE, ContractCheckpoints, StepReports
from gangline.exec.job.previews import Previews
from gangline.exec.plan import NICE, ExecPlan, Summary, Tools
from gangline.exec.run import Exec
from gangline.exec.run_prefix import RunPrefix
from gangline.posix import adopt_orphans

ADDRESS = "the job's storage"
BIN = "bin"
NOT_FOR_COMMANDS = ("HF_HUB_OFFLINE", "TRANSFORMERS_VERBOSITY", "OMP_NUM_THREADS")
"""What a worker sets for its own trainers."""


def main(directory: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_STOPPED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a sandbox holds it back until now
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)  # a command saves and renders when it does
    spec = parse_command(json.loads((directory / contract.SPEC).read_text()))
    told = read_from_agent()
    work = directory / WORK
    hides = Masking(told.secrets.values()).hides
    reports = StepReports(
        directory, lambda: [work / spec.checkpoints / contract.PROGRESS, work / contract.PROGRESS], spec.steps, hides
    )
    try:
        lay_out_work(directory)
        os.chdir(work)
        set_environment(spec, directory, told)
        find_program(spec.command[0])
        return run_command_job(spec, directory, work, reports, told.secrets)
    except (GanglineError, OSError) as error:
        return fail_around(reports, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromAgent:
    """What the agent tells on standard input: the values of secrets, and the folder of a virtual environment."""

    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    environment: str = ""


def read_from_agent() -> FromAgent:
    """Read what the agent tells. What this program starts finds its standard input empty."""
    text = sys.stdin.read()
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    return FromAgent(**json.loads(text)) if text else FromAgent()


def set_environment(spec: CommandSpec, directory: Path, told: FromAgent) -> None:
    """Make the environment that the command inherits: programs of its virtual environment come first, or those beside its interpreter; then
    those of the worker's own. Raises `BadInput` where there is no such interpreter."""
    for name in NOT_FOR_COMMANDS:
        os.environ.pop(name, None)
    first = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    if told.environment:
        first = [str(Path(told.environment, "bin")), *first]
        os.environ["VIRTUAL_ENV"] = told.environment
    elif spec.python:
        first = [*beside_interpreter(spec.python, directory / BIN), *first]
    if told.environment or spec.python:
        os.environ.pop("PYTHONPATH", None)  # of the worker's own Python
    os.environ["PATH"] = os.pathsep.join(first)
    os.environ |= dict(setting.split("=", 1) for setting in spec.environment) | told.secrets


def beside_interpreter(python: str, to: Path) -> list[str]:
    """Write programs that are called `python` and start this interpreter. Return the folders of these, and of the interpreter."""
    found = shutil.which(python)
    if found is None:
        raise BadInput(f"there is no {python} that a run of this node can start", hint="--python")
    to.mkdir()
    for name in ("python", "python3"):
        with (to / name).open("w") as file:
            file.write(f'#!/bin/sh\nexec {shlex.quote(found)} "$@"\n')
        (to / name).chmod(0o755)
    return [str(to), str(Path(found).absolute().parent)]


def run_command_job(
    spec: CommandSpec, directory: Path, work: Path, reports: StepReports, secrets: Mapping[str, str]
) -> int:
    checkpoints = ContractCheckpoints(directory, command_hash(spec), reports.saved)
    reports.step = checkpoints.resume(directory / contract.RESUME)
    (directory / STORE).mkdir(exist_ok=True)
    objects = FolderObjects(directory / STORE, waits_for_room=False)
    rng, now_ms = Random(directory.name), lambda: time.time_ns() // 1_000_000  # noqa: S311 - jitter, not a secret
    prefix = RunPrefix(
        objects=objects, transfer=FolderTransfer(objects, nice=NICE), address=ADDRESS, rng=rng, now_ms=now_ms
    )
    plan = ExecPlan(
        command=spec.command,
        rules=exec_rules(spec.layout, spec.complete_when, spec.step),
        keep=1,
        grace_s=spec.grace_s,
        any_script=True,
    )
    within = directory.resolve()
    workspace = LocalWorkspace(work / spec.checkpoints, plan.rules, within)
    workspace.log.touch()  # the log is this program's own output
    adopt_orphans()
    previews = Previews(directory)
    silence, endings = Silence(reports, spec.silent_s), Endings()

    # A value comes in pieces in one stream, whatever the other has between them.
    maskings = {stream: Masking(secrets.values()) for stream in (STDOUT, STDERR)}

    def show(stream: int, content: bytes) -> None:
        print_masked(stream, maskings[stream].feed(content))

    def print_masked(stream: int, content: bytes) -> None:
        write_log(content)
        reports.printed(content, stream)

    def look(_status: str) -> None:
        reports.look()
        checkpoints.look()
        previews.look(reports.step)

    tools = Tools(
        prefix=prefix,
        workspace=workspace,
        files=LocalResults(
            workspace.root,
            workspace.state,
            plan.rules,
            tuple(work / path for path in spec.results),
            workspace.is_written,
            within,
        ),
        start=partial(started, reports),
        notifier=endings,
        notice=silence,
        download=lambda _stopped: 0,
        show=show,
        log=workspace.log,
        say=tell_log,
        status=look,
        host=socket.gethostname(),
        environment=os.environ,
        now_s=time.monotonic,
        now_ms=now_ms,
        safe=checkpoints.take,
    )
    job = CommandJob(
        spec=spec,
        directory=directory,
        linking=RunPrefix(
            objects=objects,
            transfer=FolderTransfer(objects, nice=NICE, links=True),
            address=ADDRESS,
            rng=rng,
            now_ms=now_ms,
        ),
        prefix=prefix,
        reports=reports,
        checkpoints=checkpoints,
        previews=previews,
        endings=endings,
        hung=lambda: silence.because,
        was_full=lambda: objects.was_full,
        say=tell_log,
    )

    def run() -> Summary:
        ended = Exec(plan, tools)()
        for stream, masking in maskings.items():
            print_masked(stream, masking.rest())
        return ended

    return job(run)


def started(reports: StepReports, *given: object) -> KeptCommand:
    reports.begin()
    return KeptCommand(*given)  # type: ignore[arg-type]


def tell_log(text: str) -> None:
    write_log(f"gangline: {text}\n".encode())


def write_log(content: bytes) -> None:
    with suppress(OSError):  # a full disk costs the log some lines, and the command nothing
        os.write(sys.stdout.fileno(), content)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
