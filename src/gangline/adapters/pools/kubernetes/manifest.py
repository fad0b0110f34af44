"""Make the Pod of a rental: the owner's template, what the pool's settings say, and what makes it a node."""

from copy import deepcopy
from typing import Any

from gangline.adapters.pools.fetching import FETCH_WORKER
from gangline.adapters.pools.kubernetes.settings import IMAGE, KubernetesSettings
from gangline.adapters.pools.kubernetes.template import CONTAINER, FIXED, LOST, SHARED_MEMORY, SHM
from gangline.core.errors import BadInput
from gangline.ports.pool import Rental

POOL_LABEL, NODE_LABEL = "gangline/pool", "gangline/node"
LOST_S = 30
"""How long a machine may be away before its Pods are given up. Kubernetes' own default is five minutes."""

START = f"""\
if command -v gangline >/dev/null; then
  exec gangline worker "$@"
fi
{FETCH_WORKER}"""


def pod_of(
    rental: Rental, settings: KubernetesSettings, mark: str, template: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the Pod that runs a worker for the rental. The template is one that `why_no_template` has no objection to.

    Raises `BadInput` where the template and the settings contradict each other.
    """
    pod = deepcopy(template) if template else {}
    metadata, spec = pod.get("metadata", {}), pod.get("spec", {})
    labels = metadata.get("labels", {}) | {POOL_LABEL: mark, NODE_LABEL: rental.name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata | {"name": rental.name, "labels": labels},
        "spec": spec | _spec(spec, rental, settings),
    }


def _spec(spec: dict[str, Any], rental: Rental, settings: KubernetesSettings) -> dict[str, Any]:
    selected = spec.get("nodeSelector", {})
    for name, value in settings.labels.items():
        if selected.get(name, value) != value:
            raise BadInput(
                f"the pool selects machines with {name}={value}, and the Pod template those with {name}={selected[name]}",
                hint="leave it to one of them",
            )
    both = selected | settings.labels
    memory = {"medium": "Memory", "sizeLimit": _gib(settings.shared_memory_gb)}
    return {
        **FIXED,
        "terminationGracePeriodSeconds": settings.grace_s,
        "containers": [_container(*(spec.get("containers") or [{}]), rental=rental, settings=settings)],
        # First: the first toleration that fits says for how long, and one without a key fits all.
        "tolerations": [*(_toleration(key) for key in LOST), *spec.get("tolerations", [])],
        "volumes": [*spec.get("volumes", []), {"name": SHARED_MEMORY, "emptyDir": memory}],
    } | ({"nodeSelector": both} if both else {})


def _container(given: dict[str, Any], *, rental: Rental, settings: KubernetesSettings) -> dict[str, Any]:
    environment = [{"name": name, "value": value} for name, value in rental.environment().items()]
    options = ["--slots", str(settings.gpus)] if settings.gpus else []
    return given | {
        "name": CONTAINER,
        "image": settings.image or given.get("image") or IMAGE,
        "command": ["sh", "-c", START, "sh"],
        "args": options,
        "env": [*given.get("env", []), *environment],
        "volumeMounts": [*given.get("volumeMounts", []), {"name": SHARED_MEMORY, "mountPath": SHM}],
        "resources": _resources(given.get("resources", {}), settings),
    }


def _resources(given: dict[str, Any], settings: KubernetesSettings) -> dict[str, Any]:
    """Return what the container requests. A limit of the template is its request, too, where it names none, as Kubernetes has it."""
    limits, requests = given.get("limits", {}), given.get("requests", {})
    if settings.gpu_resource in limits | requests:
        raise BadInput(
            f"the Pod template must not ask for {settings.gpu_resource}: the pool's setting gpus does",
            hint="remove it from the template",
        )
    asked = {"cpu": f"{round(settings.cpu * 1000)}m", "memory": _gib(settings.memory_gb)}
    requests = {name: value for name, value in asked.items() if name not in limits} | requests
    gpus = {settings.gpu_resource: str(settings.gpus)} if settings.gpus else {}
    parts = {"limits": limits | gpus, "requests": requests | gpus}
    return given | {name: part for name, part in parts.items() if part}


def _toleration(key: str) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": LOST_S}


def _gib(gigabytes: float) -> str:
    return f"{round(gigabytes * 1024)}Mi"
