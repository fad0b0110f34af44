"""Parse scenarios: machines, jobs, a pool, a policy and faults, written in TOML. All problems of a scenario are reported at once."""

import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gangline.core.errors import BadInput, NotFound
from gangline.core.files import FILE_BYTES_MAX, SafePath
from gangline.core.fleet.pools import PoolTerms, excluded, is_pool_name
from gangline.core.parsing import adapter, in_words
from gangline.core.policy import STRICT, Policy
from gangline.core.server.settings import DEFAULT_POOL, make_policy

MachineTrait = Literal["", "fails_at_once", "fails_long", "false_progress", "lies_65", "no_libraries", "throttles"]
JobTrait = Literal["", "kills_hosts", "bad_input", "crashes"]
FaultKind = Literal[
    "kill",
    "pause",
    "clock",
    "api",
    "database",
    "store_down",
    "store_slow",
    "listing_stale",
    "reclaim",
    "no_capacity",
    "provider",
]
AboveZero = Annotated[float, Gt(0)]
AtLeastZero = Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineModel:
    """A machine of a provider. `interruptions_per_hour` is its rate while it is rented; `start_s` is the time from the trainer's start to
    its first step; `save_s` is how long a save stops training. Where memory `spills`, a job that needs more than the card has is slow
    instead of failing. One with `priorities` is rented at one of them."""

    id: str
    pool: str
    slots: int
    gpu: str
    gpu_memory_gb: float
    price_micro_usd_per_hour: int
    seconds_per_step: float
    slowness: float
    start_s: float
    save_s: float
    interruptions_per_hour: float
    up_bytes_per_s: float
    down_bytes_per_s: float
    trait: MachineTrait
    trait_s: float
    spills: bool = False
    priorities: tuple["Priority", ...] = ()

    def at(self, priority: "Priority | None") -> "MachineModel":
        """Return the machine as it is when it is rented at this priority."""
        if priority is None:
            return self
        price = round(priority.price_usd_per_hour * 1e6)
        return replace(
            self, price_micro_usd_per_hour=price, interruptions_per_hour=priority.interruptions_per_hour, priorities=()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A priority at which a provider offers a machine: the lower the price, the sooner others displace us."""

    __pydantic_config__: ClassVar[Any] = STRICT
    name: Annotated[str, MinLen(1), MaxLen(100)]
    price_usd_per_hour: AtLeastZero
    interruptions_per_hour: AtLeastZero


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """A group of similar machines of a pool, each with `slots` GPUs for its price. Their paces are random: log-normal around
    `seconds_per_step` with `spread`, then times `slowness`. With `priorities`, price and interruptions are theirs."""

    __pydantic_config__: ClassVar[Any] = STRICT
    count: Annotated[int, Ge(1), Le(1_000_000)]
    pool: str = DEFAULT_POOL
    slots: Annotated[int, Ge(1), Le(1024)] = 1
    gpu: str = "RTX 4090"
    gpu_memory_gb: AtLeastZero = 24
    price_usd_per_hour: AtLeastZero = 0.3
    seconds_per_step: AboveZero = 2.0
    spread: AtLeastZero = 0.0
    fastest: AtLeastZero = 0.0
    slowness: AboveZero = 1.0
    start_s: AtLeastZero = 20.0
    save_s: AtLeastZero = 0.05
    interruptions_per_hour: AtLeastZero = 0.0
    uplink_mbit: AboveZero = 100.0
    downlink_mbit: AboveZero = 500.0
    trait: MachineTrait = ""
    trait_s: AtLeastZero = 5.0
    spills: bool = False
    priorities: tuple[Priority, ...] = ()

    def __post_init__(self) -> None:
        names = [priority.name for priority in self.priorities]
        assert len(set(names)) == len(names), "each priority of a group has a name of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """The properties of a job that its spec does not have: `pace` multiplies the machine's; `memory_gb` is what it really needs."""

    pace: float
    memory_gb: float
    checkpoint_bytes: int
    trait: JobTrait
    trait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """A batch of jobs that is submitted at `at_s`. `memory_gb` is what they need, `says_gb` what their spec asks for."""

    __pydantic_config__: ClassVar[Any] = STRICT
    count: Annotated[int, Ge(1), Le(1_000_000)]
    project: Annotated[str, MinLen(1), MaxLen(100)] = "default"
    at_s: AtLeastZero = 0.0
    steps: Annotated[int, Ge(1), Le(10_000_000)] = 500
    checkpoint_every_s: Annotated[float, Gt(0), Le(86_400)] = 60.0
    checkpoint_every_steps: Annotated[int, Ge(1), Le(10_000_000)] | None = None
    checkpoint_mb: AboveZero = 66.0
    sample_every_steps: Annotated[int, Ge(1), Le(10_000_000)] | None = None
    sample_result: bool = False
    base_gb: Annotated[float, Ge(0), Le(FILE_BYTES_MAX / 1e9)] = 0.0
    base: Annotated[SafePath, MaxLen(100)] = "base"
    pace: AboveZero = 1.0
    memory_gb: AtLeastZero = 0.0
    says_gb: Annotated[float, Ge(0), Le(10_000)] = 0.0
    attempts_max: Annotated[int, Ge(1), Le(100)] = 3
    priority: Annotated[int, Ge(-1000), Le(1000)] = 0
    trait: JobTrait = ""
    trait_s: AtLeastZero = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A pool. A node starts after about `start_s`, log-normal with `start_spread`, and is billed from then on. Only `offers` are rented,
    patterns of their names; all if there are none. A provider that `moves` places a node that it took back on another machine by itself."""

    __pydantic_config__: ClassVar[Any] = STRICT
    name: str = DEFAULT_POOL
    nodes_min: Annotated[int, Ge(0)] = 0
    nodes_max: Annotated[int, Ge(1)] = 40
    start_s: AboveZero = 300.0
    start_spread: AtLeastZero = 0.5
    boot_s: AtLeastZero = 5.0
    moves: bool = False
    offers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert is_pool_name(self.name), "a pool's name has up to 40 lower-case letters, digits and hyphens"
        assert self.nodes_min <= self.nodes_max, "nodes_max is at least nodes_min"

    @property
    def terms(self) -> PoolTerms:
        return PoolTerms(offers=self.offers)

    def rents(self, offer: str) -> bool:
        """Return whether the pool's terms admit this offer."""
        return not excluded(self.terms, offer=offer, price_micro_usd_per_hour=0, price_known=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that strikes at `at_s` and lasts for `seconds`; faults of nodes strike a random `share` of them."""

    __pydantic_config__: ClassVar[Any] = STRICT
    kind: FaultKind
    at_s: AtLeastZero
    seconds: AtLeastZero = 60.0
    share: Annotated[float, Gt(0), Le(1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario. Its one pool is `fleet`, or it has several `pools`. A run that is not over after `hours_max` is unfinished. `policy` has
    settings that override the defaults; `compare` has those of a second run, and `published` names a table of published figures, both for
    comparison."""

    __pydantic_config__: ClassVar[Any] = STRICT
    title: str
    says: str = ""
    hours_max: AboveZero = 240.0
    fleet: Fleet = Fleet()
    pools: tuple[Fleet, ...] = ()
    machines: Annotated[tuple[Machines, ...], MinLen(1)]
    jobs: Annotated[tuple[Jobs, ...], MinLen(1)]
    faults: tuple[Fault, ...] = ()
    policy: dict[str, Any] = field(default_factory=dict)
    compare: dict[str, Any] = field(default_factory=dict)
    published: str = ""

    def __post_init__(self) -> None:
        assert not self.pools or self.fleet == Fleet(), "a scenario has [fleet] or [[pools]], not both"
        names = [pool.name for pool in self.all_pools]
        assert len(set(names)) == len(names), "each pool has a name of its own"
        assert {group.pool for group in self.machines} == set(names), "each pool has machines, and each machine a pool"

    @property
    def all_pools(self) -> tuple[Fleet, ...]:
        return self.pools or (self.fleet,)

    @property
    def nodes_min(self) -> int:
        """Return how many nodes all pools keep together."""
        return sum(pool.nodes_min for pool in self.all_pools)


TABLES: dict[str, type] = {"fleet": Fleet, "pools": Fleet, "machines": Machines, "jobs": Jobs, "faults": Fault}
FOLDERS = ("outages", "choices", "cards")
FIELDS_HINT = "`gangline docs simulator` has every field and its unit"


def names() -> list[str]:
    return sorted(_found())


def load_scenario(name: str) -> Scenario:
    """Load a scenario of Gangline by name, or one from a file. Raises `NotFound` or `BadInput`."""
    own = _found().get(name)
    if own:
        return parse_scenario(own.read_text(), name)
    path = Path(name)
    try:
        return parse_scenario(path.read_text(), name)
    except OSError as error:
        hint = f"the scenarios are {', '.join(names())}; or give a file"
        raise NotFound(f"there is no scenario {name} ({error.strerror})", hint=hint) from None
    except UnicodeDecodeError:
        raise BadInput(f"{name} is not a text file", hint="a scenario is TOML") from None


def parse_scenario(text: str, name: str) -> Scenario:
    from pydantic import ValidationError

    try:
        scenario = adapter(Scenario).validate_python(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name} is not TOML: {_as_words(str(error))}", hint=FIELDS_HINT) from None
    except ValidationError as error:
        found = error.errors()
        raise BadInput(f"{name}: {in_words(found, 'a scenario')}", hint=_hint(found)) from None
    try:
        make_policy(scenario.policy)
        make_policy(scenario.policy | scenario.compare, "compare")
        figures(scenario.published)
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}", hint=error.hint) from None
    return scenario


def figures(table: str) -> dict[str, float]:
    """Return the published figures of a table by name; none if `table` is empty. Raises `BadInput`."""
    if not table:
        return {}
    known = tomllib.loads(files("gangline.sim").joinpath("published", "salad.toml").read_text())
    if table not in known:
        raise BadInput(f"published: there is no table {table}", hint=_nearest(table, known))
    return {name: value for name, value in known[table].items() if isinstance(value, int | float)}


def with_policy(scenario: Scenario, policy: Policy) -> Scenario:
    """Return the scenario with its policy replaced."""
    return replace(scenario, policy=asdict(policy))


def override_scenario(scenario: Scenario, settings: dict[str, str]) -> Scenario:
    """Return the scenario with the settings `policy.x` and, in each pool, `fleet.x` overridden from text. Raises `BadInput` for unknown
    ones."""
    changes: dict[str, dict[str, Any]] = {"policy": {}, "fleet": {}}
    for name, text in settings.items():
        part, _, setting = name.partition(".")
        if part not in changes or not setting:
            raise BadInput(f"there is no setting {name}", hint="settings are policy.NAME and fleet.NAME")
        changes[part][setting] = _value(text)
    policy = scenario.policy | changes["policy"]
    make_policy(policy)
    make_policy(policy | scenario.compare, "compare")
    pools = [_make_fleet(asdict(pool) | changes["fleet"]) for pool in scenario.all_pools]
    changed = {"pools": tuple(pools)} if scenario.pools else {"fleet": pools[0]}
    return replace(scenario, policy=policy, **changed)


def _make_fleet(settings: dict[str, Any]) -> Fleet:
    from pydantic import ValidationError

    try:
        return adapter(Fleet).validate_python(settings)
    except ValidationError as error:
        found = [{**problem, "loc": ("fleet", *problem["loc"])} for problem in error.errors()]
        raise BadInput(in_words(found, "a scenario"), hint=_hint(found)) from None


def _hint(found: list[Any]) -> str:
    for problem in found:
        if problem["type"] == "unexpected_keyword_argument":
            *above, last = problem["loc"]
            table = Priority if "priorities" in above else TABLES[above[0]] if above else Scenario
            return _nearest(last, table.__slots__)
    return FIELDS_HINT


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"


def _as_words(text: str) -> str:
    return text[:1].lower() + text[1:]


def _value(text: str) -> Any:
    """Parse a value as TOML; return the text if it is not valid TOML."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _found() -> dict[str, Traversable]:
    """Return the files of Gangline's scenarios by name, from all folders."""
    folder = files("gangline.sim").joinpath("scenarios")
    found = (path for place in (folder, *(folder.joinpath(name) for name in FOLDERS)) for path in place.iterdir())
    return {path.name.removesuffix(".toml"): path for path in found if path.name.endswith(".toml")}
