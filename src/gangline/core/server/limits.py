"""What one client may ask of a server: bounds that keep one request, or one client's many, from holding up everybody else's."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le

from gangline.core.policy import STRICT, Exact

Bytes = Annotated[int, Ge(1_000), Le(10**12), Exact()]
Number = Annotated[int, Ge(1), Le(10**9), Exact()]
Seconds = Annotated[float, Gt(0), Le(86_400), Exact()]
RequestRate = Annotated[float, Gt(0), Le(10**6), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Each name ends with its unit. A node's heartbeats have no rate. docs/limits.md says what a client gets beyond each of them."""

    __pydantic_config__: ClassVar[Any] = STRICT

    # A request
    json_bytes_max: Annotated[Bytes, "Size of a user's request: a spec of some 6,000 photos."] = 1_000_000
    # 1,000 files, and the SHA-256 of each part of 16 MiB of a checkpoint of 1 TB (4.4 MB)
    worker_json_bytes_max: Annotated[Bytes, "Size of a worker's request: the manifest of a checkpoint of 1 TB."] = (
        8_000_000
    )
    heartbeat_bytes_max: Annotated[Bytes, "Size of a heartbeat."] = 16_384
    batch_bytes_max: Annotated[
        Bytes, "Size of the JSON lines of one batch; each line is limited by `json_bytes_max`."
    ] = 64_000_000
    batch_lines_max: Annotated[Number, "Jobs in one batch."] = 10_000

    # Time
    headers_s: Annotated[Seconds, "Headers of a request are complete within this time."] = 10.0
    body_s: Annotated[Seconds, "A body of JSON is complete within this time."] = 60.0
    body_idle_s: Annotated[Seconds, "An upload or a batch is ended after this time without a byte."] = 30.0

    # Rates
    key_rate_per_s: Annotated[RequestRate, "Requests with one key, in the long run."] = 100.0
    key_burst: Annotated[Number, "Requests with one key at once, after a rest."] = 2_000
    address_rate_per_s: Annotated[RequestRate, "Requests of one address without a valid key, in the long run."] = 20.0
    address_burst: Annotated[Number, "Requests of one address without a valid key at once, after a rest."] = 400

    # Streams
    followers_max: Annotated[Number, "Streams of events and logs that are open at a time."] = 2_000
    followers_per_project_max: Annotated[Number, "Streams of one project that are open at a time."] = 1_000
