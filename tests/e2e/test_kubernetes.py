"""Jobs are trained in Pods: a server creates them at a stand-in of a cluster, which runs their commands as a kubelet does."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.admin.box import Box
from gangline.posix import descendants
from tests.contract.pools.kubernetes import FakeKubernetes, kubeconfig
from tests.e2e.test_autoscale import has_ended, is_training, submit
from tests.e2e.test_pools import gangline
from tests.servers import served
from tests.waiting import until

ADDRESS = "127.0.0.2"
"""An address of this machine that is not the one of a server that only its own machine reaches: such a server rents nothing elsewhere."""
GPU = "RTX 4090"


class RunningKubernetes(FakeKubernetes):
    """A cluster of one machine, this one: a Pod's command runs as a process with the environment that the Pod gives it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(lambda: time.time_ns() // 1_000_000, look_s=0)
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, pod: Any) -> dict[str, Any]:
        made = super().add(pod)
        name, (container,) = made["metadata"]["name"], made["spec"]["containers"]
        home = self._folder / name
        home.mkdir(parents=True)
        inside = {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with (home / "log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*container["command"], *container["args"]],
                env=inside | {each["name"]: each["value"] for each in container["env"]},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.run(name)
        return made

    def delete(self, name: str) -> None:
        self._processes[name].terminate()
        super().delete(name)

    def kubelets(self) -> None:
        for name, process in self._processes.items():
            code = process.poll()
            if code is None or name not in self.pods or self.pods[name]["status"]["phase"] != "Running":
                continue
            if "deletionTimestamp" in self.pods[name]["metadata"]:
                del self.pods[name]
            else:
                self.finish(name, code if code >= 0 else 128 - code)

    def evict(self, name: str, message: str = "The node was low on resource: memory.") -> None:
        self.kill(name)
        super().evict(name, message)

    def kill(self, name: str) -> None:
        process = self._processes[name]
        for each in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for name in self._processes:
            self.kill(name)

    def printed_by_all(self) -> str:
        return "\n".join(file.read_text(errors="replace")[-4000:] for file in self._folder.glob("*/log"))


class ClusterBox(Box):
    """A server that knows the cluster."""

    def __init__(self, home: Path, url: str) -> None:
        super().__init__(home, lease_s=4.0, heartbeat_interval_s=0.5)
        self._options["--host"] = ADDRESS
        file = home / "kubeconfig"
        file.write_text(kubeconfig(url))
        section = ["[providers.lab]", 'driver = "kubernetes"', f'kubeconfig = "{file}"', ""]
        self._settings = "\n".join([self._settings, *section])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKubernetes]:
    cluster = RunningKubernetes(tmp_path_factory.mktemp("pods"))
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def box(cluster: RunningKubernetes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBox]:
    with served(cluster.app) as url, ClusterBox(tmp_path_factory.mktemp("box"), url) as made:
        settings = {"gpu": GPU, "gpu_memory_gb": "24", "price_usd_per_hour": "0.36"}
        typed = [word for name, value in settings.items() for word in ("--setting", f"{name}={value}")]
        code, pool, said = gangline(
            made, "pools", "add", "pods", "--driver", "kubernetes", "--provider", "lab", "--nodes", "0..1", *typed
        )
        assert code == 0 and pool["state"] == "active", said
        yield made


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_job_is_trained_in_a_pod_that_comes_with_it_and_goes_after_it(
    box: ClusterBox, cluster: RunningKubernetes
) -> None:
    assert cluster.pods == {}
    job = submit(box)
    until(has_ended(box, job))
    ended = box.client.jobs.get(job)
    assert ended.summary.state == "succeeded", (ended.summary.because, cluster.printed_by_all())
    (attempt,) = ended.attempts
    pod = cluster.created[-1]
    assert attempt.node == pod["metadata"]["labels"]["gangline/node"]
    until(lambda: list(box.client.nodes.list()) == [] and cluster.pods == {})
    assert list(box.client.pools.instances("pods")) == []
    assert box.client.jobs.get(job).summary.cost_usd > 0
    assert "gl_" not in json.dumps(pod["spec"]["containers"][0]["command"])


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_job_whose_pod_is_evicted_is_finished_by_the_next_one(box: ClusterBox, cluster: RunningKubernetes) -> None:
    job = submit(box, steps=90)
    until(is_training(box, job, committed=10))
    (name,) = [name for name, pod in cluster.pods.items() if pod["status"]["phase"] == "Running"]
    cluster.evict(name)
    until(has_ended(box, job))
    ended = box.client.jobs.get(job)
    assert ended.summary.state == "succeeded", (ended.summary.because, cluster.printed_by_all())
    first, second = ended.attempts
    assert first.node == name != second.node
    assert second.from_step >= 10 and second.state == "succeeded"
    until(lambda: list(box.client.nodes.list()) == [] and [*cluster.pods] == [name])
    (left,) = box.client.pools.instances("pods")
    assert left.billed_to_ms and left.ended.startswith("Kubernetes evicted it: The node was low on resource: memory")
