"""The settings of a pool of SkyPilot's clusters."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.parsing import Checked
from gangline.core.policy import STRICT, Exact


def _like(pattern: str, said: str) -> Checked:
    return Checked(lambda text: "" if re.fullmatch(pattern, text) else f"must be {said}")


AcceleratorName = Annotated[str, Exact(), _like(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}", "a name of SkyPilot's catalog")]
CloudName = Annotated[str, Exact(), _like(r"[a-z][a-z0-9]{1,29}", "a cloud in small letters, such as aws")]
RegionName = Annotated[str, Exact(), _like(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", "a region's name")]
LabelText = Annotated[
    str,
    Exact(),
    _like(r"[A-Za-z][A-Za-z0-9_./-]{0,62}=[A-Za-z0-9_./-]{0,63}", "NAME=VALUE, of letters, digits and _ . / -"),
]
ENDPOINT = "http://127.0.0.1:46580"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotSettings:
    """What a node of the pool asks for, and where it may be rented."""

    __pydantic_config__: ClassVar[Any] = STRICT
    accelerators: Annotated[
        Annotated[tuple[AcceleratorName, ...], MinLen(1), MaxLen(50)],
        "The GPUs to rent, by the names of SkyPilot's catalog, e.g. `RTX4090`, `L4`, `A100-80GB`.",
    ]
    gpus: Annotated[Annotated[int, Ge(1), Le(64), Exact()], "A node has this many GPUs."] = 1
    clouds: Annotated[
        tuple[CloudName, ...],
        "The clouds to rent on, e.g. `runpod`, `aws`. Without any, all that are enabled at SkyPilot's server.",
    ] = ()
    regions: Annotated[tuple[RegionName, ...], "The regions to rent in. Without any, all of these clouds."] = ()
    use_spot: Annotated[
        Annotated[bool, Exact()], "Rent spot machines, which cost less and which the cloud may take away."
    ] = True
    image: Annotated[
        Annotated[str, MaxLen(2048), Exact()],
        "The container image of a node: any with Python and PyTorch. The worker is installed when the node starts. "
        "With an empty text the node is the cloud's machine as SkyPilot sets it up.",
    ] = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
    cpus: Annotated[Annotated[int, Ge(1), Le(1024), Exact()], "A node has at least this many virtual CPUs."] = 4
    memory_gb: Annotated[Annotated[int, Ge(1), Le(8192), Exact()], "A node has at least this much memory."] = 16
    disk_gb: Annotated[
        Annotated[int, Ge(20), Le(65_536), Exact()],
        "A node has this much disk, for the image, the worker's libraries, bases and data.",
    ] = 100
    labels: Annotated[
        tuple[LabelText, ...],
        "Labels for the cloud's machines, as `NAME=VALUE`, e.g. to find their costs in its bills.",
    ] = ()
    timeout_s: Annotated[
        Annotated[float, Gt(0), Le(300), Exact()],
        "A request to SkyPilot's server is given up after this long without an answer.",
    ] = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotProvider:
    """How this server reaches a SkyPilot API server."""

    __pydantic_config__: ClassVar[Any] = STRICT
    endpoint: Annotated[
        Annotated[str, MinLen(1), MaxLen(1000), Exact()], "The address of SkyPilot's API server, without a password."
    ] = ENDPOINT
