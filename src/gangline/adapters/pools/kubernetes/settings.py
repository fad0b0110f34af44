"""The settings of a Kubernetes cluster, which the server's own file holds, and of a pool on it, which any operator may change.

What decides over the cluster's machines, its account and its Pod template, stands in the cluster's settings alone."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen

from gangline.core.parsing import Checked
from gangline.core.policy import STRICT, Exact
from gangline.core.server.settings import NodePrice, TrustLevel

NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
PREFIX = rf"{NAME}(\.{NAME})*"
WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
IMAGE = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"


def _like(pattern: str, said: str) -> Checked:
    return Checked(lambda text: "" if re.fullmatch(pattern, text) else f"must be {said}")


Namespace = Annotated[str, Exact(), _like(NAME, "a name of lower-case letters, digits and hyphens, 63 at most")]
Context = Annotated[str, MaxLen(1000), Exact()]
GpuResource = Annotated[
    str, MaxLen(300), Exact(), _like(rf"{PREFIX}/{WORD}", "a resource of a device plugin, such as nvidia.com/gpu")
]
NodeLabel = Annotated[
    str,
    MaxLen(400),
    Exact(),
    _like(
        rf"({PREFIX}/)?{WORD}=({WORD})?", "a label and its value, such as cloud.google.com/gke-accelerator=nvidia-l4"
    ),
]
QueueMinutes = Annotated[float, Ge(0), Le(1e6), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesCluster:
    """How this server reaches a cluster, and what every Pod has there."""

    __pydantic_config__: ClassVar[Any] = STRICT
    kubeconfig: Annotated[
        Path | None,
        "The file that says where the cluster is and who this server is there (default: the file that KUBECONFIG names, else the "
        "service account of the server's own Pod if it runs in one and no context is named, else ~/.kube/config).",
    ] = None
    context: Annotated[Context, "The context of that file (default: its current one)."] = ""
    namespace: Annotated[Namespace, "Pods are created in this namespace."] = "gangline"
    template: Annotated[
        Path | None,
        "A YAML file with the Pod that every node begins as: tolerations, a priority class, pull secrets, volumes and whatever else "
        "the cluster needs (default: an empty one). It is read when a pool is opened.",
    ] = None
    timeout_s: Annotated[
        Annotated[float, Gt(0), Le(300), Exact()],
        "A request to the API server is given up after this long without an answer.",
    ] = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """Which Pods a pool creates. A Pod is a node."""

    __pydantic_config__: ClassVar[Any] = STRICT
    image: Annotated[
        Annotated[str, MaxLen(2048), Exact()],
        "The container image of a node: one with Gangline, or any with Python and PyTorch, where the worker is installed when it "
        f"starts (default: that of the template, else {IMAGE}).",
    ] = ""
    gpus: Annotated[
        Annotated[int, Ge(0), Le(64), Exact()],
        "Each node has this many GPUs of one machine; 0 makes nodes without a GPU.",
    ] = 1
    gpu_resource: Annotated[GpuResource, "The name under which the cluster's device plugin offers GPUs."] = (
        "nvidia.com/gpu"
    )
    gpu: Annotated[
        Annotated[str, MaxLen(100), Exact()],
        "The GPU's name as jobs ask for it and as nodes report it, e.g. `NVIDIA L4`. Kubernetes does not report it.",
    ] = ""
    gpu_memory_gb: Annotated[
        Annotated[float, Ge(0), Le(10_000), Exact()],
        "The memory of each GPU in GB. Kubernetes does not report it; with 0 no job that needs GPU memory starts a node here.",
    ] = 0.0
    selector: Annotated[
        tuple[NodeLabel, ...],
        "Only machines with all these labels are used, e.g. `cloud.google.com/gke-accelerator=nvidia-l4`.",
    ] = ()
    cpu: Annotated[
        Annotated[float, Ge(0.1), Le(1024), Exact()],
        "A node requests this many CPUs, unless the template says how many.",
    ] = 4.0
    memory_gb: Annotated[
        Annotated[float, Ge(0.1), Le(10_000), Exact()],
        "A node requests this much memory in GB (GiB), unless the template says how much.",
    ] = 16.0
    shared_memory_gb: Annotated[
        Annotated[float, Ge(0.1), Le(10_000), Exact()],
        "This much memory in GB (GiB) may be used as /dev/shm, by data loaders. It counts as memory of the node.",
    ] = 2.0
    trust: Annotated[TrustLevel, "Nodes have this trust tier; a job with `--trust N` runs where it is at least N."] = 0
    price_usd_per_hour: Annotated[
        NodePrice | None,
        "A node costs this much an hour, 0 if it is free. Without a price, costs of the pool are unknown.",
    ] = None
    grace_s: Annotated[
        Annotated[int, Ge(1), Le(86_400), Exact()],
        "A node that is stopped has this long to save and to give its jobs back. Clouds allow less when they take back a spot machine.",
    ] = 180
    queue_minutes_max: Annotated[
        QueueMinutes,
        "A Pod that has waited longer than this for a machine is deleted, and none is created in the next ten minutes: the offer counts "
        "as taken.",
    ] = 10.0

    def __post_init__(self) -> None:
        names = [each.partition("=")[0] for each in self.selector]
        assert len(names) == len(set(names)), "selector has each label once"

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of machines as a Pod selects them."""
        return {name: value for name, _, value in (each.partition("=") for each in self.selector)}
