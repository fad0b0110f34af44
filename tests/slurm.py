"""A Slurm cluster of our own on this machine, for tests: munge, slurmctld and slurmd with a key, ports and a folder of their own.

With accounting it has a slurmdbd and its MariaDB too.
"""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from types import MappingProxyType

PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client"}
"""What a cluster needs, and the packages of Debian that have it."""
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
START_S_MAX, STOP_S_MAX = 25, 30
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
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
KillWait=2
MessageTimeout=2
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:rtx4090:2 State=UNKNOWN
NodeName=machine-2 NodeAddr=127.0.0.2 CPUs=2 State=DOWN
PartitionName=gpu Nodes={node} Default=YES DefaultTime=60 MaxTime=1-0 PriorityTier=1
PartitionName=urgent Nodes={node} DefaultTime=60 MaxTime=1-0 PriorityTier=10 PreemptMode=OFF
PartitionName=bare Nodes=machine-2
"""
WITHOUT_ACCOUNTING = """
AccountingStorageType=accounting_storage/none
MinJobAge=300
"""
WITH_ACCOUNTING = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database}
AccountingStoragePass={socket}
AccountingStorageEnforce=limits
MinJobAge=2
"""
DATABASE_CONF = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={database}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
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
def slurm(*, accounting: bool = False) -> Iterator[Slurm]:
    """In a folder with a short path, as sockets need. With accounting, `MinJobAge` is so short that squeue soon drops ended jobs."""
    for program, package in (PROGRAMS | (ACCOUNTING if accounting else {})).items():
        found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
        assert found, f"{program} was not found: these tests need Slurm (`apt-get install {package}`)"
    with TemporaryDirectory(prefix="gangline-slurm-") as name:
        cluster = _written(Path(name), accounting)
        try:
            _start(cluster, accounting)
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


def _written(folder: Path, accounting: bool) -> Slurm:
    for each in ("state", "spool"):
        (folder / each).mkdir()
    for number in range(GPUS):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"NodeName={NODE} Name=gpu Type=rtx4090 File={folder}/gpu[0-{GPUS - 1}]\n")
    values = dict(zip(("controller", "daemon", "database", "storage"), _free_ports(4), strict=True)) | {
        "host": socket.gethostname().partition(".")[0],
        "user": getpass.getuser(),
        "socket": folder / "munge.sock",
        "folder": folder,
        "node": NODE,
        "password": secrets.token_hex(8),
    }
    conf = CONF + (WITH_ACCOUNTING if accounting else WITHOUT_ACCOUNTING)
    (folder / "slurm.conf").write_text(conf.format_map(values))
    if accounting:
        (folder / "slurmdbd.conf").touch(0o600)
        (folder / "slurmdbd.conf").write_text(DATABASE_CONF.format_map(values))
    return Slurm(folder, folder / "slurm.conf")


def _start(cluster: Slurm, accounting: bool) -> None:
    cluster.daemons["munge"] = munge(cluster.folder)
    until_s = time.monotonic() + START_S_MAX
    while not (cluster.folder / "munge.sock").exists():
        _look(cluster, until_s)
    if accounting:
        _start_accounting(cluster, until_s)
    cluster.start_controller()
    cluster.daemons["slurmd"] = _daemon(cluster.folder, "slurmd", "slurmd", "-D", "-N", NODE, "-f", str(cluster.conf))
    while cluster.state() != "idle":
        _look(cluster, until_s)


def _start_accounting(cluster: Slurm, until_s: float) -> None:
    """Start MariaDB and slurmdbd, and enter this user with an account of its own."""
    folder = cluster.folder
    settings = dict(line.split("=", 1) for line in (folder / "slurmdbd.conf").read_text().split())
    user = "--user=root" if os.geteuid() == 0 else "--no-defaults"
    options = ["--no-defaults", f"--datadir={folder}/data", user]
    install = ["mariadb-install-db", *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True, timeout=START_S_MAX)
    network = ["--bind-address=127.0.0.1", f"--port={settings['StoragePort']}", f"--socket={folder}/db.sock"]
    cluster.daemons["mariadbd"] = _daemon(folder, "mariadbd", "mariadbd", *options, *network)
    grants = (
        "CREATE USER slurm@'%' IDENTIFIED BY '{}'; GRANT ALL ON slurm.* TO slurm@'%'; DROP USER IF EXISTS ''@localhost"
    )
    while not (folder / "db.sock").exists():
        _look(cluster, until_s)
    client = ["mariadb", "--no-defaults", f"--socket={folder}/db.sock", "--user=root"]
    subprocess.run([*client, f"--execute={grants.format(settings['StoragePass'])}"], check=True, timeout=START_S_MAX)
    cluster.daemons["slurmdbd"] = _daemon(folder, "slurmdbd", "slurmdbd", "-D", environment=cluster.environment)
    while True:
        _look(cluster, until_s)
        with suppress(AssertionError):
            cluster.run("sacctmgr", "--immediate", "add", "cluster", "test")
            break
    cluster.run("sacctmgr", "--immediate", "add", "account", "lab")
    cluster.run("sacctmgr", "--immediate", "add", "user", getpass.getuser(), "account=lab")


def _look(cluster: Slurm, until_s: float) -> None:
    Event().wait(0.05)
    said = {name: (cluster.folder / f"{name}.out").read_text(errors="replace")[-2000:] for name in cluster.daemons}
    for name, daemon in cluster.daemons.items():
        assert daemon.poll() is None, f"{name} did not start: {said[name]}"
    assert time.monotonic() < until_s, f"the cluster did not start: {said}"


def _daemon(
    folder: Path, name: str, program: str, *options: str, environment: Mapping[str, str] = MappingProxyType({})
) -> "subprocess.Popen[bytes]":
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    found = shutil.which(program, path=path)
    assert found
    with (folder / f"{name}.out").open("wb") as output:
        return subprocess.Popen(
            [found, *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"LANG": "C.UTF-8", **environment, "PATH": path},
            cwd=folder,
        )


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]
