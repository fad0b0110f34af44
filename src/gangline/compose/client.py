"""The composition root of requests to a server: which server, and by which key."""

from gangline.compose.access import read_access
from gangline.compose.settings import read_settings
from gangline.core.server.programs import DEFAULT_SERVER
from gangline.wire.aio.client import AsyncApiClient
from gangline.wire.client.client import ApiClient
from gangline.wire.released import ReleasedNames


class Client(ReleasedNames, ApiClient):
    """A client of a Gangline server.

    What is not given comes from the environment (GANGLINE_SERVER, GANGLINE_TOKEN, GANGLINE_PROJECT), then from a server of this machine,
    as for every command. An operator's key reaches every project, and `project` selects one. A client is used in a `with` block, or
    closed by `close`. Methods raise `UserError` for what the caller can fix, and `Unreachable` if the server does not answer.
    """

    def __init__(self, server: str | None = None, token: str | None = None, project: str | None = None) -> None:
        super().__init__(*_completed(server, token, project))


class AsyncClient(AsyncApiClient):
    """The same client for asyncio: `async with`, `await` and `async for` in the places of `with`, a call and `for`.

    A canceled call closes its connection. Files are read and hashed in threads.
    """

    def __init__(self, server: str | None = None, token: str | None = None, project: str | None = None) -> None:
        super().__init__(*_completed(server, token, project))


def address_for_others(server: str) -> str:
    """Return a server's address as other machines reach it: of a server of this machine, the one in its settings."""
    local = read_access(read_settings().home)
    return local.address if local and local.url == server else server


def _completed(server: str | None, token: str | None, project: str | None) -> tuple[str, str, str | None]:
    settings = read_settings()
    local = read_access(settings.home)
    url = server or settings.server or (local.url if local else DEFAULT_SERVER)
    ours = local.operator_key if local and local.url == url else None
    return url, token or settings.token or ours or "", project or settings.project
