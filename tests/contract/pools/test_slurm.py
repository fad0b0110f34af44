"""The `slurm` driver over a real Slurm: its controller, its daemon of a machine with two GPUs, and its own programs."""

import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from gangline.adapters.pools.slurm import seen
from gangline.adapters.pools.slurm.driver import SlurmPool
from gangline.adapters.pools.slurm.settings import SlurmCluster, SlurmSettings
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.ports.pool import NoCapacity, Rental, WithLogs
from tests.contract.pools.suite import (
    DoubleSuite,
    Fault,
    HandSuite,
    ListSuite,
    LostAnswerSuite,
    PoolSuite,
    RefusalSuite,
    StubbornSuite,
    alive,
    ask,
    found,
    has_ended,
    names,
    rental,
    start,
    until,
)
from tests.servers import served
from tests.slurm import BARE, NODE, PARTITION, URGENT, Slurm, munge, slurm

LOST = "echo 'sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received' >&2; exit 1"
"""What sbatch prints when its connection breaks."""
QUOTA = "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct")
WORKER = "#!/bin/sh\nexec sleep 1000\n"
SUBMISSION = 'case "$*" in *--test-only*) exec {program} "$@";; esac\n'


class ACluster:
    """The cluster as a provider. Faults of its network are programs of the test's in place of Slurm's; all others are the cluster's own."""

    def __init__(self, cluster: Slurm, folder: Path, mark: str) -> None:
        self.cluster, self.folder, self.mark = cluster, folder, mark
        self.worker = folder / "worker"
        self.write_worker(WORKER)
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in PROGRAMS:
            (self.programs / name).symlink_to(real(name))
        self.conf = folder / "slurm.conf"
        self.conf.write_text(cluster.conf.read_text())
        shutil.copy(cluster.folder / "gres.conf", folder)
        self.driver = self.restarted()

    def restarted(self, **settings: object) -> SlurmPool:
        return SlurmPool(
            settings=SlurmSettings(**({"partition": PARTITION, "gpu_memory_gb": 24.0} | settings)),  # type: ignore[arg-type]
            cluster=SlurmCluster(
                programs=str(self.programs),
                conf=str(self.conf),
                folder=self.folder / "output",
                scratch=str(self.folder / "scratch"),
                worker=str(self.worker),
            ),
            mark=self.mark,
            surroundings=self.cluster.environment | {"A_SECRET": "of the server"},
        )

    def write_worker(self, text: str) -> None:
        self.worker.write_text(text)
        self.worker.chmod(0o700)

    def run(self, name: str) -> None:
        until(lambda: alive(self, name).billed_from_ms is not None)

    def kill(self, name: str) -> None:
        assert alive(self, name)
        self.cluster.set_node("down")

    def end_by_hand(self, name: str) -> None:
        self.cluster.run("scancel", f"--name={name}")

    def rent_by_hand(self, name: str, *options: str) -> str:
        words = ("--parsable", f"--job-name={name}", "--gres=gpu:1", f"--output={self.folder}/by-hand", *options)
        return self.cluster.run("sbatch", *words, given=WORKER).strip()

    def double(self, name: str) -> None:
        self.rent_by_hand(name, f"--comment={self.mark}")

    def has(self, instance: str) -> bool:
        jobs = self.cluster.run("squeue", "--noheader", "--format=%i").split()
        return instance in jobs

    def show(self, instance: str) -> str:
        return self.cluster.run("scontrol", "--oneliner", "show", "job", instance)

    @contextmanager
    def suffers(self, fault: Fault) -> Iterator[None]:
        match fault:
            case Fault.NO_CAPACITY:
                self.cluster.set_node("drain")
                yield
                self.cluster.set_node("resume")
            case Fault.AWAY:
                self.cluster.stop_controller()
                yield
                self.cluster.start_controller()
            case Fault.CREDENTIALS:
                with self.munge_at("nothing.sock"):  # munged does not run here
                    yield
            case _:
                name, text = self._broken(fault)
                with self.replaced(name, text):
                    yield

    def _broken(self, fault: Fault) -> tuple[str, str]:
        sbatch, squeue = real("sbatch"), real("squeue")
        match fault:
            case Fault.LOST_AFTER:
                return "sbatch", SUBMISSION.format(program=sbatch) + f'{sbatch} "$@" >{self.folder}/lost; {LOST}'
            case Fault.LOST_BEFORE:
                return "sbatch", SUBMISSION.format(program=sbatch) + LOST
            case Fault.QUOTA:
                return "sbatch", f'echo "{QUOTA}" >&2; exit 1'
            case Fault.PARTIAL:
                return "squeue", f'{squeue} "$@" | head -c 60; kill -9 $$'
            case Fault.STALE:
                return (
                    "squeue",
                    f'test -e {self.folder}/then || {squeue} "$@" >{self.folder}/then; cat {self.folder}/then',
                )
            case Fault.DEAF:
                return "scancel", "exit 0"
            case _:
                raise NotImplementedError(fault)

    @contextmanager
    def replaced(self, name: str, text: str) -> Iterator[None]:
        """Put a shell script in the place of one of Slurm's programs."""
        program = self.programs / name
        program.unlink()
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o700)
        if name == "squeue" and "then" in text:
            self.driver.list()
        yield
        program.unlink()
        program.symlink_to(real(name))

    @contextmanager
    def munge_at(self, socket: str) -> Iterator[None]:
        """Let this machine use another munge than the cluster's."""
        text = self.conf.read_text()
        self.conf.write_text(text.replace("/munge.sock", f"/{socket}"))
        yield
        self.conf.write_text(text)


def real(name: str) -> str:
    found = shutil.which(name)
    assert found
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm() as started:
        yield started


@pytest.fixture
def provider(cluster: Slurm, tmp_path: Path) -> Iterator[ACluster]:
    yield ACluster(cluster, tmp_path, f"gangline:{tmp_path.name}")
    cluster.clear()


class TestSlurm(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite, DoubleSuite):
    """Slurm lists jobs by one user, whose names are not unique."""


# What only Slurm does


def test_a_partition_with_each_gpu_type_is_an_offer_of_one_gpu_at_the_price_of_the_settings(provider: ACluster) -> None:
    driver = provider.restarted(
        partition=f"{PARTITION},{URGENT}", gpu="RTX 4090", trust=3, price_usd_per_hour=0.25, gpu_memory_gb=24.0
    )
    first, second = driver.offers()
    assert (first.id, second.id) == ("gpu/rtx4090", "urgent/rtx4090")
    assert (first.gpu, first.gpu_memory_gb, first.slots, first.trust) == ("RTX 4090", 24, 1, 3)
    assert (first.price_known, first.price_micro_usd_per_hour) == (True, 250_000)


def test_an_offer_has_no_known_price_without_one_in_the_settings_and_is_named_after_its_type(
    provider: ACluster,
) -> None:
    (offer,) = provider.driver.offers()
    assert (offer.price_known, offer.gpu) == (False, "rtx4090")


@pytest.mark.parametrize(
    ("settings", "ids"),
    [
        ({"gpus": 2}, ["gpu/rtx4090"]),
        ({"gpus": 3}, []),
        ({"gpu_type": "rtx4090"}, ["gpu/rtx4090"]),
        ({"gpu_type": "a100"}, []),
        ({"gpus": 0}, ["gpu"]),
        ({"partition": BARE, "gpus": 0}, []),
    ],
)
def test_only_what_a_usable_machine_has_is_offered(
    provider: ACluster, settings: dict[str, object], ids: list[str]
) -> None:
    offers = provider.restarted(**settings).offers()
    assert [offer.id for offer in offers] == ids
    assert all(offer.slots == max(1, int(str(settings.get("gpus", 1)))) for offer in offers)


def test_a_partition_that_is_not_there_is_named_with_those_that_are(provider: ACluster) -> None:
    driver = provider.restarted(partition="gpu,nowhere")
    with pytest.raises(BadInput, match="Slurm has no partition nowhere") as error:
        driver.offers()
    assert error.value.hint == "it has bare, gpu and urgent"
    with pytest.raises(BadInput, match="Slurm has no partition nowhere"):
        driver.start("nowhere/rtx4090", rental("node-a"))
    assert driver.list() == []


@pytest.mark.parametrize("offer", ["", "gpu", "gpu/", "urgent/rtx4090", "gpu/a100:1,license", "gpu/--wrap=x"])
def test_what_was_never_offered_is_not_submitted(provider: ACluster, offer: str) -> None:
    with pytest.raises(NoCapacity):
        provider.driver.start(offer, rental("node-a"))
    assert provider.driver.list() == []


@pytest.mark.parametrize("name", ["", "a b", "a,b", "--wrap", "a%j", "é", "a\nb", "a/b"])
def test_a_name_that_means_more_than_itself_to_slurm_is_refused(provider: ACluster, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name of a job"):
        provider.driver.start("gpu/rtx4090", rental(name))


def test_a_node_without_gpus_is_rented_in_a_pool_of_such_nodes(provider: ACluster) -> None:
    driver = provider.restarted(gpus=0)
    driver.start("gpu", rental("node-a"))
    until(lambda: driver.list()[0].billed_from_ms is not None)
    assert "gres" not in provider.show(driver.list()[0].id)


def test_the_token_reaches_the_worker_by_its_environment_and_no_one_else_can_see_it(provider: ACluster) -> None:
    provider.write_worker(
        f'#!/bin/sh\nenv >{provider.folder}/env\necho "$@" >{provider.folder}/words\nexec sleep 1000\n'
    )
    secret = secrets.token_hex()  # that no test beside this one uses
    provider.driver.start("gpu/rtx4090", replace(rental("node-a"), token=secret))
    provider.run("node-a")
    instance = alive(provider, "node-a")
    until((provider.folder / "words").exists)
    environment = (provider.folder / "env").read_text().splitlines()
    assert {f"GANGLINE_TOKEN={secret}", "GANGLINE_SERVER=http://nowhere", "GANGLINE_NODE=node-a"} <= {*environment}
    assert f"GANGLINE_HOME={provider.folder}/scratch/1" in environment
    assert not any(line.startswith(("A_SECRET=", "TZ=")) for line in environment)
    assert (provider.folder / "words").read_text() == "--slots 1\n"
    script = provider.cluster.run("scontrol", "write", "batch_script", instance.id, "-")
    shown = provider.show(instance.id)
    assert script.startswith("#!/bin/bash") and "node-a" in shown
    assert secret not in script + shown
    assert secret.encode() not in b"".join(words_of_all_processes())


def words_of_all_processes() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:  # it has just ended
            continue


def test_a_node_without_gangline_fetches_the_worker_from_the_server(provider: ACluster) -> None:
    app = FastAPI()

    @app.get("/worker.sh", response_class=PlainTextResponse)
    def worker() -> str:
        return f'echo "$GANGLINE_NODE $*" >{provider.folder}/joined\nexec sleep 1000\n'

    cluster = SlurmCluster(
        conf=str(provider.conf), folder=provider.folder / "output", scratch=f"{provider.folder}/$USER"
    )
    for number, programs in enumerate((("curl",), ("python3",))):  # of what may fetch it, the machine has this
        prepare = f"PATH={only(provider.folder / str(number), *programs)}"
        driver = SlurmPool(
            settings=SlurmSettings(partition=PARTITION),
            cluster=replace(cluster, prepare=prepare),
            mark=provider.mark,
            surroundings=provider.cluster.environment,
        )
        with served(app) as url:
            driver.start("gpu/rtx4090", Rental(name=f"node-{number}", server=url, token="a secret"))
            until((provider.folder / "joined").exists)
            until(lambda text=f"node-{number} --slots 1\n": (provider.folder / "joined").read_text() == text)


def only(folder: Path, *programs: str) -> Path:
    """Make a folder for PATH with these programs and a shell's."""
    folder.mkdir()
    for name in ("sh", "sleep", *programs):
        (folder / name).symlink_to(Path(sys.executable if name == "python3" else real(name)).resolve())
    return folder


def test_two_workers_on_one_machine_have_two_homes_and_the_next_one_has_a_home_of_before(provider: ACluster) -> None:
    provider.write_worker(
        f'#!/bin/sh\necho "$GANGLINE_NODE $GANGLINE_HOME" >>{provider.folder}/homes\nexec sleep 1000\n'
    )
    homes = provider.folder / "homes"
    first = start(provider, "node-a")
    until(homes.exists)
    start(provider, "node-b")
    until(lambda: len(homes.read_text().splitlines()) == 2)
    provider.driver.stop(first.id)
    until(has_ended(provider, "node-a"))
    until(lambda: provider.cluster.state() == "mixed")
    start(provider, "node-c")
    until(lambda: len(homes.read_text().splitlines()) == 3)
    scratch = provider.folder / "scratch"
    assert homes.read_text().splitlines() == [
        f"node-a {scratch}/1",
        f"node-b {scratch}/2",
        f"node-c {scratch}/1",
    ]
    assert scratch.stat().st_mode & 0o077 == 0


def test_a_scratch_folder_of_another_user_is_not_used(provider: ACluster) -> None:
    scratch = provider.folder / "scratch"
    scratch.mkdir(mode=0o777)
    os.chown(scratch, 12345, 12345)
    ask(provider, "node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == f"it ended with exit code 1 on {NODE}"
    assert "belongs to another user" in provider.driver.logs(found(provider, "node-a").id)


POLITE = """#!/bin/sh
trap 'echo saved; exit 0' TERM
echo ready
while :; do sleep 0.05; done
"""


def until_logged(provider: ACluster, instance: str, words: str) -> None:
    def is_there() -> bool:
        try:
            return words in provider.driver.logs(instance)
        except NotFound:
            return False

    until(is_there)


def test_a_worker_that_is_stopped_is_asked_first_and_has_time_to_save(provider: ACluster) -> None:
    provider.write_worker(POLITE)
    instance = start(provider, "node-a")
    until_logged(provider, instance.id, "ready")
    provider.driver.stop(instance.id)
    until_logged(provider, instance.id, "saved")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == "it was stopped"


def test_the_signal_before_the_time_limit_reaches_the_worker_itself(provider: ACluster) -> None:
    provider.write_worker(POLITE)
    driver = provider.restarted(time_limit_minutes=30)
    driver.start("gpu/rtx4090", rental("node-a"))
    instance = alive(provider, "node-a")
    assert "TimeLimit=00:30:00" in provider.show(instance.id)
    until_logged(provider, instance.id, "ready")
    # What `--signal=B:TERM@120` sends two minutes before the end: a signal to the batch script's process alone.
    provider.cluster.run("scancel", "--batch", "--signal=TERM", instance.id)
    until_logged(provider, instance.id, "saved")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == f"it ended with exit code 0 on {NODE}"


def test_a_job_that_scancel_killed_says_so(provider: ACluster) -> None:
    start(provider, "node-a")
    provider.end_by_hand("node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == f"its job was canceled on {NODE}"


def test_a_job_that_another_preempts_says_so_and_is_not_requeued(provider: ACluster) -> None:
    provider.write_worker(POLITE)
    instance = start(provider, "node-a")
    until_logged(provider, instance.id, "ready")
    provider.rent_by_hand("more-important", f"--partition={URGENT}", "--gres=gpu:2")
    until(has_ended(provider, "node-a"))
    ended = found(provider, "node-a")
    assert ended.ended == f"another job preempted it on {NODE}" and ended.billed_to_ms is not None
    assert "saved" in provider.driver.logs(instance.id)
    assert names(provider.driver) == []


def test_a_machine_that_fails_says_so(provider: ACluster) -> None:
    start(provider, "node-a")
    provider.kill("node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == f"the cluster's node failed on {NODE}"


def test_a_drained_machine_keeps_its_jobs_and_is_offered_no_more(provider: ACluster) -> None:
    instance = start(provider, "node-a")
    provider.cluster.set_node("drain")
    assert provider.driver.offers() == []
    assert provider.driver.list() == [instance]
    provider.cluster.set_node("resume")
    assert [offer.id for offer in provider.driver.offers()] == ["gpu/rtx4090"]


def test_a_partition_that_is_closed_is_no_offer(provider: ACluster) -> None:
    provider.cluster.run("scontrol", "update", f"partitionname={PARTITION}", "state=drain")
    try:
        assert provider.driver.offers() == []
        with pytest.raises(NoCapacity, match="partition gpu has no node for this now"):
            provider.driver.start("gpu/rtx4090", rental("node-a"))
    finally:
        provider.cluster.run("scontrol", "update", f"partitionname={PARTITION}", "state=up")


def test_how_long_a_job_would_wait_decides_whether_it_is_submitted(provider: ACluster) -> None:
    for name in ("node-a", "node-b"):
        start(provider, name)
    with pytest.raises(NoCapacity, match=r"no room: Slurm expects the job to wait (59|60) minutes"):
        ask(provider, "node-c")
    patient = provider.restarted(queue_minutes_max=100.0)
    patient.start("gpu/rtx4090", rental("node-c"))
    waiting = found(provider, "node-c")
    assert (waiting.billed_from_ms, waiting.billed_to_ms) == (None, None)
    until(lambda: ": Resources; expected to start at 20" in found(provider, "node-c").progress)
    assert found(provider, "node-c").progress.startswith("waits in Slurm's queue: Resources; expected to start")
    patient.stop(waiting.id)
    until(has_ended(provider, "node-c"))
    ended = found(provider, "node-c")
    assert ended.billed_from_ms == ended.billed_to_ms, "it never ran, so it costs nothing"


def test_a_worker_that_fails_at_once_is_listed_with_its_exit_code_and_its_output_says_why(provider: ACluster) -> None:
    provider.write_worker("#!/bin/sh\necho 'no CUDA here' >&2\nexit 3\n")
    ask(provider, "node-a")
    until(has_ended(provider, "node-a"))
    instance = found(provider, "node-a")
    assert instance.ended == f"it ended with exit code 3 on {NODE}"
    assert isinstance(provider.driver, WithLogs) and provider.driver.logs(instance.id).endswith("no CUDA here\n")


def test_a_worker_that_is_killed_by_a_signal_says_which(provider: ACluster) -> None:
    provider.write_worker("#!/bin/sh\nkill -9 $$\n")
    ask(provider, "node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == f"it was killed by signal 9 on {NODE}"


def test_only_the_end_of_a_long_output_is_fetched_whatever_is_in_it(provider: ACluster) -> None:
    provider.write_worker("#!/bin/sh\nhead -c 1000000 /dev/urandom\necho the end\nexit 1\n")
    ask(provider, "node-a")
    until(has_ended(provider, "node-a"))
    said = provider.driver.logs(found(provider, "node-a").id)
    assert said.endswith("the end\n") and len(said) <= 64 << 10


@pytest.mark.parametrize("instance", ["12345678", "../slurm-1", ""])
def test_output_that_is_not_there_is_not_found(provider: ACluster, instance: str) -> None:
    with pytest.raises(NotFound, match="has no output in"):
        provider.driver.logs(instance)


def test_old_output_is_deleted_when_a_job_is_submitted(provider: ACluster) -> None:
    output = provider.folder / "output"
    output.mkdir()
    for name, age_s in (("slurm-1.log", 15 * 86_400), ("slurm-2.log", 86_400), ("mine.log", 15 * 86_400)):
        (output / name).touch()
        os.utime(output / name, (time.time() - age_s,) * 2)
    start(provider, "node-a")
    assert {"slurm-2.log", "mine.log"} <= {path.name for path in output.iterdir()}
    assert not (output / "slurm-1.log").exists()


def test_a_controller_that_hangs_is_unreachable_within_the_time_limit(provider: ACluster) -> None:
    controller = provider.cluster.daemons["slurmctld"]
    controller.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unreachable, match="does not answer"):
            provider.driver.list()
    finally:
        controller.send_signal(signal.SIGCONT)
    assert provider.driver.list() == []


def test_a_program_that_hangs_is_stopped(provider: ACluster) -> None:
    impatient = SlurmCluster(programs=str(provider.programs), conf=str(provider.conf), timeout_s=0.3)
    driver = SlurmPool(
        settings=SlurmSettings(partition=PARTITION),
        cluster=impatient,
        mark="gangline:impatient",
        surroundings=provider.cluster.environment,
    )
    with (
        provider.replaced("squeue", "exec sleep 1000"),
        pytest.raises(Unreachable, match=r"Slurm does not answer: .*squeue did not end within 0.3 s"),
    ):
        driver.list()


def test_a_foreign_key_of_munge_is_unreachable_with_a_hint(provider: ACluster) -> None:
    stranger = munge(provider.cluster.folder, "stranger")
    try:
        until((provider.cluster.folder / "stranger.sock").exists)
        with provider.munge_at("stranger.sock"), pytest.raises(Unreachable, match="closed the connection") as error:
            provider.driver.list()
        assert "munged has the cluster's key" in error.value.hint
    finally:
        stranger.terminate()
        stranger.wait()


def test_a_cluster_without_slurm_on_this_machine_is_named(provider: ACluster) -> None:
    driver = SlurmPool(
        settings=SlurmSettings(partition=PARTITION), cluster=SlurmCluster(), mark="m", surroundings={"PATH": "/nowhere"}
    )
    with pytest.raises(BadInput, match="the program squeue was not found"):
        driver.list()


def test_jobs_of_strange_names_beside_ours_are_skipped(provider: ACluster) -> None:
    provider.rent_by_hand("é\x1f|\nnode-b\x1fRUNNING", f"--comment={provider.mark}", "--hold")
    instance = start(provider, "node-a")
    assert provider.driver.list() == [instance]


def test_a_job_that_slurm_drops_from_its_list_has_ended_and_one_that_comes_back_has_not(provider: ACluster) -> None:
    instance = start(provider, "node-a")
    with provider.replaced("squeue", "exit 0"):
        assert provider.driver.list() == [instance]  # its database, which may be away, has no word of an end
    assert provider.driver.list() == [instance]
    with provider.replaced("squeue", "exit 0"):
        assert provider.driver.list() == [instance]
        (ended,) = provider.driver.list()
        assert (ended.id, ended.ended, ended.billed_from_ms) == (
            instance.id,
            "Slurm no longer lists its job",
            instance.billed_from_ms,
        )
        assert ended.billed_to_ms is not None and provider.driver.list() == [ended]
    assert provider.driver.list() == [instance]


def test_a_job_that_ended_long_ago_is_forgotten(provider: ACluster, monkeypatch: pytest.MonkeyPatch) -> None:
    start(provider, "node-a")
    monkeypatch.setattr(seen, "ENDED_KEPT_S", -1)
    with provider.replaced("squeue", "exit 0"):
        assert names(provider.driver) == ["node-a"]
        assert provider.driver.list() == []


def test_a_folder_that_cannot_be_made_is_named(provider: ACluster) -> None:
    (provider.folder / "output").write_text("a file")
    with pytest.raises(BadInput, match=r"the folder .*/output cannot be used: File exists"):
        ask(provider, "node-a")
    assert provider.driver.list() == []


def test_a_request_that_slurm_does_not_understand_names_the_options(provider: ACluster) -> None:
    for options, said in (("--frobnicate=1", "unrecognized option"), ("--mem=much", "Invalid --mem specification")):
        cluster = SlurmCluster(
            programs=str(provider.programs), conf=str(provider.conf), folder=provider.folder / "output", options=options
        )
        driver = SlurmPool(
            settings=SlurmSettings(partition=PARTITION),
            cluster=cluster,
            mark=provider.mark,
            surroundings=provider.cluster.environment,
        )
        with pytest.raises(BadInput, match=f"Slurm does not accept the options of this pool: {said}"):
            driver.start("gpu/rtx4090", rental("node-a"))
    assert provider.driver.list() == []


def test_a_sentence_of_an_error_holds_no_control_characters(provider: ACluster) -> None:
    with (
        provider.replaced("squeue", "printf 'squeue: error: \\033[31mred\\r\\n' >&2; exit 1"),
        pytest.raises(Unreachable) as error,
    ):
        provider.driver.list()
    assert error.value.message == "squeue ended with exit code 1: squeue: error: \\x1b[31mred"
