"""Decide when a node with a job is silent, and when the server may end its attempt."""

from gangline.core.policy import Policy


def is_overdue(*, expires_ms: int, now_ms: int, up_since_ms: int, policy: Policy) -> bool:
    """Return whether a lease has expired. None does until the server has been up for one lease time.

    While the server is down nodes cannot renew their leases: without this rule an outage would interrupt every running job.
    """
    return expires_ms < now_ms and now_ms - up_since_ms >= policy.lease_ms


def silent_ms(*, heard_ms: int, now_ms: int, policy: Policy) -> int:
    """Return how long nothing was heard from a node with a job, in ms; 0 until two of its heartbeats have not come."""
    silence_ms = now_ms - heard_ms
    return silence_ms if silence_ms > round(2000 * policy.heartbeat_interval_s) else 0
