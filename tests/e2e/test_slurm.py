"""Jobs are trained on nodes of a real Slurm cluster: a server submits batch jobs, their workers join it, and they end with the work."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.admin.box import Box
from gangline.cli.jobs.train import upload_inputs
from tests.conftest import BASE, SUBJECT
from tests.slurm import PARTITION, Slurm, slurm
from tests.waiting import until

ADDRESS = "127.0.0.2"
"""An address of this machine that is not the one of a server that only its own machine reaches: such a server rents nothing elsewhere."""
STEPS = 60
SETTINGS: dict[str, Any] = {
    "prompt": "sks cat face, fluent emoji",
    "steps": STEPS,
    "resolution": 64,
    "batch_size": 2,
    "learning_rate": 1e-3,
    "rank": 4,
    "checkpoint_every_steps": 10,
    "sample_steps": 2,
    "sample_seeds": (1,),
}


class ClusterBox(Box):
    """A server with a pool on a Slurm cluster."""

    def __init__(self, home: Path, cluster: Slurm) -> None:
        super().__init__(home, lease_s=4.0, heartbeat_interval_s=0.5)
        self._options["--host"] = ADDRESS
        worker = f"{Path(sys.executable).parent}/gangline worker"
        lab = {"driver": "slurm", "conf": cluster.conf, "folder": home / "output", "scratch": home / "scratch"}
        lines = [f'{name} = "{value}"' for name, value in (lab | {"worker": worker}).items()]
        self._settings = "\n".join([self._settings, "[providers.lab]", *lines, ""])

    def add_pool(self) -> None:
        settings = {"partition": PARTITION, "gpu_memory_gb": 24.0, "price_usd_per_hour": 0.36}
        self.client.pools.add("lab", "slurm", {"provider": "lab", "settings": settings, "nodes_max": 1})

    def submit(self) -> str:
        return self.client.jobs.submit(upload_inputs(self.client, SUBJECT, str(BASE), [], SETTINGS)).summary.id

    def output(self) -> str:
        """Return what the workers and the server printed."""
        files = [*(self.home / "output").glob("slurm-*.log"), self.home / "server.log"]
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in files)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with slurm() as started:
        yield started


@pytest.fixture(scope="module")
def box(cluster: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBox]:
    with ClusterBox(tmp_path_factory.mktemp("box"), cluster) as made:
        made.add_pool()
        yield made


def in_slurm(cluster: Slurm) -> list[str]:
    return cluster.run("squeue", "--noheader", "--format=%j").split()


def has_ended(box: ClusterBox, job: str) -> Callable[[], bool]:
    return lambda: box.client.jobs.get(job).summary.ended_ms is not None


def is_safe_at(box: ClusterBox, job: str, step: int) -> Callable[[], bool]:
    def look() -> bool:
        now = box.client.jobs.get(job).summary
        assert now.state in ("queued", "running"), (now.because, box.output())
        return now.phase == "training" and now.committed_step >= step

    return look


@pytest.mark.timeout(120)
def test_a_job_is_trained_on_a_node_that_comes_with_it_and_goes_after_it(box: ClusterBox, cluster: Slurm) -> None:
    assert in_slurm(cluster) == []
    job = box.submit()
    until(has_ended(box, job))
    ended = box.client.jobs.get(job)
    assert ended.summary.state == "succeeded", (ended.summary.because, box.output())
    (attempt,) = ended.attempts
    assert (attempt.state, attempt.step) == ("succeeded", STEPS)
    until(lambda: list(box.client.nodes.list()) == [] and in_slurm(cluster) == [])
    assert box.client.jobs.get(job).summary.cost_usd > 0


@pytest.mark.tenths
@pytest.mark.timeout(180)
def test_a_job_whose_node_is_canceled_in_slurm_resumes_on_the_next_one(box: ClusterBox, cluster: Slurm) -> None:
    job = box.submit()
    until(is_safe_at(box, job, 10))
    (node,) = in_slurm(cluster)
    cluster.run("scancel", f"--name={node}")
    until(has_ended(box, job))
    ended = box.client.jobs.get(job)
    assert ended.summary.state == "succeeded", (ended.summary.because, box.output())
    first, second = ended.attempts
    assert first.state in ("released", "interrupted") and first.node == node != second.node
    assert second.from_step >= 10 and (second.state, second.step) == ("succeeded", STEPS)
    until(lambda: list(box.client.nodes.list()) == [] and in_slurm(cluster) == [])
