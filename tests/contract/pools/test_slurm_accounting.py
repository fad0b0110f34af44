"""The `slurm` driver on a cluster with accounting: limits of users, and `sacct`, which remembers jobs that `squeue` has dropped."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.adapters.pools.slurm.answers import parse_time_ms
from gangline.adapters.pools.slurm.driver import SlurmPool
from gangline.adapters.pools.slurm.settings import SlurmCluster, SlurmSettings
from gangline.core.errors import Denied
from gangline.ports.pool import NoCapacity
from tests.contract.pools.suite import ask, found, rental, start
from tests.contract.pools.test_slurm import ACluster
from tests.slurm import NODE, PARTITION, Slurm, slurm
from tests.waiting import until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm(accounting=True) as started:
        yield started


@pytest.fixture
def provider(cluster: Slurm, tmp_path: Path) -> Iterator[ACluster]:
    yield ACluster(cluster, tmp_path, f"gangline:{tmp_path.name}")
    cluster.clear()


def limit_jobs(cluster: Slurm, limit: int) -> None:
    """Limit how many jobs may be submitted at once, -1 for no limit, and wait until the controller has heard of it from the database."""
    cluster.run("sacctmgr", "--immediate", "modify", "qos", "normal", "set", f"GrpSubmitJobs={limit}")
    known = f"GrpSubmitJobs={'N' if limit < 0 else limit}("
    until(lambda: known in cluster.run("scontrol", "show", "assoc_mgr", "flags=qos"))


def test_a_limit_of_the_user_is_no_capacity_and_the_next_node_can_be_had_when_there_is_room_again(
    provider: ACluster,
) -> None:
    limit_jobs(provider.cluster, 1)
    try:
        instance = start(provider, "node-a")
        with pytest.raises(
            NoCapacity, match="a limit of Slurm is reached for the server's user: Job violates accounting/QOS policy"
        ):
            ask(provider, "node-b")
        assert provider.driver.list() == [instance]
    finally:
        limit_jobs(provider.cluster, -1)
    start(provider, "node-b")


def test_an_account_that_the_user_does_not_have_is_not_permitted(provider: ACluster) -> None:
    cluster = SlurmCluster(conf=str(provider.conf), folder=provider.folder / "output", options="--account=nobody")
    driver = SlurmPool(
        settings=SlurmSettings(partition=PARTITION),
        cluster=cluster,
        mark=provider.mark,
        surroundings=provider.cluster.environment,
    )
    with pytest.raises(Denied, match="Slurm does not permit this: Invalid account"):
        driver.start("gpu/rtx4090", rental("node-a"))
    allowed = replace(cluster, options="--account=lab", worker=str(provider.worker))
    driver = SlurmPool(
        settings=SlurmSettings(partition=PARTITION),
        cluster=allowed,
        mark=provider.mark,
        surroundings=provider.cluster.environment,
    )
    driver.start("gpu/rtx4090", rental("node-a"))
    assert [each.name for each in driver.list()] == ["node-a"]


def test_the_end_of_a_job_that_squeue_has_dropped_is_taken_from_the_database(provider: ACluster) -> None:
    instance = start(provider, "node-a")
    provider.end_by_hand("node-a")
    until(
        lambda: instance.id not in provider.cluster.run("squeue", "--noheader", "--states=all", "--format=%i").split()
    )
    ended = found(provider, "node-a")
    assert ended.ended == f"its job was canceled on {NODE}"
    words = ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={instance.id}", "--format=Start,End")
    began, end = map(parse_time_ms, provider.cluster.run("env", "TZ=UTC", *words).strip().split("|"))
    assert (ended.billed_from_ms, ended.billed_to_ms) == (began, end) and began == instance.billed_from_ms


def test_a_job_that_was_stopped_in_the_queue_and_dropped_has_cost_nothing(provider: ACluster) -> None:
    for name in ("node-a", "node-b"):
        start(provider, name)
    patient = provider.restarted(queue_minutes_max=100.0)
    patient.start("gpu/rtx4090", rental("node-c"))
    (waiting,) = [each for each in patient.list() if each.name == "node-c"]
    patient.stop(waiting.id)
    until(lambda: waiting.id not in provider.cluster.run("squeue", "--noheader", "--states=all", "--format=%i").split())
    (ended,) = [each for each in patient.list() if each.name == "node-c"]
    assert (ended.ended, ended.billed_to_ms) == ("it was stopped", ended.billed_from_ms)
