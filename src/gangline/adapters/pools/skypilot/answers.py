"""What SkyPilot's API server answers, as far as the driver reads it. What it does not read may change."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from gangline.core.display import printable

SAID_MAX = 300
LAUNCH = "sky.launch"
ACTIVE = frozenset({"PENDING", "WAITING", "RUNNING"})
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A request as the API server remembers it. Of a finished one, `return_value` and `error` are JSON, the error's by `/api/get` alone."""

    request_id: str
    name: str
    status: str
    cluster_name: str | None = None
    created_at: float = 0.0
    return_value: str = "null"
    error: str = "null"

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRequest:
    detail: ApiRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFailure:
    """Why a request failed: the class of SkyPilot's exception, and what it says."""

    type: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """A cluster. `launched_at` is in seconds. `node_names` has its machines once the cloud has rented them.

    UP means that its machines run and that SkyPilot reaches them, and not that its last launch succeeded: a refresh makes a cluster UP
    whose launch was cut off before the node's program began. `init_kind` says "launching" of such a cluster, too.
    """

    name: str
    status: str
    launched_at: int
    cluster_hash: str
    node_names: str | None = None
    init_status_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    reason: str
    transitioned_at: int


class CatalogRow(NamedTuple):
    """A machine type in a region. Prices are dollars an hour, memory is in GiB; `null` is not known, or not sold."""

    cloud: str
    instance_type: str | None
    accelerator_name: str
    accelerator_count: float
    cpu_count: float | None
    device_memory: float | None
    memory: float | None
    price: float | None
    spot_price: float | None
    region: str | None


def sentence(message: str) -> str:
    """Return what a message of SkyPilot's says, in one sentence without colours: of failures in several places, the last.

    >>> sentence("Failed to provision.\\nReasons:\\n\\n✗ Lambda (us-east-1)\\n  Failed to acquire resources.\\n")
    'Lambda (us-east-1): Failed to acquire resources'
    """
    lines = [line.strip() for line in COLOURS.sub("", message).splitlines() if line.strip()]
    tried = max((number for number, line in enumerate(lines) if line.startswith("✗")), default=None)
    said = lines[:1] if tried is None else [lines[tried].removeprefix("✗").strip(), *lines[tried + 1 : tried + 2]]
    return printable(": ".join(said))[:SAID_MAX].rstrip(" .")
