"""A Slurm cluster of our own on this machine, for tests: munge, slurmctld and slurmd with a key, ports and a folder of their own."""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
"""What a cluster needs, and the packages of Debian that have it."""
START_S_MAX, STOP_S_MAX = 60, 30
NODE, GPUS = "machine-1", 2
PARTITION, URGENT, BARE = "gpu", "urgent", "bare"
"""A partition whose jobs those of the second preempt, and one of a machine without GPUs that nobody runs."""

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={socket}
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
KillWait=2
MessageTimeout=2
MinJobAge=300
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:rtx4090:2 State=UNKNOWN
NodeName=machine-2 NodeAddr=127.0.0.2 CPUs=2 State=DOWN
PartitionName=gpu Nodes={node} Default=YES DefaultTime=60 MaxTime=1-0 PriorityTier=1
PartitionName=urgent Nodes={node} DefaultTime=60 MaxTime=1-0 PriorityTier=10 PreemptMode=OFF
PartitionName=bare Nodes=machine-2
"""


@dataclass
class Slurm:
    """A running cluster. `conf` is its slurm.conf; `folder` is shared by this machine and its only node, which are one."""

    folder: Path
    conf: Path
    daemons: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        home = {"HOME": str(self.folder), "USER": getpass.getuser()}
        return {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.conf)} | home

    def run(self, *words: str, given: str = "") -> str:
        """Run one of Slurm's programs as an operator does; what it prints."""
        ran = subprocess.run(
            words, check=False, env=self.environment, input=given, capture_output=True, text=True, timeout=60
        )
        assert ran.returncode == 0, f"{words}: {ran.stderr}"
        return ran.stdout

    def set_node(self, state: str) -> None:
        """Set the machine's state as an administrator does. One that is resumed takes jobs once it has answered again."""
        self.run("scontrol", "update", f"nodename={NODE}", f"state={state}", "reason=a test")
        if state == "resume":
            self.wait_for(lambda: not self.state().endswith("*"))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        until_s = time.monotonic() + STOP_S_MAX
        while not condition():
            assert time.monotonic() < until_s, f"the node is {self.state()}"
            Event().wait(0.05)

    def state(self) -> str:
        return self.run("sinfo", "--noheader", f"--partition={PARTITION}", "--format=%T").strip()

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers and, where its machine is at work already, knows that."""
        self.daemons["slurmctld"] = _daemon(self.folder, "slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        until_s = time.monotonic() + START_S_MAX
        while not self._answers():
            _look(self, until_s)
        if "slurmd" in self.daemons:
            self.daemons["slurmd"].send_signal(signal.SIGHUP)  # it then reports to the controller
            self.wait_for(lambda: not self.state().startswith("unk"))

    def _answers(self) -> bool:
        with suppress(AssertionError):
            return bool(self.state())
        return False

    def stop_controller(self) -> None:
        daemon = self.daemons.pop("slurmctld")
        daemon.terminate()
        daemon.wait(STOP_S_MAX)

    def clear(self) -> None:
        """End all jobs, and wait until the node is free for others."""
        self.run("scancel", "--user", getpass.getuser())
        if self.state().startswith(("drain", "down")):
            with suppress(AssertionError):  # a machine that was set down comes back by itself when it answers
                self.set_node("resume")
        self.wait_for(lambda: self.state() == "idle")


@contextmanager
def slurm() -> Iterator[Slurm]:
    """In a folder with a short path, as sockets need."""
    for program, package in PROGRAMS.items():
        found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert found, (
            f"{program} was not found: these tests need Slurm (`apt-get install slurm-wlm munge`, package {package})"
        )
    with TemporaryDirectory(prefix="gangline-slurm-") as name:
        cluster = _written(Path(name))
        try:
            _start(cluster)
            yield cluster
            cluster.clear()
        finally:
            for daemon in reversed(cluster.daemons.values()):
                daemon.terminate()
            for daemon in cluster.daemons.values():
                try:
                    daemon.wait(STOP_S_MAX)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()


def munge(folder: Path, name: str = "munge") -> "subprocess.Popen[bytes]":
    """Start munged with a new key; its socket is `folder/NAME.sock`."""
    key = folder / f"{name}.key"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(1024))
    files = {"key-file": key, "socket": folder / f"{name}.sock", "pid-file": folder / f"{name}.pid"}
    more = {"seed-file": folder / f"{name}.seed", "log-file": folder / f"{name}.log"}
    # --force: it would refuse a socket in a folder below /tmp, which everybody may write.
    options = [f"--{option}={path}" for option, path in (files | more).items()]
    return _daemon(folder, name, "munged", "--foreground", "--force", *options)


def _written(folder: Path) -> Slurm:
    for each in ("state", "spool"):
        (folder / each).mkdir()
    for number in range(GPUS):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"NodeName={NODE} Name=gpu Type=rtx4090 File={folder}/gpu[0-{GPUS - 1}]\n")
    controller, daemon = _free_ports()
    text = CONF.format(
        host=socket.gethostname().partition(".")[0],
        user=getpass.getuser(),
        controller=controller,
        daemon=daemon,
        socket=folder / "munge.sock",
        folder=folder,
        node=NODE,
    )
    (folder / "slurm.conf").write_text(text)
    return Slurm(folder, folder / "slurm.conf")


def _start(cluster: Slurm) -> None:
    cluster.daemons["munged"] = munge(cluster.folder)
    until_s = time.monotonic() + START_S_MAX
    while not (cluster.folder / "munge.sock").exists():
        _look(cluster, until_s)
    cluster.start_controller()
    cluster.daemons["slurmd"] = _daemon(cluster.folder, "slurmd", "slurmd", "-D", "-N", NODE, "-f", str(cluster.conf))
    while cluster.state() != "idle":
        _look(cluster, until_s)


def _look(cluster: Slurm, until_s: float) -> None:
    Event().wait(0.05)
    for name, daemon in cluster.daemons.items():
        running = daemon.poll() is None and time.monotonic() < until_s
        assert running, f"{name} did not start: {(cluster.folder / f'{name}.out').read_text()[-2000:]}"


def _daemon(folder: Path, name: str, program: str, *options: str) -> "subprocess.Popen[bytes]":
    with (folder / f"{name}.out").open("wb") as output:
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        found = shutil.which(program, path=path)
        assert found
        environment = {"PATH": path, "LANG": "C.UTF-8"}
        return subprocess.Popen(
            [found, *options], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=folder
        )


def _free_ports() -> list[int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return [one.getsockname()[1], other.getsockname()[1]]
