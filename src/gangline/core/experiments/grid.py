"""Expand what an experiment asks for into the settings of each of its jobs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import product
from typing import Any, get_args, get_type_hints

from gangline.core.canonical import canonical_json, digest
from gangline.core.errors import BadInput
from gangline.core.experiments.terms import RUNS_MAX, DrawnSetting, ExperimentAsked, RandomSettings
from gangline.core.specs.changes import OF_BASE
from gangline.core.words import counted, listed

Combination = Mapping[str, Any]
"""The values of the settings that the jobs of an experiment differ in, by name."""
TRIES_MAX = 100
"""This many draws for each one that is wanted: of a few choices, most may have been drawn before."""
FIXED = (
    "kind",
    "photos",
    "held_out",
    "captions",
    "masks",
    "class_photos",
    "class_captions",
    "subjects",
    "data",
    "secrets",
    "deliver",
)
"""Settings in which the jobs of an experiment cannot differ: what they are, their files, and where results go."""


def combinations(asked: ExperimentAsked, spec: type) -> list[Combination]:
    """Return the settings of each job without its seeds; `spec` is the class of their specs.

    Raise `BadInput` for more than `RUNS_MAX` jobs, which are counted before one is made, for what is no setting, and for a combination that
    comes twice.
    """
    _refuse_several(asked)
    names = asked.random.vary if asked.random else asked.vary or varied(asked.list)
    _check_names(tuple(names), spec)
    count = _count(asked) * asked.seeds
    if count > RUNS_MAX:
        raise BadInput(
            f"the experiment would have {count:,} jobs, and the most is {RUNS_MAX:,}",
            hint="vary fewer settings, or draw some of all combinations with `random`",
        )
    if asked.random:
        return _drawn(asked.random, frozenset(name for name, hint in _settings(spec) if _is_whole(hint)))
    found: list[Combination] = [*asked.list] or [
        dict(zip(asked.vary, values, strict=True)) for values in product(*asked.vary.values())
    ]
    seen = set[str]()
    for combination in found:
        if (text := canonical_json(combination)) in seen:
            raise BadInput(
                f"the combination {combination_words(combination)} comes twice",
                hint="for several runs of one, give `seeds`",
            )
        seen.add(text)
    return found


def varied(found: Sequence[Combination]) -> tuple[str, ...]:
    """Return the names of the settings that these combinations have, in the order in which they come."""
    return tuple(dict.fromkeys(name for combination in found for name in combination))


def _check_names(names: Sequence[str], spec: type) -> None:
    known = tuple(name for name, _ in _settings(spec))
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=3)
            raise BadInput(
                f"{name} is not a setting of this kind of job", hint=f"is it {listed(close, 'or')}?" if close else ""
            )
        if name.partition(".")[0] in FIXED:
            raise BadInput(f"the jobs of an experiment cannot differ in {name}", hint="submit jobs of their own")


def with_combination(spec: dict[str, Any], combination: Combination) -> dict[str, Any]:
    """Return the spec with these settings: `needs.slots` is the field `slots` of `needs`.

    Another base brings its own VAE, kind of prediction and licence, unless these are given with it.
    """
    changed = {name: value for name, value in spec.items() if not ("base" in combination and name in OF_BASE)}
    for name, value in combination.items():
        above, _, below = name.partition(".")
        inner = changed.get(above) or {}
        changed[above] = {**(inner if isinstance(inner, dict) else {}), below: value} if below else value
    return changed


def combination_words(combination: Combination) -> str:
    """Return a combination as people write it, such as `rank=8, learning_rate=0.0001`."""
    return ", ".join(f"{name}={setting_word(value)}" for name, value in combination.items()) or "without other settings"


def setting_word(value: Any) -> str:
    """Return a value of a setting as people write it, at most 60 characters of it."""
    text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _settings(spec: type) -> Iterator[tuple[str, Any]]:
    """Yield each setting with its type; those below another one are named with a dot."""
    hints = get_type_hints(spec)
    for each in fields(spec):
        hint = hints[each.name]
        yield each.name, hint
        if isinstance(hint, type) and is_dataclass(hint):
            yield from ((f"{each.name}.{name}", inner) for name, inner in _settings(hint))


def _is_whole(hint: Any) -> bool:
    """Return whether a setting takes whole numbers and no others."""
    types = set(_types(hint))
    return int in types and float not in types


def _types(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in get_args(hint):
        yield from _types(inner)


def _refuse_several(asked: ExperimentAsked) -> None:
    given = [name for name in ("vary", "list", "random") if getattr(asked, name)]
    if len(given) > 1:
        raise BadInput(f"{listed(given)} both say how the jobs differ", hint="give one of vary, list and random")
    if not given and asked.seeds == 1:
        raise BadInput("nothing says how the jobs differ", hint="give one of vary, list and random, or seeds")
    empty = next((name for name, values in asked.vary.items() if not values), None)
    if empty:
        raise BadInput(f"vary: {empty} has no value", hint="give each setting at least one value")


def _count(asked: ExperimentAsked) -> int:
    if asked.random:
        return asked.random.draws
    return len(asked.list) or math.prod(len(values) for values in asked.vary.values())


def _drawn(random: RandomSettings, whole: frozenset[str]) -> list[Combination]:
    """Return as many different combinations as are wanted. Each value follows from the seed, the setting and the number of the draw."""
    for name, how in random.vary.items():
        _check_range(name, how)
    if not random.vary:
        raise BadInput("random: no setting is drawn", hint="give `vary` at least one setting")
    found = dict[str, Combination]()
    for number in range(random.draws * TRIES_MAX):
        if len(found) == random.draws:
            break
        drawn = {
            name: _draw(how, [random.seed, name, number], whole=name in whole) for name, how in random.vary.items()
        }
        found.setdefault(canonical_json(drawn), drawn)
    if len(found) < random.draws:
        raise BadInput(
            f"random: there are only {counted(len(found), 'different combination')}, not {random.draws}",
            hint="draw fewer, or give more choices",
        )
    return list(found.values())


def _check_range(name: str, how: DrawnSetting) -> None:
    if how.choices:
        if how.min is not None or how.max is not None or how.log:
            raise BadInput(f"random: {name} has both choices and a range", hint="give one of them")
    elif how.min is None or how.max is None or not how.min < how.max:
        raise BadInput(f"random: {name} has no range", hint="give min and a larger max, or choices")
    elif how.log and how.min <= 0:
        raise BadInput(f"random: {name} has a logarithmic scale that begins at {how.min:g}", hint="begin above 0")


def _draw(how: DrawnSetting, of: list[Any], *, whole: bool) -> Any:
    share = int(digest(of)[:13], 16) / 16**13
    if how.choices:
        return how.choices[int(share * len(how.choices))]
    low, high = how.min or 0.0, how.max or 0.0
    end = high + 1 if whole else high  # the greatest whole number is as likely as each other
    value = low * (end / low) ** share if how.log else low + share * (end - low)
    return min(math.floor(high), math.floor(value)) if whole else float(f"{value:.4g}")
