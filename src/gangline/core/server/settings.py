"""The server's settings file, gangline.toml: its sections, how it is read, and what each setting means."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, get_type_hints

from annotated_types import Ge, Le, MaxLen, MinLen

from gangline.core.errors import BadInput
from gangline.core.parsing import adapter, in_words
from gangline.core.policy import STRICT, Exact, Policy, with_consequences
from gangline.core.server.limits import Limits
from gangline.core.server.sources import FetchingSettings, SourceSettings

REFERENCE = "`gangline docs reference/settings`"
DEFAULT_POOL = "default"
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
        NodePrice | None, "Price of an hour of a node, 0 if it is free; without one, costs of the pool are unknown."
    ] = None
    trust: Annotated[
        TrustLevel | None,
        "Trust tier of the nodes; a job with `--trust N` runs where it is at least N. "
        f"Without one it is {TRUST_MAX} for those that `gangline up` runs on the server's own box, and 0 for others.",
    ] = None
    nodes_min: Annotated[Nodes | None, "Nodes that `gangline up` keeps running here (`--nodes` overrides it)."] = None
    nodes_max: Annotated[Nodes | None, "Nodes that `gangline up` runs here at most (`--nodes` overrides it)."] = None

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

    @property
    def price_micro_usd_per_hour(self) -> int | None:
        return None if self.price_usd_per_hour is None else round(self.price_usd_per_hour * 1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Each field is a section of the file. A dataclass whose fields are annotated with a sentence each is all that a further
    section needs."""

    __pydantic_config__: ClassVar[Any] = STRICT
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    pools: Mapping[PoolName, PoolSettings] = field(default_factory=dict)
    fetching: FetchingSettings = field(default_factory=FetchingSettings)
    sources: Mapping[PoolName, SourceSettings] = field(default_factory=dict)

    def pool(self, name: str) -> PoolSettings:
        return self.pools.get(name, PoolSettings())


def parse_server_settings(text: str, name: str, options: Mapping[str, Any] = MappingProxyType({})) -> ServerSettings:
    """Read a settings file; `options` are sections like the file's that override it. Raises `BadInput` with everything that is
    wrong with them."""
    try:
        values = _merged(tomllib.loads(text), options)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        raise BadInput(f"{name} is not TOML: {said[:1].lower()}{said[1:]}", hint=HINT) from None
    if isinstance(values.get("policy"), dict):
        values["policy"] = with_consequences(values["policy"])
    found = _problems(ServerSettings, values)
    if found:
        raise BadInput(f"{name}: {_in_words(found, 'the file')}", hint=_hint(found, _known(values)))
    return adapter(ServerSettings).validate_python(values)


def _merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table in which `over` wins, field by field."""
    deeper = {
        name: _merged(values.get(name, {}), value) if isinstance(values.get(name, {}), dict) else values[name]
        for name, value in over.items()
        if isinstance(value, Mapping)
    }
    return {**values, **over, **deeper}


def make_policy(given: Mapping[str, Any], where: str = "policy") -> Policy:
    """Make the policy of these settings and the defaults. Raises `BadInput` with everything that is wrong with them."""
    values = with_consequences(given)
    found = [problem | {"loc": (where, *problem["loc"])} for problem in _problems(Policy, values)]
    if found:
        raise BadInput(_in_words(found, where), hint=_hint(found, {where: Policy.__slots__}))
    return adapter(Policy).validate_python(values)


def _problems(kind: type, values: dict[str, Any]) -> list[Any]:
    """Return pydantic's problems, and last the contradictions, also those that it would find once the others are corrected."""
    found = _errors(kind, values)
    places = [problem["loc"] for problem in found if problem["type"] != "assertion_error"]
    if not places:
        return found
    wrong, again = {str(place[-1]) for place in places}, _errors(kind, _without(places, values))
    contradictions = [problem for problem in again if not any(name in problem["msg"] for name in wrong)]
    return [problem for problem in found if problem["loc"] in places] + contradictions


def _errors(kind: type, values: dict[str, Any]) -> list[Any]:
    from pydantic import ValidationError

    try:
        adapter(kind).validate_python(values)
    except ValidationError as error:
        return error.errors()
    return []


def _in_words(found: list[Any], whole: str) -> str:
    contradictions = [problem for problem in found if problem["type"] == "assertion_error"]
    others = [problem for problem in found if problem["type"] != "assertion_error"]
    return "; ".join(in_words(part, whole) for part in (others, contradictions) if part)


def _without(places: list[tuple[Any, ...]], values: dict[str, Any]) -> dict[str, Any]:
    rest = deepcopy(values)
    for place in places:
        table: Any = rest
        for part in place[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(place[-1], None)
    return rest


def _known(values: dict[str, Any]) -> dict[str, Iterable[str]]:
    """Return the names that each table of a file may have."""
    tables: dict[str, Iterable[str]] = {"": [each.name for each in fields(ServerSettings)]}
    tables |= {name: names for name, kind in SECTIONS.items() for names in [[each.name for each in fields(kind)]]}
    for section, kind in NAMED.items():
        given = values.get(section)
        tables |= {f"{section}.{name}": kind.__slots__ for name in (given if isinstance(given, dict) else ())}
    return tables


def _hint(found: list[Any], known: Mapping[str, Iterable[str]]) -> str:
    """Name the field that a field which is not known was meant to be."""
    for problem in found:
        if problem["type"] == "unexpected_keyword_argument":
            *above, last = problem["loc"]
            near = get_close_matches(last, known[".".join(above)], n=1)
            return f"did you mean {near[0]}?" if near else HINT
    return HINT


# What each setting is


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A setting, for people."""

    section: str
    name: str
    value: Any
    default: Any
    unit: str
    meaning: str


def list_settings(settings: ServerSettings) -> list[Listed]:
    """List every setting with its value, section by section."""
    found = [each for name, kind in SECTIONS.items() for each in _listed(name, kind, getattr(settings, name))]
    for section, kind in NAMED.items():
        named = dict(getattr(settings, section)) or {"NAME": kind()}
        found += [each for name, one in named.items() for each in _listed(f"{section}.{name}", kind, one)]
    return found


def _listed(section: str, kind: type, values: Any) -> Iterator[Listed]:
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        yield Listed(
            section=section,
            name=each.name,
            value=getattr(values, each.name),
            default=each.default,
            unit=next((unit for ending, unit in UNITS.items() if each.name.endswith(ending)), ""),
            meaning=next(extra for extra in reversed(hints[each.name].__metadata__) if isinstance(extra, str)),
        )


SECTIONS: dict[str, type] = {
    name: kind for name, kind in get_type_hints(ServerSettings).items() if isinstance(kind, type) and is_dataclass(kind)
}
NAMED: dict[str, type] = {"pools": PoolSettings, "sources": SourceSettings}
"""Sections of which there are several, each with a name."""
UNITS = {
    "_usd_per_gb_month": "US dollars per GB and 30 days",
    "_usd_per_gb": "US dollars per GB",
    "_usd_per_hour": "US dollars an hour",
    "_usd": "US dollars",
    "_share_max": "share of the pool",
    "_bytes": "bytes",
    "_bytes_max": "bytes",
    "_per_s": "a second",
    "_ms": "milliseconds",
    "_s": "seconds",
}
HINT = f"{REFERENCE} lists every setting; `gangline settings show` prints the values"
