"""What the API server says of Pods, as far as the driver reads it, and what that means for a node. What it does not read may change."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal

from gangline.core.display import printable

SAID_MAX = 300
GONE_MS = 30_000
"""How long after its grace a Pod must be there still for its machine to be called away."""
ENDINGS: Mapping[str, str] = {
    "DeadlineExceeded": "it reached the deadline of its Pod",
    "Evicted": "Kubernetes evicted it",
    "NodeAffinity": "its machine no longer has the labels that it selects",
    "NodeLost": "its machine was lost",
    "NodeShutdown": "its machine was shut down",
    "OutOfcpu": "its machine had no CPUs left for it",
    "OutOfmemory": "its machine had no memory left for it",
    "Preempting": "a Pod of higher priority preempted it",
    "Shutdown": "its machine was shut down",
    "Terminated": "its machine was shut down",
    "UnexpectedAdmissionError": "its machine could not admit it",
}
"""A Pod's `status.reason`, in words."""
DISRUPTIONS: Mapping[str, str] = {
    "DeletionByPodGC": "its machine is gone",
    "DeletionByTaintManager": "its machine was lost, or may not run it any more",
    "EvictionByEvictionAPI": "it was evicted, as for a machine that is drained",
    "PreemptionByScheduler": "a Pod of higher priority preempted it",
    "TerminationByKubelet": "its machine ended it",
}
"""Reasons of the condition DisruptionTarget, in words."""
NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
OF_A_STOP = frozenset({0, 128 + 9, 128 + 15})
"""The exit codes of a worker that was asked to stop: it has left, was killed after its grace, or had not begun."""
COMING = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Why a container waits while all is well."""


def _camel(name: str) -> str:
    first, *others = name.rstrip("_").split("_")
    return first + "".join(part.capitalize() for part in others)


CAMEL: dict[str, Any] = {"alias_generator": _camel}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCondition:
    __pydantic_config__: ClassVar[Any] = CAMEL
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerWaiting:
    __pydantic_config__: ClassVar[Any] = CAMEL
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerTerminated:
    __pydantic_config__: ClassVar[Any] = CAMEL
    exit_code: int
    signal: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    __pydantic_config__: ClassVar[Any] = CAMEL
    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStatus:
    __pydantic_config__: ClassVar[Any] = CAMEL
    name: str
    state: ContainerState = field(default_factory=ContainerState)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    __pydantic_config__: ClassVar[Any] = CAMEL
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMetadata:
    __pydantic_config__: ClassVar[Any] = CAMEL
    name: str
    uid: str
    creation_timestamp: datetime
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlace:
    """Of a Pod's `spec`, the machine that it is bound to."""

    __pydantic_config__: ClassVar[Any] = CAMEL
    node_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesPod:
    __pydantic_config__: ClassVar[Any] = CAMEL
    metadata: PodMetadata
    spec: PodPlace
    status: PodStatus

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def has_ended(self) -> bool:
        """Return whether its containers have ended and will not start again. A Pod that is being deleted runs until it says so."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def created_ms(self) -> int:
        return _ms(self.metadata.creation_timestamp)

    @property
    def bound_ms(self) -> int | None:
        """Return since when it has a machine, which is paid for from then on."""
        if not self.spec.node_name:
            return None
        found = self.condition("PodScheduled")
        since = found.last_transition_time if found and found.status == "True" else None
        return _ms(since) if since else self.created_ms

    @property
    def ended_ms(self) -> int | None:
        """Return when its last container ended; of a Pod whose containers never began, when it was last heard of."""
        if not self.has_ended:
            return None
        finished = [state.finished_at for state in self.terminated if state.finished_at]
        heard = [each.last_transition_time for each in self.status.conditions if each.last_transition_time]
        return _ms(max(finished or heard or [self.metadata.creation_timestamp]))

    @property
    def terminated(self) -> tuple[ContainerTerminated, ...]:
        return tuple(each.state.terminated for each in self.status.container_statuses if each.state.terminated)

    @property
    def disruption(self) -> PodCondition | None:
        """Return what Kubernetes says of a Pod that it takes away; None if it does not."""
        found = self.condition("DisruptionTarget")
        return found if found and found.status == "True" else None

    def condition(self, type_: str) -> PodCondition | None:
        return next((each for each in self.status.conditions if each.type == type_), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListMetadata:
    __pydantic_config__: ClassVar[Any] = CAMEL
    continue_: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPage:
    """A part of the list of Pods; `metadata.continue_` asks for the next one, and is empty at the end."""

    __pydantic_config__: ClassVar[Any] = CAMEL
    kind: Literal["PodList"]
    metadata: ListMetadata
    items: tuple[KubernetesPod, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersion:
    __pydantic_config__: ClassVar[Any] = CAMEL
    major: str
    minor: str

    @property
    def numbers(self) -> tuple[int, int]:
        """Return them as numbers: those of some clouds have a `+` behind."""
        major, minor = ("".join(filter(str.isdecimal, each)) or "0" for each in (self.major, self.minor))
        return int(major), int(minor)


def pod_ending(pod: KubernetesPod) -> str:
    """Return why a Pod has ended, or ends, for people; '' if nothing of it says so."""
    because = _why_ended(pod)
    place = pod.spec.node_name
    return f"{because} on {printable(place)}" if because and place else because


def ended_as_asked(pod: KubernetesPod) -> bool:
    """Return whether a Pod that was asked to stop shows no other cause of its end."""
    other = pod.status.reason or pod.disruption
    return not other and all(each.exit_code in OF_A_STOP and each.reason != "OOMKilled" for each in pod.terminated)


def _why_ended(pod: KubernetesPod) -> str:
    status = pod.status
    if status.reason in ENDINGS:
        return _with(ENDINGS[status.reason], status.message)
    disrupted = pod.disruption
    if disrupted:
        known = DISRUPTIONS.get(disrupted.reason, "Kubernetes ended it")
        return _with(known, "" if disrupted.reason in DISRUPTIONS else disrupted.message)
    if pod.terminated:
        return _how(pod.terminated[0])
    if not pod.has_ended:
        return ""
    return _with("it ended before its container began", status.message or status.reason)


def _how(state: ContainerTerminated) -> str:
    if state.reason == "OOMKilled":
        return "it used more memory than it was given"
    if state.reason in ("ContainerCannotRun", "StartError", "CreateContainerError"):
        return _with("its container could not begin", state.message)
    number = state.signal or (state.exit_code - 128 if state.exit_code > 128 else 0)
    return f"it was killed by signal {number}" if number else f"it ended with exit code {state.exit_code}"


def pod_progress(pod: KubernetesPod, now_ms: int) -> str:
    """Return how far a Pod's start, or its end, is, for people; '' if it just runs."""
    if pod.has_ended:
        return ""
    gone = pod.metadata.deletion_timestamp
    if gone:
        if now_ms - _ms(gone) > GONE_MS:
            return f"its machine {printable(pod.spec.node_name)} does not say that it has ended, so Kubernetes waits"
        return "Kubernetes is ending it"
    if not pod.spec.node_name:
        found = pod.condition("PodScheduled")
        gated = found is not None and found.reason == "SchedulingGated"
        return _with(
            "waits to be let into the cluster" if gated else "waits for a machine", found.message if found else ""
        )
    every = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = [each.state.waiting for each in every if each.state.waiting]
    for each in waiting:
        if each.reason in NO_IMAGE:
            return _with("its image cannot be pulled", each.message or each.reason)
    for each in waiting:
        if each.reason not in COMING:
            return _with("its container cannot begin", each.message or each.reason)
    if waiting or pod.status.phase == "Pending":
        return f"its image is pulled on {printable(pod.spec.node_name)}"
    return ""


def one_line(said: str, most: int) -> str:
    """Return a text of the cluster's as one line for people, with this many characters at most."""
    return printable(" ".join(said.split()))[:most]


def _with(words: str, said: str) -> str:
    more = one_line(said, SAID_MAX).rstrip(" .")
    return f"{words}: {more}" if more else words


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
