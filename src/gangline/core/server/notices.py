"""What the server may send to endpoints of users, and how much of it is kept."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Le, MaxLen

from gangline.core.places.urls import are_networks
from gangline.core.policy import STRICT, Exact

NoticeNetwork = Annotated[str, MaxLen(100), Exact()]
NoticeCount = Annotated[int, Ge(1), Le(10**6), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeSettings:
    """Where the server may send notices, and how many wait for an endpoint that does not answer."""

    __pydantic_config__: ClassVar[Any] = STRICT
    networks: Annotated[
        tuple[NoticeNetwork, ...],
        (
            "Notices may be sent to these private networks, e.g. 10.1.0.0/16, where http:// is allowed too. By default "
            "all private, loopback and link-local addresses are refused."
        ),
    ] = ()
    answer_s: Annotated[
        Annotated[float, Gt(0), Le(60), Exact()],
        "A receiver must have answered within this time, or the try has failed.",
    ] = 15.0
    at_once_max: Annotated[
        Annotated[int, Ge(8), Le(10_000), Exact()], "The server sends at most this many notices at the same time."
    ] = 256
    endpoints_max: Annotated[NoticeCount, "A project has at most this many endpoints."] = 50
    backlog_max: Annotated[
        NoticeCount, "At most this many notices wait for one endpoint; the oldest ones beyond that are dropped."
    ] = 20_000
    log_days: Annotated[
        Annotated[float, Gt(0), Le(3650), Exact()],
        "Notices that were delivered, failed or dropped are in the log for this many days.",
    ] = 30.0

    def __post_init__(self) -> None:
        assert are_networks(self.networks), "networks are written like 10.1.0.0/16, with zeros after the prefix"
