"""What a cluster says of a Pod becomes words for people and the times of its bill."""

import json
from typing import Any

import pytest

from gangline.adapters.pools.kubernetes.answers import (
    ApiVersion,
    KubernetesPod,
    ended_as_asked,
    pod_ending,
    pod_progress,
)
from gangline.core.parsing import adapter

MADE, BOUND, ENDED = (f"2026-05-28T12:0{minute}:00Z" for minute in (0, 1, 2))
AT_MS = 1_779_969_600_000
"""When it was made, in milliseconds."""


def pod(
    phase: str = "Running", *, node: str = "m1", containers: list[dict[str, Any]] | None = None, **status: Any
) -> KubernetesPod:
    bound = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": BOUND}] if node else []
    said = {
        "metadata": {"name": "node-a", "uid": "u", "creationTimestamp": MADE} | status.pop("metadata", {}),
        "spec": {"nodeName": node} if node else {},
        "status": {
            "phase": phase,
            "conditions": [*bound, *status.pop("conditions", [])],
            "containerStatuses": [{"name": "worker", "state": each} for each in containers or []],
        }
        | status,
    }
    return adapter(KubernetesPod).validate_json(json.dumps(said))


def ended(code: int, **more: Any) -> list[dict[str, Any]]:
    return [{"terminated": {"exitCode": code, "finishedAt": ENDED} | more}]


def disrupted(reason: str, status: str = "True", message: str = "") -> list[dict[str, Any]]:
    return [{"type": "DisruptionTarget", "status": status, "reason": reason, "message": message}]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pod("Failed", containers=ended(1)), "it ended with exit code 1 on m1"),
        (pod("Succeeded", containers=ended(0)), "it ended with exit code 0 on m1"),
        (pod("Failed", containers=ended(137)), "it was killed by signal 9 on m1"),
        (pod("Failed", containers=ended(0, signal=15)), "it was killed by signal 15 on m1"),
        (pod("Failed", containers=ended(137, reason="OOMKilled")), "it used more memory than it was given on m1"),
        (
            pod("Failed", containers=ended(128, reason="StartError", message="no such\nfile")),
            "its container could not begin: no such file on m1",
        ),
        (
            pod("Failed", reason="Evicted", message="The node was low on memory. "),
            "Kubernetes evicted it: The node was low on memory on m1",
        ),
        (pod("Failed", reason="Terminated", containers=ended(143)), "its machine was shut down on m1"),
        (pod("Failed", reason="OutOfnvidia.com/gpu", message="no GPU"), "it ended before its container began: no GPU on m1"),
        (pod("Failed"), "it ended before its container began on m1"),
        (pod("Failed", node="", reason="Preempting"), "a Pod of higher priority preempted it"),
        (pod(conditions=disrupted("PreemptionByScheduler")), "a Pod of higher priority preempted it on m1"),
        (pod(conditions=disrupted("DeletionByPodGC")), "its machine is gone on m1"),
        (pod(conditions=disrupted("Another", message="because")), "Kubernetes ended it: because on m1"),
        (pod(conditions=disrupted("PreemptionByScheduler", "False")), ""),
        (pod(), ""),
        (pod("Pending", node=""), ""),
    ],
)  # fmt: skip
def test_why_a_pod_ended_is_said(found: KubernetesPod, said: str) -> None:
    assert pod_ending(found) == said


@pytest.mark.parametrize(
    ("found", "as_asked"),
    [
        (pod(), True),
        (pod("Failed", containers=ended(143)), True),
        (pod("Succeeded", containers=ended(0)), True),
        (pod("Failed", containers=ended(137)), True),
        (pod("Failed", containers=ended(137, reason="OOMKilled")), False),
        (pod("Failed", containers=ended(1)), False),
        (pod("Failed", reason="Evicted"), False),
        (pod(conditions=disrupted("PreemptionByScheduler")), False),
        (pod(conditions=disrupted("PreemptionByScheduler", "False")), True),
    ],
)
def test_a_pod_that_was_stopped_and_ended_for_another_cause_names_that(found: KubernetesPod, as_asked: bool) -> None:
    assert ended_as_asked(found) is as_asked


def test_a_pod_is_billed_from_when_it_has_a_machine_until_its_last_container_ended() -> None:
    assert pod("Pending", node="").bound_ms is None
    assert pod("Pending").bound_ms == AT_MS + 60_000 and pod("Pending").ended_ms is None
    assert pod("Failed", containers=ended(1)).ended_ms == AT_MS + 120_000
    first = {"terminated": {"exitCode": 0, "finishedAt": BOUND}}
    assert pod("Failed", containers=[first, *ended(1)]).ended_ms == AT_MS + 120_000


def test_an_evicted_pod_that_says_nothing_of_its_containers_ended_when_it_was_last_heard_of() -> None:
    later = [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": ENDED}]
    assert pod("Failed", reason="Evicted", conditions=later).ended_ms == AT_MS + 120_000
    assert pod("Failed", node="", reason="Preempting").ended_ms == AT_MS


def test_a_pod_with_a_machine_whose_condition_does_not_say_since_when_is_billed_from_its_beginning() -> None:
    silent = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": None}]
    said = pod("Running", node="")
    assert said.bound_ms is None
    found = adapter(KubernetesPod).validate_python(
        {
            "metadata": {"name": "a", "uid": "u", "creationTimestamp": MADE},
            "spec": {"nodeName": "m1"},
            "status": {"conditions": silent},
        }
    )
    assert found.bound_ms == AT_MS


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pod(containers=[{"running": {"startedAt": BOUND}}]), ""),
        (pod("Pending"), "its image is pulled on m1"),
        (pod("Pending", containers=[{"waiting": {"reason": "PodInitializing"}}]), "its image is pulled on m1"),
        (
            pod("Pending", containers=[{"waiting": {"reason": "ErrImagePull", "message": "no\nsuch image."}}]),
            "its image cannot be pulled: no such image",
        ),
        (pod("Pending", containers=[{"waiting": {"reason": "RunContainerError"}}]), "its container cannot begin: RunContainerError"),
        (
            pod(
                "Pending",
                containers=[{"waiting": {"reason": "PodInitializing"}}],
                initContainerStatuses=[{"name": "i", "state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            ),
            "its image cannot be pulled: ImagePullBackOff",
        ),
        (pod("Pending", node=""), "waits for a machine"),
        (
            pod("Pending", node="", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            "waits to be let into the cluster",
        ),
        (pod(metadata={"deletionTimestamp": ENDED}), "Kubernetes is ending it"),
        (pod("Failed", containers=ended(1)), ""),
    ],
)  # fmt: skip
def test_how_far_a_pod_is_is_said(found: KubernetesPod, said: str) -> None:
    assert pod_progress(found, AT_MS + 130_000) == said


def test_a_message_of_the_cluster_is_shown_in_one_line_of_bounded_length() -> None:
    said = pod_ending(pod("Failed", reason="Evicted", message="a\x1b[31m\n" + "b" * 1000))
    assert "\x1b" not in said and "\n" not in said and len(said) < 400


@pytest.mark.parametrize(
    ("major", "minor", "numbers"),
    [("1", "30", (1, 30)), ("1", "27+", (1, 27)), ("", "", (0, 0)), ("1", "9-gke", (1, 9))],
)
def test_the_version_of_a_cluster_is_two_numbers(major: str, minor: str, numbers: tuple[int, int]) -> None:
    assert ApiVersion(major=major, minor=minor).numbers == numbers
