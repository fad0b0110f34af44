"""What goes wrong between the server and a cluster is one sentence, and nothing is half done."""

import json
import socket
from pathlib import Path

import pytest
from fastapi import Response

from gangline.adapters.pools.kubernetes.driver import KubernetesPool
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster, KubernetesSettings
from gangline.core.errors import BadInput, Denied, GanglineError, TooMany, Unreachable, UserError
from gangline.ports.pool import NoCapacity
from tests.contract.pools.kubernetes import (
    NAMESPACE,
    PODS,
    TOKEN,
    FakeKubernetes,
    KubernetesProvider,
    kubeconfig,
    refusal,
)
from tests.contract.pools.suite import Fault, alive, ask, rental, start


def a_pool(cluster: KubernetesCluster, **surroundings: str) -> KubernetesPool:
    return KubernetesPool(settings=KubernetesSettings(), cluster=cluster, mark="pool-1", surroundings=surroundings)


def web_page(status: int) -> Response:
    return Response("<html><h1>Sorry</h1></html>", status, media_type="text/html")


def forbidden(said: str) -> Response:
    return refusal(403, "Forbidden", f'pods "node-b" is forbidden: {said}')


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (refusal(429, "TooManyRequests", "too many requests", Retry_After="7"), TooMany, "no more requests for the moment"),
        (refusal(500, "InternalError", 'failed calling webhook "x"'), Unreachable, "failed (HTTP 500): failed calling webhook"),
        (refusal(409, "Conflict", "the quota was changed"), Unreachable, "failed (HTTP 409): the quota was changed"),
        (refusal(404, "NotFound", 'namespaces "gangline" not found'), BadInput, '(HTTP 404): namespaces "gangline" not found'),
        (refusal(422, "Invalid", 'spec.priorityClassName: Invalid value: "x"'), BadInput, "(HTTP 422): spec.priorityClassName"),
        (forbidden("exceeded quota: gpus, limited: requests.nvidia.com/gpu=4"), NoCapacity, "a quota of the cluster is used up"),
        (forbidden('violates PodSecurity "restricted:latest": hostPath'), BadInput, "the cluster's rules refuse the Pod"),
        (forbidden("maximum cpu usage per Container is 2"), BadInput, "the cluster's rules refuse the Pod"),
        (forbidden('no PriorityClass with name "batch" was found'), BadInput, "no PriorityClass"),
        (web_page(403), Unreachable, "is no API server of Kubernetes"),
        (web_page(502), Unreachable, "failed (HTTP 502)"),
        (web_page(404), Unreachable, "is no API server of Kubernetes"),
        (refusal(401, "Unauthorized", "Unauthorized"), Denied, "does not accept this server's credentials"),
    ],
)  # fmt: skip
def test_a_refused_start_is_one_sentence_and_the_next_one_starts(
    pods: KubernetesProvider, answer: Response, kind: type[GanglineError], said: str
) -> None:
    start(pods, "node-a")
    pods.cluster.answers[f"POST {PODS}"] = answer
    with pytest.raises(kind) as error:
        ask(pods, "node-b")
    assert type(error.value) is kind and said in error.value.message and "\n" not in error.value.message
    pods.cluster.answers.clear()
    assert [each.name for each in pods.driver.list()] == ["node-a"]
    start(pods, "node-b")


def test_a_cluster_that_is_too_busy_says_when_to_ask_again_and_no_request_is_repeated(pods: KubernetesProvider) -> None:
    pods.driver.offers()
    pods.cluster.requests.clear()
    pods.cluster.answers[f"GET {PODS}"] = refusal(429, "TooManyRequests", "later", Retry_After="7")
    with pytest.raises(TooMany) as error:
        pods.driver.list()
    assert error.value.wait_whole_s == 7
    assert len(pods.cluster.requests) == 1


@pytest.mark.parametrize("right", ["create", "list", "delete", "get"])
def test_a_right_that_is_missing_is_named(pods: KubernetesProvider, right: str) -> None:
    start(pods, "node-a")
    pods.cluster.rights.discard(right)
    fresh = pods.restarted()
    calls = {
        "create": fresh.offers,
        "list": fresh.list,
        "delete": lambda: pods.driver.stop("node-a"),
        "get": lambda: fresh.stop("node-a"),
    }
    with pytest.raises(Denied, match=f"does not let this server {right} pods") as error:
        calls[right]()
    assert error.value.hint == "docs/pools/kubernetes.md has the role that the server needs"


def test_a_pod_that_the_cluster_would_not_take_is_told_when_the_pool_is_made(pods: KubernetesProvider) -> None:
    path = pods.folder / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nspec: {tolerations: [{key: a, operators: Exists}]}\n")
    driver = pods.restarted(template=path)
    with pytest.raises(BadInput, match="cannot be handled as a Pod"):
        driver.offers()
    assert pods.cluster.pods == {} and pods.cluster.created == []


def test_the_cluster_is_asked_once_whether_it_would_take_a_pod_and_makes_none(pods: KubernetesProvider) -> None:
    pods.driver.offers()
    assert [each for each in pods.cluster.requests if each.startswith("POST")] == [
        f"POST {PODS}?dryRun=All&fieldValidation=Strict"
    ]
    pods.cluster.requests.clear()
    pods.driver.offers()
    assert pods.cluster.requests == [] == [*pods.cluster.pods]


def test_a_quota_that_is_used_up_now_is_no_fault_of_the_pool(pods: KubernetesProvider) -> None:
    with pods.suffers(Fault.QUOTA):
        assert pods.driver.offers()


def test_a_webhook_that_cannot_be_asked_without_effect_keeps_no_pool_from_being_made(pods: KubernetesProvider) -> None:
    said = 'admission webhook "x" does not support dry run'
    pods.cluster.answers[f"POST {PODS}"] = refusal(400, "BadRequest", said)
    assert pods.driver.offers()


def test_an_old_cluster_says_so_when_the_pool_is_made(pods: KubernetesProvider) -> None:
    pods.cluster.version = {"major": "1", "minor": "24+"}
    with pytest.raises(BadInput, match=r"the cluster has Kubernetes 1\.24"):
        pods.driver.offers()
    assert not any(each.startswith("POST") for each in pods.cluster.requests)


@pytest.mark.parametrize(
    "said",
    [
        b"{}",
        b"[]",
        b"null",
        b'{"kind": "PodList", "items": []}',
        b'{"kind": "NodeList", "metadata": {}, "items": []}',
        b'{"kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "node-a"}, "spec": {}, "status": {}}]}',
        b'{"kind": "PodList", "metadata": {}, "items": null}',
        b"<html>",
        b"\xff\xfe",
    ],
)
def test_a_list_that_is_none_is_no_empty_list(pods: KubernetesProvider, said: bytes) -> None:
    start(pods, "node-a")
    pods.cluster.answers[f"GET {PODS}"] = Response(said, 200, media_type="application/json")
    with pytest.raises(Unreachable, match="what Kubernetes says of the list of Pods cannot be read"):
        pods.driver.list()
    pods.cluster.answers.clear()
    assert alive(pods, "node-a")


def test_a_cluster_that_accepts_and_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        pool = a_pool(KubernetesCluster(kubeconfig=path, timeout_s=0.2))
        with pytest.raises(Unreachable, match=r"at 127.0.0.1:\d+ does not answer: no answer in time"):
            pool.list()


def test_a_cluster_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
    with pytest.raises(Unreachable, match=f"at 127.0.0.1:{port} does not answer: no connection"):
        a_pool(KubernetesCluster(kubeconfig=path)).list()


def test_a_server_that_speaks_no_tls_is_unreachable_in_one_line(pods: KubernetesProvider, tmp_path: Path) -> None:
    path = tmp_path / "with-tls"
    path.write_text(pods.kubeconfig.read_text().replace("http://", "https://"))
    with pytest.raises(Unreachable) as error:
        a_pool(KubernetesCluster(kubeconfig=path)).list()
    assert "does not answer" in error.value.message and "\n" not in error.value.message


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (None, ""),
        ("", ""),
        ("a: [", ""),
        ("just a text", ""),
        ("{}", ""),
        (kubeconfig("http://127.0.0.1:1"), "another"),
        (json.dumps({"current-context": "x", "contexts": [{"name": "x"}]}), ""),
    ],
)
def test_a_kubeconfig_that_names_no_cluster_is_one_sentence(tmp_path: Path, text: str | None, context: str) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadInput, match="no cluster of Kubernetes is known to this server: ") as error:
        a_pool(KubernetesCluster(kubeconfig=path, context=context)).list()
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    "answer",
    [None, refusal(403, "Forbidden", 'pods is forbidden: User "system:anonymous" cannot list resource "pods"')],
)
def test_credentials_that_are_renewed_are_used_without_a_restart(
    pods: KubernetesProvider, tmp_path: Path, answer: Response | None
) -> None:
    path = tmp_path / "renewed"
    path.write_text(pods.kubeconfig.read_text().replace(TOKEN, "expired"))
    driver = a_pool(KubernetesCluster(kubeconfig=path))
    if answer:
        pods.cluster.answers[f"GET {PODS}"] = answer
    with pytest.raises(Denied):
        driver.list()
    pods.cluster.answers.clear()
    path.write_text(pods.kubeconfig.read_text())
    assert driver.list() == []


def refuse_once(pods: KubernetesProvider, driver: KubernetesPool) -> None:
    """Answer that the credentials are unknown, so that the kubeconfig is read again."""
    pods.cluster.answers[f"GET {PODS}"] = refusal(401, "Unauthorized", "Unauthorized")
    with pytest.raises(Denied):
        driver.list()
    pods.cluster.answers.clear()


def test_a_kubeconfig_that_leads_to_another_cluster_later_ends_no_node(
    pods: KubernetesProvider, tmp_path: Path
) -> None:
    path = tmp_path / "switched"
    path.write_text(pods.kubeconfig.read_text())
    driver = a_pool(KubernetesCluster(kubeconfig=path))
    driver.start(driver.offers()[0].id, rental("node-a"))
    pods.run("node-a")
    (there,) = driver.list()
    refuse_once(pods, driver)
    host = json.loads(path.read_text())["clusters"][0]["cluster"]["server"].removeprefix("http://")
    path.write_text(path.read_text().replace("127.0.0.1", "localhost"))  # where no Pod of this pool might be
    said = f"the kubeconfig led to {host}, and now leads to {host.replace('127.0.0.1', 'localhost')}"
    for _ in range(2):
        with pytest.raises(BadInput, match=f"^{said}$"):
            driver.list()
    path.write_text(pods.kubeconfig.read_text())
    assert driver.list() == [there]


def test_a_kubeconfig_that_never_led_to_a_cluster_may_be_corrected(pods: KubernetesProvider, tmp_path: Path) -> None:
    path = tmp_path / "corrected"
    path.write_text(pods.kubeconfig.read_text().replace("127.0.0.1", "localhost"))
    driver = a_pool(KubernetesCluster(kubeconfig=path))
    refuse_once(pods, driver)
    path.write_text(pods.kubeconfig.read_text())
    assert driver.list() == []


def test_the_cluster_is_found_by_the_settings_by_kubeconfig_or_at_home(
    pods: KubernetesProvider, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text(pods.kubeconfig.read_text())
    assert a_pool(KubernetesCluster(), HOME=str(home)).list() == []
    assert a_pool(KubernetesCluster(), HOME="/nowhere", KUBECONFIG=str(pods.kubeconfig)).list() == []
    assert a_pool(KubernetesCluster(context="fake"), KUBECONFIG=str(pods.kubeconfig)).list() == []
    in_a_pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert a_pool(KubernetesCluster(), KUBECONFIG=str(pods.kubeconfig), **in_a_pod).list() == []


def test_a_pod_without_an_account_of_its_own_is_no_cluster(tmp_path: Path) -> None:
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}
    with pytest.raises(BadInput, match="no cluster of Kubernetes is known to this server"):
        a_pool(KubernetesCluster(), **inside).list()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 documents; it must be one Pod"),
        ("a: [", "is no YAML"),
        ("apiVersion: v1\nkind: Pod\n---\napiVersion: v1\nkind: Pod\n", "has 2 documents"),
        ("apiVersion: apps/v1\nkind: Deployment\n", "is no Pod: it must have apiVersion: v1 and kind: Pod"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {since: 2026-01-01}}\n",
            "a text perhaps that needs quotes",
        ),
    ],
)
def test_a_template_that_is_no_pod_makes_no_pool(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as error:
        a_pool(KubernetesCluster(template=path))
    assert error.value.message.startswith(f"the Pod template {path} ") and said in error.value.message
    assert "\n" not in error.value.message


def test_a_template_that_is_not_there_is_said_of_the_server(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file or directory"):
        a_pool(KubernetesCluster(template=tmp_path / "nothing"))
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        a_pool(KubernetesCluster(template=tmp_path))
    long = tmp_path / "long"
    long.write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(BadInput, match="has more than 1,048,576 bytes"):
        a_pool(KubernetesCluster(template=long))


def test_a_pool_that_selects_other_machines_than_the_template_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nspec: {nodeSelector: {zone: a}}\n")
    settings = KubernetesSettings(selector=("zone=b",))
    with pytest.raises(BadInput, match="selects machines with zone=b, and the Pod template those with zone=a"):
        KubernetesPool(settings=settings, cluster=KubernetesCluster(template=path), mark="a", surroundings={})


@pytest.mark.parametrize("mark", ["", "a b", "-a", "a" * 64])
def test_a_mark_that_no_label_can_have_is_refused(mark: str) -> None:
    with pytest.raises(BadInput, match="cannot be the value of a label"):
        KubernetesPool(settings=KubernetesSettings(), cluster=KubernetesCluster(), mark=mark, surroundings={})


def test_every_request_is_about_pods_of_the_namespace(pods: KubernetesProvider, cluster: FakeKubernetes) -> None:
    start(pods, "node-a")
    pods.restarted().stop("node-a")
    cluster.printed["node-a"] = "x"
    pods.driver.logs("node-a")
    paths = {each.partition("?")[0] for each in cluster.requests}
    asked = {("GET", PODS), ("POST", PODS), ("GET", f"{PODS}/node-a"), ("DELETE", f"{PODS}/node-a")}
    asked |= {("GET", f"{PODS}/node-a/log"), ("GET", "/version")}
    assert paths == {f"{method} {path}" for method, path in asked}
    assert NAMESPACE in PODS and rental("node-a")
