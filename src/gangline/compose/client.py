"""The composition root of the command line's requests: which server, and by which key."""

from typing import TYPE_CHECKING

from gangline.compose.access import read_access
from gangline.compose.settings import read_settings
from gangline.core.server.programs import DEFAULT_SERVER

if TYPE_CHECKING:
    from gangline.wire.client import Client


def make_client(server: str | None, token: str | None, project: str | None = None) -> "Client":
    """Take what is not given from the environment, then from a server of this machine. `project` is for operators to say."""
    from gangline.wire.client import Client

    settings = read_settings()
    local = read_access(settings.home)
    url = server or settings.server or (local.url if local else DEFAULT_SERVER)
    ours = local.operator_key if local and local.url == url else None
    known = token or settings.token or ours
    return Client(url, known or "", project or settings.project)
