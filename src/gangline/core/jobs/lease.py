"""When the server may end an attempt whose node is silent."""

from gangline.core.policy import Policy


def is_overdue(*, expires_ms: int, now_ms: int, up_since_ms: int, policy: Policy) -> bool:
    """After an outage of our own no lease ends before the service has been back for one lease time."""
    return expires_ms < now_ms and now_ms - up_since_ms >= policy.lease_ms
