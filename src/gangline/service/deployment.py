"""What every use case works with."""

from collections.abc import Callable
from dataclasses import dataclass

from gangline.core.policy import Policy
from gangline.ports.hub import Hub
from gangline.ports.objects import Objects
from gangline.ports.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`new_id(kind)` gives an id that sorts by time; `new_secret()` a text that nobody guesses."""

    store: Store
    objects: Objects
    hub: Hub
    policy: Policy
    new_id: Callable[[str], str]
    new_secret: Callable[[], str]
    up_since_ms: int
    price_micro_usd_per_hour: int
