"""A stand-in for a Kubernetes cluster: its API server over HTTP as far as Pods go, a scheduler and kubelets that a test moves, and faults.

Each Pod that it is sent is checked by the schemas of the oldest and the newest Kubernetes, strictly, as are the Pods and the lists that
it shows by the newest, so that the stand-in speaks as the original does. There is no schema for its refusals (`Status`).
"""

import copy
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kubernetes_validate
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from gangline.adapters.pools.kubernetes.driver import KubernetesPool
from gangline.adapters.pools.kubernetes.settings import KubernetesCluster, KubernetesSettings
from tests.contract.pools.suite import PLACES, Fault

NAMESPACE, TOKEN, USER = "gangline", "the-token-of-a-service-account", "system:serviceaccount:gangline:gangline"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MACHINE, OLDEST, NEWEST = "gpu-machine-1", "1.25", "1.37"


class FakeKubernetes:
    """The cluster. `requests` are those that it was sent, as `METHOD path?query`; `created` are the Pods that it was sent. At each list
    it is `look_s` later than `clock` says."""

    def __init__(self, clock: Callable[[], int] = lambda: 1_780_000_000_000, look_s: float = 5) -> None:
        self._clock, self._look_s, self._passed_ms = clock, look_s, 0
        self.places = PLACES
        self.page_max = 1
        self.pods: dict[str, dict[str, Any]] = {}
        self.created: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.printed: dict[str, str] = {}
        self.answers: dict[str, Response] = {}
        """What a request is answered in place of what it should be, by its method and path."""
        self.version = {"major": "1", "minor": "34+"}
        self.rights = {"create", "get", "list", "delete"}
        self.expires = 0
        """How many rests of lists are no longer known when they are asked for."""
        self.away: set[str] = set()
        """The Pods whose machine does not answer."""
        self.fault: Fault | None = None
        self._snapshot: list[dict[str, Any]] = []
        self.app = FastAPI()
        self.app.middleware("http")(self._through)
        self.app.get("/version")(lambda: JSONResponse(self.version))
        self.app.get(PODS)(self._list)
        self.app.post(PODS)(self._create)
        self.app.get(f"{PODS}/{{name}}")(self._get)
        self.app.delete(f"{PODS}/{{name}}")(self._delete)
        self.app.get(f"{PODS}/{{name}}/log")(self._log)

    @contextmanager
    def suffers(self, fault: Fault) -> Iterator[None]:
        self.fault, self._snapshot = fault, copy.deepcopy([*self.pods.values()])
        try:
            yield
        finally:
            self.fault = None

    # What happens by itself, and by hand

    @property
    def now_ms(self) -> int:
        return self._clock() + self._passed_ms

    def advance(self, seconds: float) -> None:
        self._passed_ms += round(seconds * 1000)

    def time(self) -> str:
        return f"{datetime.fromtimestamp(self.now_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def condition(self, name: str, type_: str, status: str, reason: str = "", message: str = "") -> None:
        said = {"reason": reason, "message": message} if reason else {}
        now = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": self.time()} | said
        conditions = self.pods[name]["status"].setdefault("conditions", [])
        conditions[:] = [each for each in conditions if each["type"] != type_] + [now]
        self.check(self.pods[name])

    def cannot_schedule(self, name: str, message: str) -> None:
        self.condition(name, "PodScheduled", "False", "Unschedulable", message)

    def bind(self, name: str) -> None:
        """Give a Pod a machine, whose kubelet then pulls its image."""
        self.pods[name]["spec"]["nodeName"] = MACHINE
        self.condition(name, "PodScheduled", "True")
        self.container(name, waiting={"reason": "ContainerCreating"})

    def run(self, name: str) -> None:
        pod = self.pods[name]
        if pod["status"]["phase"] == "Running":
            return
        if "nodeName" not in pod["spec"]:
            self.bind(name)
        pod["status"]["phase"] = "Running"
        pod["status"]["startTime"] = self.time()
        self.container(name, running={"startedAt": self.time()})
        self.condition(name, "Ready", "True")

    def container(self, name: str, **state: Any) -> None:
        pod = self.pods[name]
        image = pod["spec"]["containers"][0]["image"]
        status = {"name": "worker", "image": image, "imageID": "", "ready": "running" in state, "restartCount": 0}
        pod["status"]["containerStatuses"] = [status | {"state": state}]
        self.check(pod)

    def finish(self, name: str, code: int, reason: str = "", **status: str) -> None:
        """End a Pod's container. The Pod stays, until somebody deletes it."""
        pod = self.pods[name]
        state = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "finishedAt": self.time()}
        pod["status"] |= {"phase": "Failed" if code else "Succeeded"} | status
        self.container(name, terminated=state)

    def evict(self, name: str, message: str = "The node was low on resource: memory.") -> None:
        """What a kubelet does that runs out of memory: nothing of the container is known any more."""
        pod = self.pods[name]
        pod["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}
        pod["status"].pop("containerStatuses", None)
        self.condition(name, "DisruptionTarget", "True", "TerminationByKubelet", message)

    def lose(self, name: str) -> None:
        """Let a Pod's machine vanish: the control plane then deletes the Pod, and no kubelet ever says that it has ended."""
        self.away.add(name)
        self.condition(name, "Ready", "False")
        self.condition(
            name, "DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
        )
        self.delete(name)

    def collect(self, name: str) -> None:
        """What the control plane does once the cloud has said that a machine no longer exists."""
        self.away.discard(name)
        del self.pods[name]

    def delete(self, name: str) -> None:
        """Begin to end a Pod. One without a machine is gone at once; a second time changes nothing."""
        pod = self.pods[name]
        if "nodeName" not in pod["spec"] or pod["status"]["phase"] in ("Succeeded", "Failed"):
            del self.pods[name]
        elif "deletionTimestamp" not in pod["metadata"]:
            grace_s = pod["spec"]["terminationGracePeriodSeconds"]
            until = datetime.fromtimestamp(self.now_ms // 1000 + grace_s, UTC)
            pod["metadata"] |= {
                "deletionTimestamp": f"{until:%Y-%m-%dT%H:%M:%SZ}",
                "deletionGracePeriodSeconds": grace_s,
            }
            self.check(pod)

    def add(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        made = copy.deepcopy(dict(pod))
        made["metadata"] |= {"namespace": NAMESPACE, "uid": str(uuid.uuid4()), "creationTimestamp": self.time()}
        made["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        self.pods[made["metadata"]["name"]] = made
        self.check(made)
        return made

    @staticmethod
    def check(shown: Mapping[str, Any]) -> None:
        """A Pod, or a list of Pods."""
        kubernetes_validate.validate(dict(shown), NEWEST, strict=True)

    def kubelets(self) -> None:
        """Let the kubelets that answer end what is being deleted."""
        if self.fault is Fault.DEAF:
            return
        for name in [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"]]:
            if name not in self.away:
                del self.pods[name]

    # What it is asked

    async def _through(self, request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        path, query = request.url.path, request.url.query
        self.requests.append(f"{request.method} {path}" + (f"?{query}" if query else ""))
        early = self._early(request)
        if early is not None:
            return early
        answer = await proceed(request)
        parts = [part async for part in answer.body_iterator]  # pyright: ignore[reportAttributeAccessIssue]
        said = b"".join(part if isinstance(part, bytes) else bytes(part) for part in parts)
        if self.fault is Fault.LOST_AFTER and request.method == "POST":
            return cut_off()
        if self.fault is Fault.PARTIAL and request.method == "GET" and path == PODS:
            said = said[: len(said) // 2]
        return Response(said, answer.status_code, media_type=answer.headers.get("content-type"))

    def _early(self, request: Request) -> Response | None:
        """Return an answer that another than the API gives, or that it gives before it looks at the request."""
        for name, answer in self.answers.items():
            if f"{request.method} {request.url.path}".endswith(name):
                return answer
        dry = "dryRun=All" in request.url.query
        if self.fault is Fault.AWAY or (self.fault is Fault.LOST_BEFORE and request.method == "POST" and not dry):
            return cut_off()
        if request.headers.get("authorization") != f"Bearer {TOKEN}" or self.fault is Fault.CREDENTIALS:
            return refusal(401, "Unauthorized", "Unauthorized")
        if not request.url.path.startswith((PODS, "/version")):
            return refusal(404, "NotFound", "the server could not find the requested resource")
        verb = {"POST": "create", "DELETE": "delete"}.get(request.method, "list" if request.url.path == PODS else "get")
        if verb not in self.rights:
            what = f'User "{USER}" cannot {verb} resource "pods" in API group "" in the namespace "{NAMESPACE}"'
            return refusal(403, "Forbidden", f"pods is forbidden: {what}")
        return None

    def _list(self, request: Request) -> Response:
        asked = request.query_params
        if not asked.get("continue"):
            self.advance(self._look_s)
        elif self.expires:
            self.expires -= 1
            return refusal(
                410, "Expired", "The provided continue parameter is too old to display a consistent list result."
            )
        name, _, value = asked["labelSelector"].partition("=")
        every = self._snapshot if self.fault is Fault.STALE else [*self.pods.values()]
        found = [each for each in every if each["metadata"].get("labels", {}).get(name) == value]
        begin, count = int(asked.get("continue") or 0), min(int(asked["limit"]), self.page_max)
        more = begin + count < len(found)
        metadata = {"resourceVersion": "1"} | ({"continue": str(begin + count)} if more else {})
        listed = {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": found[begin : begin + count]}
        self.check(listed)
        answer = JSONResponse(listed)
        if not more:
            self.kubelets()
        return answer

    async def _create(self, request: Request) -> Response:
        pod, name = json.loads(await request.body()), ""
        try:
            name = pod["metadata"]["name"]
            for version in (OLDEST, NEWEST):
                kubernetes_validate.validate(pod, version, strict=True)
        except (kubernetes_validate.ValidationError, KeyError) as error:
            return refusal(
                400, "BadRequest", f"Pod in version v1 cannot be handled as a Pod: {str(error).splitlines()[0]}"
            )
        if name in self.pods:
            return refusal(409, "AlreadyExists", f'pods "{name}" already exists')
        full = "requests.nvidia.com/gpu" if self.fault is Fault.NO_CAPACITY else "pods"
        used = sum(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in self.pods.values())
        if self.fault in (Fault.NO_CAPACITY, Fault.QUOTA) or used >= self.places:
            limits = f"requested: {full}=1, used: {full}={used}, limited: {full}={used}"
            return refusal(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: nodes, {limits}')
        if request.query_params.get("dryRun") == "All":
            return JSONResponse(pod, 201)
        self.created.append(pod)
        return JSONResponse(self.add(pod), 201)

    def _get(self, name: str) -> Response:
        return JSONResponse(self.pods[name]) if name in self.pods else no_pod(name)

    def _delete(self, name: str) -> Response:
        if name not in self.pods:
            return no_pod(name)
        shown = self.pods[name]
        self.delete(name)
        return JSONResponse(shown)

    def _log(self, name: str, container: str, tailLines: int) -> Response:
        assert container == "worker"
        if name not in self.pods:
            return no_pod(name)
        if name not in self.printed:
            said = f'container "worker" in pod "{name}" is waiting to start: ContainerCreating'
            return refusal(400, "BadRequest", said)
        return PlainTextResponse("\n".join(self.printed[name].splitlines()[-tailLines:]))


class KubernetesProvider:
    """The stand-in as the contract's suite wants it, with a driver of it. `folder` is for its files."""

    def __init__(self, cluster: FakeKubernetes, url: str, folder: Path, mark: str = "pool-1", **settings: Any) -> None:
        self.cluster, self.folder, self.mark = cluster, folder, mark
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(kubeconfig(url))
        self.settings = KubernetesSettings(**settings)
        self.driver = self.restarted()

    def restarted(
        self, settings: KubernetesSettings | None = None, template: Path | None = None, mark: str = ""
    ) -> KubernetesPool:
        return KubernetesPool(
            settings=settings or self.settings,
            cluster=KubernetesCluster(kubeconfig=self.kubeconfig, template=template),
            mark=mark or self.mark,
            surroundings={},
            clock=lambda: self.cluster.now_ms,
        )

    def suffers(self, fault: Fault) -> Any:
        return self.cluster.suffers(fault)

    def run(self, name: str) -> None:
        self.cluster.run(name)

    def kill(self, name: str) -> None:
        """Let its machine lose power; the cloud then says that the machine no longer exists."""
        self.cluster.lose(name)
        self.driver.list()
        self.cluster.collect(name)

    def end_by_hand(self, name: str) -> None:
        self.cluster.delete(name)

    def rent_by_hand(self, name: str) -> str:
        containers = [{"name": "worker", "image": "mine"}]
        self.cluster.add(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {"containers": containers, "terminationGracePeriodSeconds": 30},
            }
        )
        return name

    def has(self, instance: str) -> bool:
        return instance in self.cluster.pods and "deletionTimestamp" not in self.cluster.pods[instance]["metadata"]


def kubeconfig(url: str, token: str = TOKEN) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": url}}],
            "users": [{"name": "gangline", "user": {"token": token}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "gangline"}}],
            "current-context": "fake",
        }
    )


def refusal(status: int, reason: str, message: str, **headers: str) -> Response:
    said = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": status}
    said |= {"reason": reason, "message": message}
    return JSONResponse(said, status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def no_pod(name: str) -> Response:
    return refusal(404, "NotFound", f'pods "{name}" not found')


def cut_off() -> Response:
    """An answer that never arrives: the connection is closed after its headers."""

    class CutOff(Response):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"", "more_body": True})

    return CutOff()
