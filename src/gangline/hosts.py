"""Look up host names, for all that connects to addresses which users give: the addresses are checked before one is connected to."""

import socket
from collections.abc import Callable, Sequence

HostLookup = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host and port. Raises `OSError`."""


def resolve_host(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
