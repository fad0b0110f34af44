"""What one client may ask of a server: bounds that keep one request, or one client's many, from holding up everybody else's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds in the unit that each name ends with. A node's heartbeats have no rate."""

    # A request
    json_bytes_max: int = 1_000_000  # of a user's request; a spec of some 6,000 photos
    worker_json_bytes_max: int = (
        8_000_000  # of a worker's: 1,000 files, and the hashes of the 16 MiB parts of 1 TB (4.4 MB)
    )
    heartbeat_bytes_max: int = 16_384
    batch_bytes_max: int = 64_000_000  # of JSON lines in one request, each line at most `json_bytes_max`
    batch_lines_max: int = 10_000

    # Time
    headers_s: float = 10.0  # from the first byte of a request until its headers are complete
    body_s: float = 60.0  # until a body of JSON is complete
    body_idle_s: float = 30.0  # without a byte of a file or a batch that is being uploaded

    # Rates: so many requests a second in the long run, and so many at once after a rest
    key_rate_per_s: float = 100.0
    key_burst: int = 2_000
    address_rate_per_s: float = 20.0  # of one address: requests without a key, and with keys that are not valid
    address_burst: int = 400

    # Streams
    followers_max: int = 2_000
    followers_per_project_max: int = 1_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            assert getattr(self, name) > 0, f"{name} is above 0"
