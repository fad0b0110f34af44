"""Typed settings of several sources. Options override variables, these the file, and the file the defaults; every problem is reported at
once, with the source of the value that has it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from gangline.core.errors import BadInput
from gangline.core.parsing import adapter, in_words
from gangline.core.policy import SettingOrigin

SettingPlace = tuple[str, ...]
"""Of a setting: `("policy", "lease_s")`, `("pools", "default", "trust")`."""
SettingsT = TypeVar("SettingsT")

DEFAULT_SECTION = "default"
"""The name of the section that options set, where sections have names: the default pool, for `[pools.NAME]`."""
HIDDEN = "********"
HINT = "`gangline docs reference/settings` lists every setting; `gangline settings show` prints the values and their sources"


@dataclass(frozen=True, slots=True)
class Override:
    """A value that does not come from the file. `source` is the variable or the option that gives it; empty for a default that only the
    machine knows, such as its user's home."""

    value: Any
    source: str


Overrides = Mapping[SettingPlace, Override]
NO_OVERRIDES: Overrides = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MergedSettings(Generic[SettingsT]):
    """Settings, and the source of each that is not a default."""

    settings: SettingsT
    sources: Mapping[SettingPlace, str]


def find_overrides(
    kind: type, environment: Mapping[str, str], options: Mapping[str, Any]
) -> dict[SettingPlace, Override]:
    """Return what variables and options set. `options`: values by the setting's name, such as `policy.lease_s`; None is not given."""
    places = dict(_origins(kind))
    unknown = options.keys() - {".".join(place) for place in places}
    assert not unknown, f"no setting has such an option: {unknown}"
    found = {}
    for place, origin in places.items():
        given, text = options.get(".".join(place)), environment.get(origin.variable, "").strip()
        if given is not None:
            found[place] = Override(given, origin.option)
        elif text:
            found[place] = Override(origin.read(text), origin.variable)
    return found


def secret_variables(kind: type) -> list[str]:
    """Return the variables of the environment that hold secrets."""
    return [origin.variable for _, origin in _origins(kind) if origin.secret]


def merge_settings(
    kind: type[SettingsT],
    table: Mapping[str, Any],
    file: str,
    overrides: Overrides = NO_OVERRIDES,
    complete: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> MergedSettings[SettingsT]:
    """Merge the tables of a file and what overrides them. `complete` adds what follows from values that were given.
    Raises `BadInput` with everything that is wrong."""
    misplaced = _misplaced(kind, table)
    values = _without([problem["loc"] for problem in misplaced], table)
    sources = dict.fromkeys(_leaves(values), file) | {place: each.source for place, each in overrides.items()}
    values = complete(_overlaid(values, overrides))
    found = misplaced + find_problems(kind, values)
    if found:
        raise BadInput(_with_sources(found, file, overrides), hint=hint_at_field(found, _known_fields(kind, values)))
    return MergedSettings(adapter(kind).validate_python(values), sources)


def _misplaced(kind: type, table: Mapping[str, Any]) -> list[Any]:
    """Return a problem for each setting that a file must not hold. All of these are in sections that are there once."""
    found = []
    for (section, *names), origin in _origins(kind):
        given = table.get(section)
        if (origin.secret or not origin.in_file) and isinstance(given, dict) and names[0] in given:
            says = f"does not belong in a file: use {' or '.join(filter(None, (origin.variable, origin.option)))}"
            found.append({"type": "misplaced", "loc": (section, *names), "msg": says, "input": None})
    return found


def _overlaid(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return the tables with the overrides in them; what is no table where one should be stays, so that it is reported."""
    for (*above, last), each in overrides.items():
        table: Any = values
        for part in above:
            table = table.setdefault(part, {}) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table[last] = each.value
    return values


def _leaves(table: Mapping[str, Any], above: SettingPlace = ()) -> Iterator[SettingPlace]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name)


# Problems


def find_problems(kind: type, values: dict[str, Any]) -> list[Any]:
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


def _without(places: list[tuple[Any, ...]], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the tables without what is at these places."""
    rest = deepcopy(dict(values))
    for place in places:
        table: Any = rest
        for part in place[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict):
            table.pop(place[-1], None)
    return rest


def _with_sources(found: list[Any], file: str, overrides: Overrides) -> str:
    """Say each problem with its source: the name of the variable or the option, or the file before all those of its fields."""
    elsewhere, of_file = [], []
    for problem in found:
        given = _given_by(problem, overrides)
        if given and problem["type"] != "assertion_error":
            elsewhere.append(problem | {"loc": tuple(given)})
        elif given:  # a rule between fields, some of which are the file's or defaults
            elsewhere.append(problem | {"loc": (f"{'.'.join(problem['loc'])} with {' and '.join(given)}",)})
        else:
            of_file.append(problem)
    said = [say_problems(elsewhere, "the settings")] if elsewhere else []
    return "; ".join([*said, *([f"{file}: {say_problems(of_file, 'the file')}"] if of_file else [])])


def _given_by(problem: Any, overrides: Overrides) -> list[str]:
    """Return the variables and options that gave the value, or values of a rule that is broken."""
    if problem["type"] == "misplaced":
        return []
    if problem["type"] == "assertion_error":
        within = {place: each for place, each in overrides.items() if place[:-1] == problem["loc"]}
        return [each.source for place, each in within.items() if place[-1] in problem["msg"] and each.source]
    return [each.source for place, each in overrides.items() if place == problem["loc"][: len(place)] and each.source]


def say_problems(found: list[Any], whole: str) -> str:
    contradictions = [problem for problem in found if problem["type"] == "assertion_error"]
    others = [problem for problem in found if problem["type"] != "assertion_error"]
    return "; ".join(in_words(part, whole) for part in (others, contradictions) if part)


def hint_at_field(found: list[Any], known: Mapping[str, Iterable[str]]) -> str:
    """Name the field that a field which is not known was meant to be."""
    for problem in found:
        if problem["type"] == "unexpected_keyword_argument":
            *above, last = problem["loc"]
            near = get_close_matches(last, known[".".join(above)], n=1)
            return f"did you mean {near[0]}?" if near else HINT
    return HINT


def _known_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Iterable[str]]:
    """Return the names that each table of a file may have."""
    sections, named = _sections(kind)
    tables: dict[str, Iterable[str]] = {"": [*sections, *named]}
    tables |= {name: [each.name for each in fields(section)] for name, section in sections.items()}
    for name, section in named.items():
        given = values.get(name)
        names = [each.name for each in fields(section)]
        tables |= {f"{name}.{one}": names for one in (given if isinstance(given, dict) else ())}
    return tables


# What each setting is


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A setting, for people. The value of a secret is hidden."""

    section: str
    name: str
    value: Any
    source: str
    default: Any
    unit: str
    meaning: str
    variable: str
    option: str


def list_settings(settings: Any, sources: Mapping[SettingPlace, str] = MappingProxyType({})) -> list[Listed]:
    """List every setting with its value and the source of it, section by section."""
    sections, several = _sections(type(settings))
    found = [
        each for name, kind in sections.items() for each in _listed((name,), kind, getattr(settings, name), sources)
    ]
    for section, kind in several.items():
        named = dict(getattr(settings, section)) or {"NAME": kind()}
        found += [each for name, one in named.items() for each in _listed((section, name), kind, one, sources)]
    return found


def _listed(section: SettingPlace, kind: type, values: Any, sources: Mapping[SettingPlace, str]) -> Iterator[Listed]:
    for name, (meaning, origin) in described_fields(kind).items():
        value, default = getattr(values, name), _default(kind, name)
        yield Listed(
            section=".".join(section),
            name=name,
            value=HIDDEN if origin.secret and value else _shown(value),
            source=sources.get((*section, name), "" if value == default else "other settings"),
            default=_shown(default),
            unit=next((unit for ending, unit in UNITS.items() if name.endswith(ending)), ""),
            meaning=meaning,
            variable=origin.variable,
            option=origin.option,
        )


def _default(kind: type, name: str) -> Any:
    known = {each.name: each for each in fields(kind)}[name]
    return known.default if known.default_factory is MISSING else known.default_factory()


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


@cache
def _sections(kind: type) -> tuple[dict[str, type], dict[str, type]]:
    """Return the sections of a kind of settings, and those of which there are several, each with a name."""
    hints = get_type_hints(kind)
    once = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    of_names = {name: get_args(hint)[-1] for name, hint in hints.items() if get_args(hint)}
    return once, {
        name: section for name, section in of_names.items() if isinstance(section, type) and is_dataclass(section)
    }


def _origins(kind: type) -> Iterator[tuple[SettingPlace, SettingOrigin]]:
    once, several = _sections(kind)
    sections = {(name,): section for name, section in once.items()}
    sections |= {(name, DEFAULT_SECTION): section for name, section in several.items()}
    for place, section in sections.items():
        for name, (_, origin) in described_fields(section).items():
            if origin is not NOWHERE_ELSE:
                yield (*place, name), origin


@cache
def described_fields(section: type) -> dict[str, tuple[str, SettingOrigin]]:
    """Return what each field means, and where it may come from besides the file."""
    found = {}
    hints = get_type_hints(section, include_extras=True)
    for each in fields(section):
        notes = hints[each.name].__metadata__
        meaning = next(note for note in reversed(notes) if isinstance(note, str))
        found[each.name] = meaning, next((note for note in notes if isinstance(note, SettingOrigin)), NOWHERE_ELSE)
    return found


NOWHERE_ELSE = SettingOrigin()
UNITS = {
    "_usd_per_gb_month": "US dollars per GB and 30 days",
    "_usd_per_gb": "US dollars per GB",
    "_usd_per_hour": "US dollars an hour",
    "_usd": "US dollars",
    "_gb_per_hour": "GB an hour",
    "save_share_max": "share of the time",
    "_share_max": "share of the pool",
    "_bytes": "bytes",
    "_bytes_max": "bytes",
    "_per_s": "a second",
    "_gb": "GB",
    "_ms": "milliseconds",
    "_s": "seconds",
}
