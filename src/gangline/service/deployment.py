"""The ports, policies and settings that every use case gets."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.fleet.pools import PoolState, PoolTerms
from gangline.core.policy import Policy
from gangline.core.server.notices import NoticeSettings
from gangline.core.server.settings import PoolSettings
from gangline.core.server.sources import FetchingSettings
from gangline.ports.access.sealer import Sealer
from gangline.ports.hub import Hub
from gangline.ports.notices.notices import NoticeMailer, NoticePoster
from gangline.ports.objects import Objects
from gangline.ports.places.deliverer import Deliverer
from gangline.ports.places.fetcher import Fetcher
from gangline.ports.places.inspector import PhotoInspector
from gangline.ports.pool import PoolDrivers
from gangline.ports.store import Row, Store
from gangline.ports.tracker import Tracker
from gangline.service.driving import Driving
from gangline.service.recent import Recent


@dataclass(frozen=True, slots=True)
class RentedPool:
    """A pool whose nodes are rented and returned by a driver. Nodes are named `nodes_called` and a number; default: the pool's name.

    One that an operator made has `terms`; another is of this server's own settings.
    """

    limits: PoolLimits
    driving: Driving
    nodes_called: str = ""
    terms: PoolTerms | None = None
    state: PoolState = "active"

    @property
    def called(self) -> str:
        return self.nodes_called or self.limits.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A server with its ports and settings.

    `new_id(kind)` returns an id that sorts by time, `new_secret(kind)` a random text that cannot be guessed. `pools` are by name, and
    `open_pools` brings them up to date with their rows. `server` identifies this server among several over one store, and stays the same
    across restarts; `url` is where rented nodes reach it. A server without a `fetcher` fetches no photos, one without an `inspector` checks
    no data sets, one without a `deliverer` delivers no results, one without a `sealer` keeps no secrets; one without a `poster` sends no
    notices over HTTP, one without a `mailer` no mail.
    """

    store: Store
    objects: Objects
    hub: Hub
    policy: Policy
    new_id: Callable[[str], str]
    new_secret: Callable[[str], str]
    up_since_ms: int
    pools: Mapping[str, RentedPool] = field(default_factory=dict)
    drivers: PoolDrivers | None = None
    open_pools: Callable[[Sequence[Row]], None] = lambda _rows: None
    url: str = ""
    settings_of_pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    server: str = "server"
    trackers: tuple[Tracker, ...] = ()
    fetcher: Fetcher | None = None
    inspector: PhotoInspector | None = None
    deliverer: Deliverer | None = None
    sealer: Sealer | None = None
    fetching: FetchingSettings = field(default_factory=FetchingSettings)
    poster: NoticePoster | None = None
    mailer: NoticeMailer | None = None
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    recent: Recent = field(default_factory=Recent)
