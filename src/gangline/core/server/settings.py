"""The settings of a server and of a worker, one typed object each: sections of gangline.toml, which variables and options override."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le, MaxLen, MinLen

from gangline.core.errors import BadInput
from gangline.core.parsing import adapter
from gangline.core.policy import STRICT, Exact, Policy, SettingOrigin, Switch, with_consequences
from gangline.core.server.limits import Limits
from gangline.core.server.mail import MailSettings
from gangline.core.server.merging import (
    DEFAULT_SECTION,
    HINT,
    NO_OVERRIDES,
    MergedSettings,
    Overrides,
    SettingsT,
    find_problems,
    hint_at_field,
    merge_settings,
    say_problems,
)
from gangline.core.server.notices import NoticeSettings
from gangline.core.server.programs import HubSettings, NodeDataSettings, ServerProgram, WorkerProgram
from gangline.core.server.sources import FetchingSettings, SourceSettings

DEFAULT_POOL = DEFAULT_SECTION
NODES_MAX = 64
PoolName = Annotated[str, MinLen(1), MaxLen(100)]
NodePrice = Annotated[float, Ge(0), Le(1e6), Exact()]
TRUST_MAX = 9
TrustLevel = Annotated[int, Ge(0), Le(TRUST_MAX), Exact()]
Nodes = Annotated[int, Ge(0), Le(NODES_MAX), Exact()]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """What holds for the nodes of a pool whose join token says nothing else."""

    __pydantic_config__: ClassVar[Any] = STRICT
    price_usd_per_hour: Annotated[
        NodePrice | None,
        SettingOrigin(option="--price-usd-per-hour"),
        "A node costs this much an hour, 0 if it is free. Without a price, costs of the pool are unknown.",
    ] = None
    trust: Annotated[
        TrustLevel | None,
        f"Nodes have this trust tier; a job with `--trust N` runs where it is at least N. By default it is {TRUST_MAX} for nodes "
        "that `gangline up` runs on the server's own machine, and 0 for others.",
    ] = None
    bare_commands: Annotated[
        Switch | None,
        "Commands (`gangline run`) also run on nodes that do not isolate runs, where they can read what the worker can. By default "
        f"only on those of trust tier {TRUST_MAX}.",
    ] = None
    nodes_min: Annotated[
        Nodes | None,
        SettingOrigin(option="--nodes"),
        "At least this many nodes run here under `gangline up` (`--nodes` overrides it).",
    ] = None
    nodes_max: Annotated[
        Nodes | None,
        SettingOrigin(option="--nodes"),
        "At most this many nodes run here under `gangline up` (`--nodes` overrides it).",
    ] = None

    def __post_init__(self) -> None:
        if self.nodes_min is not None and self.nodes_max is not None:
            assert self.nodes_min <= self.nodes_max, "nodes_min is at most nodes_max"

    @property
    def trust_of_own(self) -> int:
        """The trust tier of nodes on the server's own box: what they see, its operator sees anyway."""
        return TRUST_MAX if self.trust is None else self.trust

    @property
    def trust_of_joined(self) -> int:
        return self.trust or 0

    def lets_commands_be_bare(self, trust: int) -> bool:
        """Return whether a node of this trust tier takes commands although it does not isolate runs."""
        return trust >= TRUST_MAX if self.bare_commands is None else self.bare_commands

    @property
    def price_micro_usd_per_hour(self) -> int | None:
        return None if self.price_usd_per_hour is None else round(self.price_usd_per_hour * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """All settings of a server, merged from file, environment and options. Each field is a section of the file. Another section needs
    no more than a dataclass whose fields are annotated with a sentence each. `providers` are read by the drivers of the pools that name
    them."""

    __pydantic_config__: ClassVar[Any] = STRICT
    server: ServerProgram = field(default_factory=ServerProgram)
    hub: HubSettings = field(default_factory=HubSettings)
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    pools: Mapping[PoolName, PoolSettings] = field(default_factory=dict)
    fetching: FetchingSettings = field(default_factory=FetchingSettings)
    sources: Mapping[PoolName, SourceSettings] = field(default_factory=dict)
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    mail: MailSettings = field(default_factory=MailSettings)
    providers: Mapping[PoolName, Mapping[str, Any]] = field(default_factory=dict)

    def pool(self, name: str) -> PoolSettings:
        return self.pools.get(name, PoolSettings())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """All settings of a worker, merged from file, environment and options. Each field is a section of the file."""

    __pydantic_config__: ClassVar[Any] = STRICT
    worker: WorkerProgram = field(default_factory=WorkerProgram)
    hub: HubSettings = field(default_factory=HubSettings)
    data: NodeDataSettings = field(default_factory=NodeDataSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSettings(ServerSettings):
    """All settings of a server and of the workers on its box, which read the same file."""

    worker: WorkerProgram = field(default_factory=WorkerProgram)
    data: NodeDataSettings = field(default_factory=NodeDataSettings)


def merge_file(
    kind: type[SettingsT], text: str, file: str, overrides: Overrides = NO_OVERRIDES
) -> MergedSettings[SettingsT]:
    """Merge the sections of a settings file's text that are of this kind with what overrides them. Raises `BadInput` with everything that
    is wrong."""
    return merge_settings(kind, _tables_of(kind, text, file), file, overrides, _complete)


def _tables_of(kind: type, text: str, file: str) -> dict[str, Any]:
    """Parse a file without what is another program's: one file may have the settings of a server and of the workers beside it."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        raise BadInput(f"{file} is not TOML: {said[:1].lower()}{said[1:]}", hint=HINT) from None
    of_others = {each.name for each in fields(BoxSettings)} - {each.name for each in fields(kind)}
    return {name: table for name, table in tables.items() if name not in of_others}


def _complete(values: dict[str, Any]) -> dict[str, Any]:
    policy = values.get("policy")
    return values | {"policy": with_consequences(policy)} if isinstance(policy, dict) else values


def make_policy(given: Mapping[str, Any], where: str = "policy") -> Policy:
    """Make the policy of these settings and the defaults. Raises `BadInput` with everything that is wrong with them."""
    values = with_consequences(given)
    found = [problem | {"loc": (where, *problem["loc"])} for problem in find_problems(Policy, values)]
    if found:
        raise BadInput(say_problems(found, where), hint=hint_at_field(found, {where: Policy.__slots__}))
    return adapter(Policy).validate_python(values)
