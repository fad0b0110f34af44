# Made of src/gangline/wire/aio/client.py by `python -m tests.wire.sync_client`: change that file, and make this one again.
"""The Python client: typed methods for everything that a user may ask for, by the nouns of the command line."""

from types import TracebackType
from typing import Self

import httpx

from gangline.tls import trusted
from gangline.wire.client.access import JoinTokenCalls, KeyCalls, ProjectCalls, SecretCalls
from gangline.wire.client.datasets import DatasetCalls
from gangline.wire.client.endpoints import EndpointCalls
from gangline.wire.client.experiments import ExperimentCalls
from gangline.wire.client.files import FileCalls
from gangline.wire.client.fleet import CostCalls, NodeCalls, PoolCalls, QueueCalls
from gangline.wire.client.http import Http
from gangline.wire.client.jobs import JobCalls
from gangline.wire.client.runs import (
    ArtifactCalls,
    CheckpointCalls,
    EventCalls,
    FactCalls,
    LogCalls,
    MetricCalls,
    PictureCalls,
)
from gangline.wire.client.stored import BaseCalls, StorageCalls

PATIENCE_S = 60.0


class ApiClient:
    """A client of the server at an address, with a key. Its attributes are the nouns of the command line.

    An operator's key reaches every project, and `project` selects one. Methods raise `UserError` for what the caller can fix, and
    `Unreachable` if the server does not answer.
    """

    def __init__(self, server: str, token: str, project: str | None = None) -> None:
        self._http = http = Http(server, token, project=project, patience_s=PATIENCE_S)
        self._store = httpx.Client(verify=trusted(), timeout=httpx.Timeout(60, connect=5))
        self.files = FileCalls(http, self._store)
        self.events = EventCalls(http)
        self.jobs = JobCalls(http)
        self.experiments = ExperimentCalls(http)
        self.facts = FactCalls(http)
        self.logs = LogCalls(http)
        self.metrics = MetricCalls(http)
        self.artifacts = ArtifactCalls(http, self.files)
        self.pictures = PictureCalls(http)
        self.checkpoints = CheckpointCalls(http, self.files)
        self.bases = BaseCalls(http)
        self.datasets = DatasetCalls(http, self.files, self._store)
        self.storage = StorageCalls(http)
        self.nodes = NodeCalls(http)
        self.pools = PoolCalls(http)
        self.queue = QueueCalls(http)
        self.costs = CostCalls(http)
        self.projects = ProjectCalls(http)
        self.keys = KeyCalls(http)
        self.join_tokens = JoinTokenCalls(http)
        self.secrets = SecretCalls(http)
        self.endpoints = EndpointCalls(http)

    def close(self) -> None:
        """Close the connections. Leaving a `with` block does this, too."""
        self._http.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server(self) -> str:
        """Return the server's URL."""
        return self._http.server
