"""The Python client: typed methods for everything that a user may ask for, by the nouns of the command line."""

from types import TracebackType
from typing import Self

import httpx

from gangline.tls import trusted
from gangline.wire.aio.access import AsyncJoinTokenCalls, AsyncKeyCalls, AsyncProjectCalls, AsyncSecretCalls
from gangline.wire.aio.datasets import AsyncDatasetCalls
from gangline.wire.aio.endpoints import AsyncEndpointCalls
from gangline.wire.aio.experiments import AsyncExperimentCalls
from gangline.wire.aio.files import AsyncFileCalls
from gangline.wire.aio.fleet import AsyncCostCalls, AsyncNodeCalls, AsyncPoolCalls, AsyncQueueCalls
from gangline.wire.aio.http import AsyncHttp
from gangline.wire.aio.jobs import AsyncJobCalls
from gangline.wire.aio.runs import (
    AsyncArtifactCalls,
    AsyncCheckpointCalls,
    AsyncEventCalls,
    AsyncFactCalls,
    AsyncLogCalls,
    AsyncMetricCalls,
    AsyncPictureCalls,
)
from gangline.wire.aio.stored import AsyncBaseCalls, AsyncStorageCalls

PATIENCE_S = 60.0


class AsyncApiClient:
    """A client of the server at an address, with a key. Its attributes are the nouns of the command line.

    An operator's key reaches every project, and `project` selects one. Methods raise `UserError` for what the caller can fix, and
    `Unreachable` if the server does not answer.
    """

    def __init__(self, server: str, token: str, project: str | None = None) -> None:
        self._http = http = AsyncHttp(server, token, project=project, patience_s=PATIENCE_S)
        self._store = httpx.AsyncClient(verify=trusted(), timeout=httpx.Timeout(60, connect=5))
        self.files = AsyncFileCalls(http, self._store)
        self.events = AsyncEventCalls(http)
        self.jobs = AsyncJobCalls(http)
        self.experiments = AsyncExperimentCalls(http)
        self.facts = AsyncFactCalls(http)
        self.logs = AsyncLogCalls(http)
        self.metrics = AsyncMetricCalls(http)
        self.artifacts = AsyncArtifactCalls(http, self.files)
        self.pictures = AsyncPictureCalls(http)
        self.checkpoints = AsyncCheckpointCalls(http, self.files)
        self.bases = AsyncBaseCalls(http)
        self.datasets = AsyncDatasetCalls(http, self.files, self._store)
        self.storage = AsyncStorageCalls(http)
        self.nodes = AsyncNodeCalls(http)
        self.pools = AsyncPoolCalls(http)
        self.queue = AsyncQueueCalls(http)
        self.costs = AsyncCostCalls(http)
        self.projects = AsyncProjectCalls(http)
        self.keys = AsyncKeyCalls(http)
        self.join_tokens = AsyncJoinTokenCalls(http)
        self.secrets = AsyncSecretCalls(http)
        self.endpoints = AsyncEndpointCalls(http)

    async def close(self) -> None:
        """Close the connections. Leaving a `with` block does this, too."""
        await self._http.close()
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """Return the server's URL."""
        return self._http.server
