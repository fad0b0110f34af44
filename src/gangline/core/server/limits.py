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
    json_bytes_max: Annotated[
        Bytes, "A user's request has at most this size, enough for a spec of some 6,000 photos."
    ] = 1_000_000
    # 1,000 files, and the SHA-256 of each part of 16 MiB of a checkpoint of 1 TB (4.4 MB)
    worker_json_bytes_max: Annotated[
        Bytes, "A worker's request has at most this size, enough for the manifest of a checkpoint of 1 TB."
    ] = 8_000_000
    heartbeat_bytes_max: Annotated[Bytes, "A heartbeat has at most this size."] = 16_384
    batch_bytes_max: Annotated[
        Bytes, "The JSON lines of one batch have at most this size; `json_bytes_max` limits each line."
    ] = 64_000_000
    batch_lines_max: Annotated[Number, "A batch has at most this many jobs."] = 10_000

    # Time
    headers_s: Annotated[Seconds, "The headers of a request must be complete within this time."] = 10.0
    body_s: Annotated[Seconds, "A JSON body must be complete within this time."] = 60.0
    body_idle_s: Annotated[Seconds, "An upload or a batch is aborted after this time without a byte."] = 30.0

    # Rates
    key_rate_per_s: Annotated[RequestRate, "One key may make this many requests in the long run."] = 100.0
    key_burst: Annotated[Number, "One key may make this many requests at once after a pause."] = 2_000
    address_rate_per_s: Annotated[
        RequestRate, "One address without a valid key may make this many requests in the long run."
    ] = 20.0
    address_burst: Annotated[
        Number, "One address without a valid key may make this many requests at once after a pause."
    ] = 400

    # Streams
    followers_max: Annotated[Number, "At most this many streams of events and logs are open at the same time."] = 2_000
    followers_per_project_max: Annotated[
        Number, "At most this many streams of one project are open at the same time."
    ] = 1_000
