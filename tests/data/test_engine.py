"""Ray as an engine: what each task is given, and what is said where a cluster or one of its processes is not there."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from gangline.core.errors import Unreachable
from gangline.data.making.engine import Ray

NAME = "CUDA_VISIBLE_DEVICES"


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of one that has two GPUs, as far as Ray counts."""
    from ray.cluster_utils import Cluster

    started: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2})
    yield started.address
    started.shutdown()


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_each_task_of_ray_has_a_gpu_of_its_own_where_the_cluster_has_any(cluster: str) -> None:
    seen = list(Ray(cluster, on_gpus=True).run(os.getenv, [NAME] * 4))
    assert len(seen) == 4 and set(seen) <= {"0", "1"}


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_without_a_gpu_in_the_cluster_tasks_of_ray_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, "")
    assert list(Ray(processes=1, on_gpus=True).run(len, ["one", "three"])) == [3, 5]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_process_of_ray_that_dies_each_time_is_told_in_a_sentence() -> None:
    with pytest.raises(Unreachable, match="Ray failed") as told:
        list(Ray(processes=1).run(os._exit, [1]))
    assert "finished work is kept" in told.value.hint


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_what_a_task_of_ray_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        list(Ray(processes=1).run((1).__truediv__, [0]))
