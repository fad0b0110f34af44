"""The `kubernetes` driver over a stand-in of a cluster's API server, which it asks over HTTP."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gangline.adapters.pools.kubernetes.driver import KubernetesPool
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster, KubernetesSettings
from gangline.core.errors import BadInput, NotFound, Unreachable
from gangline.ports.pool import Instance, NoCapacity, Rental, WithLogs
from tests.contract.pools.kubernetes import MACHINE, PODS, KubernetesProvider
from tests.contract.pools.suite import (
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
    rental,
    start,
    until,
)

TEMPLATE = """
apiVersion: v1
kind: Pod
metadata:
  labels: {team: vision}
  annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: "false"}
spec:
  priorityClassName: batch
  imagePullSecrets: [{name: registry}]
  nodeSelector: {cloud.google.com/gke-spot: "true"}
  tolerations:
  - {operator: Exists}
  volumes:
  - name: home
    emptyDir: {sizeLimit: 50Gi}
  containers:
  - name: worker
    image: registry.example.org/worker:1
    env: [{name: GANGLINE_HOME, value: /home}]
    volumeMounts: [{name: home, mountPath: /home}]
    resources:
      limits: {memory: 48Gi}
      requests: {cpu: 8, ephemeral-storage: 50Gi}
"""


@pytest.fixture
def provider(pods: KubernetesProvider) -> KubernetesProvider:
    return pods


class TestKubernetes(PoolSuite, LostAnswerSuite, ListSuite, RefusalSuite, StubbornSuite, HandSuite):
    """Pods of one namespace have unique names."""


# What a node is


def test_the_pod_of_a_node_is_one_that_runs_once_has_its_gpus_and_no_account(provider: KubernetesProvider) -> None:
    ask(provider, "node-a")
    (pod,) = provider.cluster.created
    spec, (worker,) = pod["spec"], pod["spec"]["containers"]
    assert pod["metadata"] == {"name": "node-a", "labels": {"gangline/pool": "pool-1", "gangline/node": "node-a"}}
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert spec["terminationGracePeriodSeconds"] == 180
    lost = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert spec["tolerations"] == [{"key": key} | lost for key in keys]
    assert spec["shareProcessNamespace"] is True, "a shell that is process 1 would not heed a SIGTERM"
    (volume,), (mount,) = spec["volumes"], worker["volumeMounts"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}
    assert mount == {"name": volume["name"], "mountPath": "/dev/shm"}
    assert worker["resources"] == {
        "limits": {"nvidia.com/gpu": "1"},
        "requests": {"cpu": "4000m", "memory": "16384Mi", "nvidia.com/gpu": "1"},
    }
    assert worker["args"] == ["--slots", "1"]
    assert {each["name"]: each["value"] for each in worker["env"]} == rental("node-a").environment()


def test_the_token_is_in_the_environment_alone_and_in_no_message(
    provider: KubernetesProvider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    provider.driver.start("pod", replace(rental("node-a"), token="the-join-token"))
    (worker,) = provider.cluster.created[0]["spec"]["containers"]
    assert "the-join-token" not in str(worker | {"env": []}) + str(worker["command"]) + caplog.text
    assert not any("the-join-token" in each for each in provider.cluster.requests)


def test_a_template_is_extended_and_what_it_says_stays(provider: KubernetesProvider) -> None:
    path = provider.folder / "pod.yaml"
    path.write_text(TEMPLATE)
    settings = KubernetesSettings(gpus=2, selector=("cloud.google.com/gke-accelerator=nvidia-l4",))
    provider.restarted(settings, path).start("pod", rental("node-a"))
    (pod,) = provider.cluster.created
    spec, (worker,) = pod["spec"], pod["spec"]["containers"]
    assert pod["metadata"]["labels"] == {"team": "vision", "gangline/pool": "pool-1", "gangline/node": "node-a"}
    assert pod["metadata"]["annotations"]
    assert (spec["priorityClassName"], spec["imagePullSecrets"]) == ("batch", [{"name": "registry"}])
    assert spec["nodeSelector"] == {
        "cloud.google.com/gke-spot": "true",
        "cloud.google.com/gke-accelerator": "nvidia-l4",
    }
    assert [each.get("tolerationSeconds") for each in spec["tolerations"]] == [30, 30, None], (
        "the first that fits counts"
    )
    assert spec["volumes"][0]["name"] == "home" and len(spec["volumes"]) == 2
    assert (worker["image"], worker["env"][0]["name"]) == ("registry.example.org/worker:1", "GANGLINE_HOME")
    assert worker["resources"] == {
        "limits": {"memory": "48Gi", "nvidia.com/gpu": "2"},
        "requests": {"cpu": 8, "ephemeral-storage": "50Gi", "nvidia.com/gpu": "2"},
    }


def test_a_node_without_gpus_asks_for_none(provider: KubernetesProvider) -> None:
    driver = provider.restarted(KubernetesSettings(gpus=0))
    assert driver.offers()[0].slots == 1
    driver.start("pod", rental("node-a"))
    (worker,) = provider.cluster.created[0]["spec"]["containers"]
    assert "nvidia.com/gpu" not in str(worker) and worker["args"] == []


def test_the_offer_is_what_the_settings_say(provider: KubernetesProvider) -> None:
    settings = KubernetesSettings(gpus=4, gpu="NVIDIA L4", gpu_memory_gb=24.0, trust=3, price_usd_per_hour=0.25)
    (offer,) = provider.restarted(settings).offers()
    assert (offer.id, offer.gpu, offer.gpu_memory_gb, offer.slots, offer.trust) == ("nvidia-l4", "NVIDIA L4", 24, 4, 3)
    assert (offer.price_known, offer.price_micro_usd_per_hour) == (True, 250_000)
    (offer,) = provider.driver.offers()
    assert (offer.id, offer.gpu, offer.price_known) == ("pod", "", False)


@pytest.mark.parametrize("name", ["", "Node", "a b", "a/b", "../x", "a?b", "é", "-a", "a" * 64])
def test_a_name_that_no_pod_can_have_is_refused_and_never_asked_for(provider: KubernetesProvider, name: str) -> None:
    with pytest.raises(BadInput, match="cannot be the name of a Pod"):
        provider.driver.start("pod", rental(name))
    provider.driver.stop(name)
    assert provider.cluster.requests == []


def test_two_pools_of_one_namespace_leave_each_others_pods_alone(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    other = provider.restarted(mark="pool-2")
    assert other.list() == []
    other.stop("node-a")
    assert provider.has("node-a")


# How a start goes


@pytest.mark.parametrize("fault", [None, Fault.LOST_AFTER])
def test_a_second_request_is_answered_that_the_pod_exists_where_nothing_remembers_the_first(
    provider: KubernetesProvider, fault: Fault | None
) -> None:
    offer = provider.driver.offers()[0].id
    if fault is None:
        provider.driver.start(offer, rental("node-a"))
        again = provider.restarted()
    else:
        with provider.suffers(fault), pytest.raises(Unreachable):
            provider.driver.start(offer, rental("node-a"))
        again = provider.driver
    again.start(offer, rental("node-a"))
    asked = [each for each in provider.cluster.requests if each == f"POST {PODS}"]
    assert (len(asked), len(provider.cluster.created), set(provider.cluster.pods)) == (2, 1, {"node-a"})
    assert [each.name for each in again.list()] == ["node-a"]
    again.stop("node-a")
    assert provider.cluster.pods == {}


@pytest.mark.parametrize("whose", ["nobody's", "another pool's"])
def test_a_pod_of_somebody_else_that_has_the_name_of_a_node_is_not_taken_for_it(
    provider: KubernetesProvider, whose: str
) -> None:
    if whose == "nobody's":
        provider.rent_by_hand("node-a")
    else:
        provider.restarted(mark="pool-2").start("pod", rental("node-a"))
    with pytest.raises(BadInput, match=r"^the namespace has a Pod node-a that is not of this pool$"):
        ask(provider, "node-a")
    assert provider.driver.list() == []
    provider.driver.stop("node-a")
    assert provider.has("node-a")
    ask(provider, "node-b")
    assert [each.name for each in provider.driver.list()] == ["node-b"]


def test_what_a_pod_waits_for_is_told(provider: KubernetesProvider) -> None:
    ask(provider, "node-a")
    assert alive(provider, "node-a").progress == "waits for a machine"
    assert alive(provider, "node-a").billed_from_ms is None
    provider.cluster.cannot_schedule("node-a", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    told = "waits for a machine: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
    assert alive(provider, "node-a").progress == told
    provider.cluster.bind("node-a")
    bound = alive(provider, "node-a")
    assert bound.progress == f"its image is pulled on {MACHINE}" and bound.billed_from_ms is not None
    refused = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "nothing:1"'}
    provider.cluster.container("node-a", waiting=refused)
    assert alive(provider, "node-a").progress == 'its image cannot be pulled: Back-off pulling image "nothing:1"'
    config = {"reason": "CreateContainerConfigError", "message": 'secret "key" not found'}
    provider.cluster.container("node-a", waiting=config)
    assert alive(provider, "node-a").progress == 'its container cannot begin: secret "key" not found'
    provider.run("node-a")
    running = alive(provider, "node-a")
    assert (running.progress, running.billed_from_ms) == ("", bound.billed_from_ms)


def test_a_pod_that_waits_too_long_for_a_machine_is_given_up_and_no_other_is_created_for_ten_minutes(
    provider: KubernetesProvider,
) -> None:
    ask(provider, "node-a")
    provider.cluster.cannot_schedule("node-a", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    assert alive(provider, "node-a").progress and provider.has("node-a")
    provider.cluster.advance(11 * 60)
    refused = "a Pod of this pool found no machine in 10 minutes"
    with pytest.raises(NoCapacity, match=refused):
        ask(provider, "node-b")
    provider.driver.list()
    assert provider.cluster.pods == {}
    ended = found(provider, "node-a")
    assert ended.ended == (
        "after 11 minutes it still waits for a machine: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
    )
    assert ended.billed_from_ms == ended.billed_to_ms is not None
    with pytest.raises(NoCapacity, match=refused):
        ask(provider, "node-b")
    provider.cluster.advance(601)
    provider.driver.list()
    ask(provider, "node-b")
    assert set(provider.cluster.pods) == {"node-b"}


def test_a_pod_that_has_a_machine_at_last_is_not_given_up(provider: KubernetesProvider) -> None:
    for name in ("node-a", "node-b"):
        ask(provider, name)
    provider.cluster.bind("node-a")
    provider.driver.list()
    provider.cluster.advance(11 * 60)
    provider.cluster.bind("node-b")
    provider.driver.list()
    assert provider.has("node-a") and provider.has("node-b")
    provider.cluster.places = 3
    ask(provider, "node-c")


def test_a_pod_that_waits_too_long_and_may_not_be_deleted_is_listed_as_it_is(provider: KubernetesProvider) -> None:
    ask(provider, "node-a")
    provider.cluster.rights.discard("delete")
    provider.cluster.advance(11 * 60)
    for _ in range(2):
        assert alive(provider, "node-a").progress == "waits for a machine"


def test_a_pod_that_never_had_a_machine_is_gone_at_once_and_costs_nothing(provider: KubernetesProvider) -> None:
    ask(provider, "node-a")
    instance = alive(provider, "node-a")
    provider.driver.stop(instance.id)
    assert provider.cluster.pods == {}
    ended = found(provider, "node-a")
    assert (ended.ended, ended.progress) == ("it was stopped", "")
    assert ended.billed_from_ms == ended.billed_to_ms is not None


# How a node ends


def test_a_pod_that_is_being_deleted_runs_and_is_billed_until_its_machine_says_so(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.driver.stop("node-a")
    ending = found(provider, "node-a")
    assert (ending.ended, ending.billed_to_ms, ending.progress) == ("", None, "Kubernetes is ending it")
    ended = found(provider, "node-a")
    assert (ended.ended, ended.billed_to_ms) == ("it was stopped", provider.cluster.now_ms)


def test_a_pod_that_is_being_deleted_is_not_deleted_again(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    with provider.suffers(Fault.DEAF):  # its machine takes its time
        for _ in range(3):
            provider.driver.stop("node-a")
            assert alive(provider, "node-a")
    assert [each for each in provider.cluster.requests if each.startswith("DELETE")] == [f"DELETE {PODS}/node-a"]


def test_a_pod_whose_machine_is_lost_runs_until_the_machine_is_known_to_be_gone(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.cluster.lose("node-a")
    provider.driver.list()
    provider.cluster.advance(600)
    lost = found(provider, "node-a")
    assert (lost.ended, lost.billed_to_ms) == ("", None)
    assert lost.progress == f"its machine {MACHINE} does not say that it has ended, so Kubernetes waits"
    provider.cluster.collect("node-a")
    ended = found(provider, "node-a")
    assert ended.ended == f"its machine was lost, or may not run it any more on {MACHINE}"
    assert ended.billed_to_ms == provider.cluster.now_ms


def test_a_worker_that_ends_is_billed_until_then_however_late_it_is_seen(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.cluster.advance(60)
    provider.cluster.finish("node-a", 3)
    at_ms = provider.cluster.now_ms
    provider.cluster.advance(300)
    ended = found(provider, "node-a")
    assert (ended.ended, ended.billed_to_ms) == (f"it ended with exit code 3 on {MACHINE}", at_ms)
    assert ended == provider.restarted().list()[0] == found(provider, "node-a")


def test_an_evicted_pod_says_why(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.cluster.evict("node-a")
    told = f"Kubernetes evicted it: The node was low on resource: memory on {MACHINE}"
    assert found(provider, "node-a").ended == told
    provider.driver.stop("node-a")
    assert found(provider, "node-a").ended == told
    assert found(provider, "node-a").billed_to_ms is not None


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("PreemptionByScheduler", "a Pod of higher priority preempted it"),
        ("EvictionByEvictionAPI", "it was evicted, as for a machine that is drained"),
    ],
)
def test_a_pod_that_is_taken_away_has_its_reason_when_it_is_gone(
    provider: KubernetesProvider, reason: str, told: str
) -> None:
    start(provider, "node-a")
    provider.cluster.condition("node-a", "DisruptionTarget", "True", reason, "as it was asked")
    provider.cluster.delete("node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == f"{told} on {MACHINE}"


def test_a_pod_that_was_deleted_by_hand_says_so(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.end_by_hand("node-a")
    until(has_ended(provider, "node-a"))
    assert found(provider, "node-a").ended == "its Pod was deleted"


def test_an_ended_pod_is_left_for_an_hour_and_then_removed_and_forgotten(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.cluster.finish("node-a", 0)
    assert found(provider, "node-a").ended
    provider.cluster.advance(3_000)
    assert found(provider, "node-a").ended and "node-a" in provider.cluster.pods
    provider.cluster.advance(700)
    assert found(provider, "node-a").ended
    assert provider.cluster.pods == {}
    assert provider.driver.list() == []


def test_an_ended_pod_that_may_not_be_deleted_is_still_listed(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.cluster.finish("node-a", 0)
    provider.driver.list()
    provider.cluster.advance(4_000)
    provider.cluster.rights.discard("delete")
    assert found(provider, "node-a").ended and "node-a" in provider.cluster.pods


def test_a_pod_that_is_gone_is_remembered_for_ten_minutes(provider: KubernetesProvider) -> None:
    start(provider, "node-a")
    provider.end_by_hand("node-a")
    until(has_ended(provider, "node-a"))
    ask(provider, "node-a")  # repeated by a server that had no answer
    assert provider.cluster.pods == {}
    provider.cluster.advance(601)
    assert provider.driver.list() == []


# Lists


def test_a_list_comes_in_pages_and_is_begun_anew_when_its_rest_has_expired(provider: KubernetesProvider) -> None:
    provider.cluster.places = 5
    names = [f"node-{number}" for number in range(5)]
    for name in names:
        start(provider, name)
    provider.cluster.requests.clear()
    provider.cluster.page_max, provider.cluster.expires = 2, 1
    assert [each.name for each in provider.driver.list()] == names
    rests = [each for each in provider.cluster.requests if "continue=" in each]
    assert len(provider.cluster.requests) == 5 and len(rests) == 3


def test_a_list_whose_rest_always_expires_is_no_list(provider: KubernetesProvider) -> None:
    for name in ("node-a", "node-b"):
        start(provider, name)
    provider.cluster.expires = 100
    with pytest.raises(Unreachable, match="took so long that Kubernetes forgot its rest"):
        provider.driver.list()
    provider.cluster.expires = 0
    assert [each.ended for each in provider.driver.list()] == ["", ""]


# What a worker printed


def test_the_end_of_the_log_is_what_the_worker_printed(provider: KubernetesProvider) -> None:
    assert isinstance(provider.driver, WithLogs)
    start(provider, "node-a")
    with pytest.raises(BadInput, match="is waiting to start"):
        provider.driver.logs("node-a")
    provider.cluster.printed["node-a"] = "\n".join(map(str, range(1000)))
    assert provider.driver.logs("node-a").splitlines() == [*map(str, range(800, 1000))]
    with pytest.raises(NotFound, match="the pool has no Pod node-b"):
        provider.driver.logs("node-b")
    assert not any(f"{PODS}/node-b/log" in each for each in provider.cluster.requests)


# Somebody's own cluster


@pytest.mark.skipif(not os.environ.get("KUBECONFIG"), reason="KUBECONFIG names no cluster")
@pytest.mark.timeout(600)
def test_a_real_cluster_runs_a_pod_lists_it_and_has_none_after_it(tmp_path: Path) -> None:
    settings = KubernetesSettings(image="busybox:1.37", gpus=0, cpu=0.1, memory_gb=0.1, shared_memory_gb=0.1, grace_s=5)
    cluster = KubernetesCluster(namespace=os.environ.get("GANGLINE_TEST_NAMESPACE", "default"))
    driver = KubernetesPool(settings=settings, cluster=cluster, mark=f"test-{os.getpid()}", surroundings=os.environ)
    name = f"gangline-test-{os.getpid()}"

    def listed() -> Instance:
        (only,) = driver.list()
        return only

    assert driver.list() == []
    (offer,) = driver.offers()
    try:
        for _ in range(2):
            driver.start(offer.id, Rental(name=name, server="http://127.0.0.1:1", token="none"))
        until(lambda: listed().billed_from_ms is not None and not listed().progress)
        until(lambda: "cannot be fetched" in driver.logs(name))
    finally:
        driver.stop(name)
    until(lambda: listed().billed_to_ms is not None)
    assert listed().ended == "it was stopped"
