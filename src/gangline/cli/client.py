"""The client of a command. It loads HTTP, which `--help` need not wait for."""

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from gangline.compose.client import Client


def make_client(server: str | None, token: str | None, project: str | None = None) -> "Client":
    """Take what is not given from the environment, then from a server of this machine. `project` is for operators to say."""
    from gangline.compose.client import Client

    return Client(server, token, project)


def is_on_this_machine(address: str) -> bool:
    """Return whether a server's address is one that only its own machine reaches, or that stands for all of its addresses."""
    host = urlsplit(address).hostname or ""
    try:
        ip = ip_address(host)
    except ValueError:
        return host == "localhost"
    return ip.is_loopback or ip.is_unspecified
