"""What every use case works with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gangline.core.fleet.autoscale import PoolLimits
from gangline.core.policy import Policy
from gangline.core.server.settings import PoolSettings
from gangline.core.server.sources import FetchingSettings
from gangline.ports.hub import Hub
from gangline.ports.objects import Objects
from gangline.ports.places.deliverer import Deliverer
from gangline.ports.places.fetcher import Fetcher
from gangline.ports.pool import Pool
from gangline.ports.store import Store
from gangline.ports.tracker import Tracker
from gangline.service.recent import Recent


@dataclass(frozen=True, slots=True)
class RentedPool:
    """A pool whose nodes a driver rents and gives back. They are called `nodes_called` and a number; by default as the pool."""

    limits: PoolLimits
    driver: Pool
    nodes_called: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`new_id(kind)` gives an id that sorts by time; `new_secret(kind)` a text that nobody guesses; `pools` by their names; `server`
    is this one among several over the same store, and stays when it starts again; without a `fetcher` it fetches no
    photos, without a `deliverer` it delivers no results."""

    store: Store
    objects: Objects
    hub: Hub
    policy: Policy
    new_id: Callable[[str], str]
    new_secret: Callable[[str], str]
    up_since_ms: int
    pools: Mapping[str, RentedPool] = field(default_factory=dict)
    settings_of_pools: Mapping[str, PoolSettings] = field(default_factory=dict)
    server: str = "server"
    trackers: tuple[Tracker, ...] = ()
    fetcher: Fetcher | None = None
    deliverer: Deliverer | None = None
    fetching: FetchingSettings = field(default_factory=FetchingSettings)
    recent: Recent = field(default_factory=Recent)
