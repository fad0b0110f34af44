"""The client of a command. It loads HTTP, which `--help` need not wait for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gangline.compose.client import Client


def make_client(server: str | None, token: str | None, project: str | None = None) -> "Client":
    """Take what is not given from the environment, then from a server of this machine. `project` is for operators to say."""
    from gangline.compose.client import Client

    return Client(server, token, project)
