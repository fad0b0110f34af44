"""The settings of a cluster, of a pool on it and the owner's Pod template refuse what would break the driver's promises."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

import pytest

from gangline.adapters.pools.kubernetes.manifest import START, pod_of
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster, KubernetesSettings
from gangline.adapters.pools.kubernetes.template import why_no_template
from gangline.core.errors import BadInput
from gangline.core.parsing import InvalidSpec, parse_as
from gangline.ports.pool import Rental

RENTAL = Rental(name="node-a", server="http://server", token="a token")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"gpus": -1}, "gpus: must be 0 or more"),
        ({"gpus": 1.5}, "gpus: must be a whole number"),
        ({"gpu_resource": "gpu"}, "gpu_resource: must be a resource of a device plugin"),
        ({"gpu_resource": "nvidia.com/"}, "gpu_resource: must be a resource of a device plugin"),
        ({"selector": ("a",)}, "must be a label and its value"),
        ({"selector": ("a=b c",)}, "must be a label and its value"),
        ({"selector": ("a=b", "a=c")}, "selector has each label once"),
        ({"cpu": 0}, "cpu: must be 0.1 or more"),
        ({"memory_gb": 0.0}, "memory_gb: must be 0.1 or more"),
        ({"grace_s": 0}, "grace_s: must be 1 or more"),
        ({"price_usd_per_hour": -1.0}, "price_usd_per_hour: must be 0 or more"),
        ({"trust": 10}, "trust: must be 9 or less"),
        ({"template": "x"}, "template: is not a known field"),
        ({"namespace": "x"}, "namespace: is not a known field"),
    ],
)
def test_a_wrong_setting_of_a_pool_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        parse_as(KubernetesSettings, settings)
    assert said in error.value.message


@pytest.mark.parametrize("namespace", ["", "A", "a.b", "-a", "a/b", "a" * 64])
def test_a_namespace_is_a_name(namespace: str) -> None:
    with pytest.raises(InvalidSpec, match="namespace: must be a name of lower-case letters"):
        parse_as(KubernetesCluster, {"namespace": namespace})


@pytest.mark.parametrize("label", ["a=", "a=b", "cloud.google.com/gke-accelerator=nvidia-l4", "x.y/a_b.c=D-1"])
def test_a_label_of_machines_is_taken(label: str) -> None:
    name, _, value = label.partition("=")
    assert parse_as(KubernetesSettings, {"selector": (label,)}).labels == {name: value}


def a_pod(**parts: Any) -> dict[str, Any]:
    """Return a Pod with these parts of its spec, and of what lies below `worker` and `metadata`."""
    metadata = parts.pop("metadata", {})
    worker = {"containers": [{"name": "worker"} | parts.pop("worker")]} if "worker" in parts else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": parts | worker}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "is no Pod: it must have"),
        ([], "is no Pod: it must have"),
        ({"kind": "Pod"}, "is no Pod: it must have"),
        ({"apiVersion": "v1", "kind": "List"}, "is no Pod: it must have"),
        ({"apiVersion": "v1", "kind": "Pod", "spec": None}, "is no Pod: spec is no mapping"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": "x"}, "is no Pod: metadata is no mapping"),
        (a_pod(metadata={"labels": "x"}), "is no Pod: metadata.labels is no mapping"),
        (a_pod(containers={}), "is no Pod: spec.containers is no list"),
        (a_pod(containers=["worker"]), "is no Pod: spec.containers has an entry that is no mapping"),
        (a_pod(tolerations=["x"]), "is no Pod: spec.tolerations has an entry that is no mapping"),
        (a_pod(worker={"env": {"A": "b"}}), "is no Pod: spec.containers.env is no list"),
        (a_pod(worker={"resources": {"limits": []}}), "is no Pod: spec.containers.resources.limits is no mapping"),
        (a_pod(nodeSelector=[]), "is no Pod: spec.nodeSelector is no mapping"),
        (a_pod(metadata={"name": "x"}), "must not have metadata.name, which Gangline sets itself"),
        (a_pod(metadata={"generateName": "x"}), "must not have metadata.generateName"),
        (a_pod(metadata={"namespace": "x"}), "must not have metadata.namespace"),
        (a_pod(metadata={"labels": {"gangline/pool": "x"}}), "must not have the label gangline/pool"),
        (a_pod(restartPolicy="Always"), "must not change spec.restartPolicy: for a node it is Never"),
        (a_pod(automountServiceAccountToken=True), "must not change spec.automountServiceAccountToken: for a node it is false"),
        (a_pod(shareProcessNamespace=False), "must not change spec.shareProcessNamespace: for a node it is true"),
        (a_pod(terminationGracePeriodSeconds=5), "must not have spec.terminationGracePeriodSeconds"),
        (a_pod(nodeName="x"), "must not have spec.nodeName"),
        (a_pod(tolerations=[{"key": "node.kubernetes.io/unreachable"}]), "must not tolerate node.kubernetes.io/unreachable"),
        (a_pod(volumes=[{"name": "gangline-shared-memory"}]), "must not have a volume gangline-shared-memory"),
        (a_pod(containers=[{"name": "worker"}, {"name": "side"}]), "must not have a container side: a node ends with"),
        (a_pod(containers=[{"name": "worker"}, {"name": "worker"}]), "must not have two containers worker"),
        (a_pod(containers=[{"image": "x"}]), "must not have a container None"),
        (a_pod(worker={"command": ["x"]}), "must not have command in the container worker"),
        (a_pod(worker={"args": []}), "must not have args in the container worker"),
        (a_pod(worker={"env": [{"name": "GANGLINE_TOKEN"}]}), "must not set GANGLINE_TOKEN"),
        (a_pod(worker={"volumeMounts": [{"mountPath": "/dev/shm/"}]}), "must not mount anything at /dev/shm"),
    ],
)  # fmt: skip
def test_what_a_template_may_not_have_is_one_sentence(given: Any, said: str) -> None:
    because = why_no_template(given)
    assert because.startswith(said) and "\n" not in because


@pytest.mark.parametrize(
    "given",
    [
        {"apiVersion": "v1", "kind": "Pod"},
        a_pod(restartPolicy="Never", automountServiceAccountToken=False, shareProcessNamespace=True),
        a_pod(initContainers=[{"name": "cache", "restartPolicy": "Always", "command": ["x"]}]),
        a_pod(worker={"image": "x", "securityContext": {"runAsUser": 1000}, "envFrom": []}),
    ],
)
def test_what_else_a_pod_may_have_is_taken(given: dict[str, Any]) -> None:
    assert why_no_template(given) == ""
    assert pod_of(RENTAL, KubernetesSettings(), "pool-1", given)["spec"]["restartPolicy"] == "Never"


def test_a_template_is_not_changed_by_the_pods_that_are_made_of_it() -> None:
    template = a_pod(worker={"env": []}, tolerations=[], volumes=[])
    before = str(template)
    first, second = (pod_of(RENTAL, KubernetesSettings(), "pool-1", template) for _ in range(2))
    assert str(template) == before and first == second


@pytest.mark.parametrize("part", ["limits", "requests"])
def test_gpus_are_asked_for_by_the_pool_and_not_by_the_template(part: str) -> None:
    template = a_pod(worker={"resources": {part: {"nvidia.com/gpu": 1}}})
    with pytest.raises(BadInput, match=r"must not ask for nvidia\.com/gpu"):
        pod_of(RENTAL, KubernetesSettings(), "pool-1", template)


def test_the_image_is_the_pools_else_the_templates_else_one_with_pytorch() -> None:
    def image(of_pool: str, **worker: str) -> str:
        pod = pod_of(RENTAL, KubernetesSettings(image=of_pool), "pool-1", a_pod(worker=worker))
        return pod["spec"]["containers"][0]["image"]

    assert image("mine", image="theirs") == "mine"
    assert image("", image="theirs") == "theirs"
    assert image("").startswith("pytorch/pytorch:")


def test_the_containers_program_is_a_script_of_the_shell() -> None:
    checked = subprocess.run(["/bin/sh", "-n"], input=START, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "a token" not in START


def test_the_containers_program_ends_at_once_when_its_pod_is_stopped_while_the_worker_is_fetched() -> None:
    """With `shareProcessNamespace`, it is not the first process of its namespace, as it is not here."""
    nowhere = {"PATH": "/usr/bin:/bin", "GANGLINE_SERVER": "http://127.0.0.1:1"}
    program = ["/bin/sh", "-c", START, "sh"]
    with subprocess.Popen(program, env=nowhere, stderr=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stderr
        while b"trying again in 10 s" not in shell.stderr.readline():
            assert shell.poll() is None
        began_s = time.monotonic()
        shell.terminate()
        assert shell.wait() == -signal.SIGTERM and time.monotonic() - began_s < 5
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # its sleep
