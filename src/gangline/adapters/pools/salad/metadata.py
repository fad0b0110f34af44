"""Salad's metadata service, as a node sees it: it proves on which machine the node is."""

import httpx

from gangline.core.errors import Unreachable
from gangline.ports.server import IDENTITY_MAX

METADATA = "http://169.254.169.254"
"""The address in every container at Salad; requests to it do not leave the machine."""
TIMEOUT = httpx.Timeout(10, connect=3)


def fetch_identity(metadata_url: str = METADATA) -> str:
    """Return a signed token (JWT) that names the machine and the container group of this process.

    Raises `Unreachable` where there is no such service: not at Salad, or not yet.
    """
    try:
        # The service refuses what comes through a proxy.
        with httpx.Client(timeout=TIMEOUT, trust_env=False) as client:
            answer = client.get(f"{metadata_url.rstrip('/')}/v1/token", headers={"Metadata": "true"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise Unreachable(f"Salad's metadata service does not answer: {type(error).__name__}") from None
    if answer.status_code != 200:
        raise Unreachable(f"Salad's metadata service refuses a token (HTTP {answer.status_code})")
    try:
        token = answer.json()["jwt"]
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str) or not 0 < len(token) <= IDENTITY_MAX:
        raise Unreachable("Salad's metadata service answers without a token")
    return token
