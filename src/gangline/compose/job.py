"""The program that runs a command's job on a node: `python -m gangline.compose.job DIRECTORY`, by the trainer contract."""

import json
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from random import Random

from gangline.adapters.host.command import KeptCommand, find_program
from gangline.adapters.host.results import LocalResults
from gangline.adapters.host.workspace import LocalWorkspace
from gangline.adapters.objects.folder import FolderObjects, FolderTransfer
from gangline.compose.exec import exec_rules
from gangline.core.errors import GanglineError
from gangline.core.runs import contract
from gangline.core.runs.contract import EXIT_STOPPED
from gangline.core.specs.command import CommandSpec, command_hash, parse_command
from gangline.exec.job.command_job import WORK, CommandJob, Endings, Silence, fail_input, lay_out_work
from gangline.exec.job.contract_reports import STORE, ContractCheckpoints, StepReports
from gangline.exec.job.previews import Previews
from gangline.exec.plan import NICE, ExecPlan, Tools
from gangline.exec.run import Exec
from gangline.exec.run_prefix import RunPrefix
from gangline.posix import adopt_orphans

ADDRESS = "the job's storage"
NOT_FOR_COMMANDS = ("HF_HUB_OFFLINE", "TRANSFORMERS_VERBOSITY", "OMP_NUM_THREADS")
"""What a worker sets for its own trainers."""


def main(directory: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_STOPPED))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # a sandbox holds it back until now
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)  # a command saves and renders when it does
    spec = parse_command(json.loads((directory / contract.SPEC).read_text()))
    work = directory / WORK
    reports = StepReports(
        directory, lambda: [work / spec.checkpoints / contract.PROGRESS, work / contract.PROGRESS], spec.steps
    )
    try:
        lay_out_work(directory)
        os.chdir(work)
        set_environment(spec)
        find_program(spec.command[0])
        return run_command_job(spec, directory, work, reports)
    except GanglineError as error:
        return fail_input(reports, error)


def set_environment(spec: CommandSpec) -> None:
    """Make the environment that the command inherits: programs of the worker's own environment come first."""
    for name in NOT_FOR_COMMANDS:
        os.environ.pop(name, None)
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.environ |= dict(setting.split("=", 1) for setting in spec.environment)


def run_command_job(spec: CommandSpec, directory: Path, work: Path, reports: StepReports) -> int:
    checkpoints = ContractCheckpoints(directory, command_hash(spec), reports.saved)
    reports.step = checkpoints.resume(directory / contract.RESUME)
    (directory / STORE).mkdir(exist_ok=True)
    objects = FolderObjects(directory / STORE)
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
    workspace = LocalWorkspace(work / spec.checkpoints, plan.rules)
    workspace.log.touch()  # the log is this program's own output
    adopt_orphans()
    previews = Previews(directory)
    silence, endings = Silence(reports, spec.silent_s), Endings()

    def show(_stream: int, content: bytes) -> None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        reports.printed(content)

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
        prefix=prefix,
        reports=reports,
        checkpoints=checkpoints,
        previews=previews,
        endings=endings,
        hung=lambda: silence.because,
        say=tell_log,
    )
    return job(Exec(plan, tools))


def started(reports: StepReports, *given: object) -> KeptCommand:
    reports.begin()
    return KeptCommand(*given)  # type: ignore[arg-type]


def tell_log(text: str) -> None:
    print(f"gangline: {text}", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
