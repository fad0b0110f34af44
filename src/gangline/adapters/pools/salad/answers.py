"""What Salad's public API answers, as far as the driver reads it. What it does not read may change."""

from dataclasses import dataclass, field
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCounts:
    """How many instances of a group are in which state. Those that download an image count as being created."""

    allocating_count: int
    creating_count: int
    running_count: int
    stopping_count: int

    @property
    def total(self) -> int:
        return self.allocating_count + self.creating_count + self.running_count + self.stopping_count


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    status: str
    instance_status_counts: StatusCounts
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupContainer:
    """What a group runs. Its environment has the secrets of a node."""

    environment_variables: dict[str, object] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGroup:
    name: str
    current_state: GroupState
    container: GroupContainer = field(default_factory=GroupContainer)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerGroups:
    items: tuple[ContainerGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInstance:
    """One run of a group's replica on one machine."""

    id: str
    state: str
    machine_id: str = ""
    update_time: str = ""
    pulling_progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInstances:
    instances: tuple[ReplicaInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEvent:
    event_name: str
    event_time: str = ""
    instance_id: str | None = None
    machine_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEvents:
    items: tuple[SystemEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPrice:
    priority: str | None
    price: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClass:
    """Memory is in MB, storage in bytes. A price holds for all GPUs of one machine."""

    id: str
    name: str
    prices: tuple[ClassPrice, ...] = ()
    gpu_count: int | None = None
    min_vcpu: int | None = None
    max_vcpu: int | None = None
    min_ram: int | None = None
    max_ram: int | None = None
    min_storage: int | None = None
    max_storage: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClasses:
    items: tuple[GpuClass, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeGpus:
    """How many machines are free at each priority. None: not said."""

    available_gpu_high: int | None = None
    available_gpu_medium: int | None = None
    available_gpu_low: int | None = None
    available_gpu_batch: int | None = None

    def at(self, priority: str) -> int | None:
        return getattr(self, f"available_gpu_{priority}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaQuota:
    container_replicas_quota: int
    container_replicas_used: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrganizationQuotas:
    container_groups_quotas: ReplicaQuota


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedLine:
    time: str = ""
    text_log: str | None = None
    json_log: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedLines:
    items: tuple[LoggedLine, ...]


def moment_ms(text: str) -> int | None:
    """Return a time of Salad's, such as `2026-06-01T12:00:00.1234567Z`, in milliseconds; None if it is none."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
