"""Decide when the server may end an attempt whose node is silent."""

from gangline.core.policy import Policy


def is_overdue(*, expires_ms: int, now_ms: int, up_since_ms: int, policy: Policy) -> bool:
    """Return whether a lease has expired. None does until the server has been up for one lease time.

    While the server is down nodes cannot renew their leases: without this rule an outage would interrupt every running job.
    """
    return expires_ms < now_ms and now_ms - up_since_ms >= policy.lease_ms
