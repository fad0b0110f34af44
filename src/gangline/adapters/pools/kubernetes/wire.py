"""Ask a cluster's API server, through the official client: it knows how to reach it. Bodies are JSON as it is sent, since the client's own
models would refuse what a newer cluster knows."""

from collections.abc import Collection, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit

import urllib3
from kubernetes import client, config

from gangline.adapters.pools.kubernetes.answers import ApiVersion, KubernetesPod, PodPage, one_line
from gangline.adapters.pools.kubernetes.refusals import NOT_THERE, PodRefusal, why_refused_by_cluster
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster
from gangline.core.display import printable
from gangline.core.errors import BadInput, Unreachable
from gangline.core.parsing import adapter, in_words

PAGE = 500
LISTS_MAX = 3
"""How often a list is begun from scratch whose rest has expired meanwhile."""
BYTES_MAX = 64_000_000
DETAIL_MAX = 300
CONNECT_S_MAX = 10.0
IN_A_POD = "KUBERNETES_SERVICE_HOST"
EXPIRED, UNKNOWN = 410, 401
ANONYMOUS = b"system:anonymous"
"""Who a server is whose program for credentials failed when it was asked."""

Answered = TypeVar("Answered")


class KubernetesApi:
    """Sends requests about Pods of one namespace. The cluster's file is read at the first of them, and again after one whose credentials
    were refused: they may be renewed by then. Another cluster in it is refused, which would list none of this one's Pods."""

    def __init__(self, cluster: KubernetesCluster, surroundings: Mapping[str, str]) -> None:
        self._cluster, self._surroundings = cluster, surroundings
        self._pods = f"/api/v1/namespaces/{cluster.namespace}/pods"
        self._lock = Lock()
        self._client: client.ApiClient | None = None
        self._first = ""
        """The address of the API server that was asked first."""

    def version(self) -> ApiVersion:
        return self._parsed(ApiVersion, self._send("GET", "/version"), "its version")

    def create(self, pod: Mapping[str, Any], *, only_check: bool = False) -> bool:
        """Create a Pod; with `only_check`, have the API server say whether it would. Return False if one of this name is there already."""
        query = {"dryRun": "All", "fieldValidation": "Strict"} if only_check else {}
        return bool(self._send("POST", self._pods, query, pod, allowed={"AlreadyExists"}))

    def delete(self, name: str) -> None:
        self._send("DELETE", f"{self._pods}/{name}", allowed={NOT_THERE})

    def labels_of(self, name: str) -> Mapping[str, str]:
        """Return the labels of a Pod; none if it is not there."""
        answer = self._send("GET", f"{self._pods}/{name}", allowed={NOT_THERE})
        return self._parsed(KubernetesPod, answer, f"the Pod {name}").metadata.labels if answer else {}

    def list(self, selector: str) -> list[KubernetesPod]:
        """Return all Pods with these labels. The list is whole: one whose rest the API server no longer has is begun again."""
        for _ in range(LISTS_MAX):
            found = self._list_once(selector)
            if found is not None:
                return found
        raise Unreachable("the list of Pods took so long that Kubernetes forgot its rest, several times")

    def log(self, name: str, container: str, lines: int) -> str:
        query = {"container": container, "tailLines": str(lines)}
        return self._send("GET", f"{self._pods}/{name}/log", query).decode(errors="replace")

    def _list_once(self, selector: str) -> "list[KubernetesPod] | None":
        found, after = list[KubernetesPod](), ""
        while True:
            query = {"labelSelector": selector, "limit": str(PAGE)} | ({"continue": after} if after else {})
            try:
                page = self._parsed(PodPage, self._send("GET", self._pods, query), "the list of Pods")
            except _Expired:
                return None
            found += page.items
            after = page.metadata.continue_
            if not after:
                return found

    def _parsed(self, kind: type[Answered], body: bytes, called: str) -> Answered:
        """Parse an answer. One that misses a field is `Unreachable`: a part of a list must not pass for the list."""
        from pydantic import ValidationError

        try:
            return adapter(kind).validate_json(body)
        except ValidationError as error:
            wrong = in_words(error.errors(), "the answer")[:DETAIL_MAX]
            raise Unreachable(f"what Kubernetes says of {called} cannot be read: {printable(wrong)}") from None

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        allowed: Collection[str] = (),
    ) -> bytes:
        """Send one request and return what is answered. A refusal for an `allowed` reason is an empty answer."""
        status, headers, answer = self._exchange(method, path, query or {}, body)
        if 200 <= status < 300:
            return answer
        refusal = PodRefusal.read(status, headers.get("Retry-After", ""), answer)
        if refusal.reason in allowed:
            return b""
        if status == EXPIRED:
            raise _Expired
        because = why_refused_by_cluster(refusal, self._host())
        if status == UNKNOWN or ANONYMOUS in answer:
            with self._lock:
                self._client = None
        raise because

    def _exchange(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        api = self._connected()
        timeout_s = self._cluster.timeout_s
        try:
            headers = {"Accept": "application/json"} | ({"Content-Type": "application/json"} if body else {})
            request = api.param_serialize(
                method,
                path,
                query_params=[*query.items()],
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = api.call_api(*request, _request_timeout=(min(timeout_s, CONNECT_S_MAX), timeout_s)).response
            try:
                content = answer.read(BYTES_MAX + 1)
            finally:
                answer.release_conn()
        except (
            urllib3.exceptions.HTTPError,
            client.ApiException,
            config.ConfigException,
            OSError,
            ValueError,
        ) as error:
            raise Unreachable(f"the Kubernetes API at {self._host()} does not answer: {_why(error)}") from None
        if len(content) > BYTES_MAX:
            raise Unreachable(f"an answer of Kubernetes has more than {BYTES_MAX // 1_000_000} MB")
        if 200 <= answer.status < 300:
            with self._lock:
                self._first = self._first or api.configuration.host
        return answer.status, answer.headers, content

    def _connected(self) -> client.ApiClient:
        with self._lock:
            if self._client is None:
                configured = self._configured()
                if configured.host != (self._first or configured.host):
                    raise BadInput(
                        f"the kubeconfig led to {_address(self._first)}, and now leads to {_address(configured.host)}",
                        hint="name the pool's own context of that file as context; if its cluster has a new address, restart the server",
                    )
                self._client = client.ApiClient(configured)
                self._client.user_agent = "gangline"
            return self._client

    def _configured(self) -> client.Configuration:
        """Return who this server is to which cluster. Raises `BadInput` if its file does not say so."""
        found = client.Configuration()
        given = self._cluster.kubeconfig or self._surroundings.get("KUBECONFIG")
        try:
            if not given and not self._cluster.context and IN_A_POD in self._surroundings:
                config.load_incluster_config(found)
            else:
                path = str(given or Path(self._surroundings.get("HOME", "/"), ".kube/config"))
                config.load_kube_config(
                    path, self._cluster.context or None, client_configuration=found, persist_config=False
                )
        except Exception as error:  # what its client raises for a wrong file is of many kinds
            hint = "name the file as kubeconfig and one of its contexts as context, in [providers.NAME] of the server's settings"
            raise BadInput(f"no cluster of Kubernetes is known to this server: {_why(error)}", hint=hint) from None
        found.retries = False  # pyright: ignore[reportAttributeAccessIssue] - urllib3 takes it, and would repeat requests without it
        return found

    def _host(self) -> str:
        return _address(self._connected().configuration.host)


class _Expired(Exception):
    """The rest of a list is no longer known to the API server."""


def _address(host: str) -> str:
    return printable(urlsplit(host).netloc or host)


def _why(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):  # which is a kind of the next one
        return "no connection"
    if isinstance(error, urllib3.exceptions.TimeoutError):
        return "no answer in time"
    if isinstance(error, urllib3.exceptions.ProtocolError):
        return "the connection was closed without a whole answer"
    said = str(error.reason) if isinstance(error, client.ApiException) else str(error)
    return one_line(said, DETAIL_MAX) or type(error).__name__
