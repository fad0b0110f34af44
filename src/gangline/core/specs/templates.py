"""Recipes as values: presets, and templates, which are recipes with variables.

`[variables]` of a template declares them, and `{name}` in any of its texts stands for the value of one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.core.errors import BadInput
from gangline.core.words import listed

VARIABLES = "variables"
"""The table of a recipe that declares its variables: a default for each, or "" for one that has to be given."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
COMMENT = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?:"(?:[^"\\]|\\.)*"|'[^']*')\s*#\s*(.+)""")
BRACES = "write {{ and }} for braces that stand for themselves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A recipe without a base, a prompt and photos: the `settings` of a LoRA that suit a kind of subject, or of GPU. `about` says which."""

    name: str
    about: str
    settings: Mapping[str, Any]


def settings_of_presets(known: Mapping[str, Preset], names: Sequence[str]) -> dict[str, Any]:
    """Return the settings of some of the known presets; where two set the same one, the later counts. Raise `BadInput`."""
    settings = dict[str, Any]()
    for name in names:
        if name not in known:
            hint = f"choose one of {', '.join(known)}; `gangline recipes show NAME` explains one"
            raise BadInput(f"there is no preset {name}", hint=hint)
        settings |= known[name].settings
    return settings


def about_recipe(text: str) -> str:
    """Return the first paragraph of the comment that a recipe begins with, given its TOML."""
    return " ".join(_first_comment(text))


def _first_comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("#") or not line.strip("# "):
            return
        yield line.strip("# ")


def parse_variables(texts: list[str]) -> dict[str, str]:
    """Return the values of several `NAME=VALUE`; of one name, the last counts. Raise `BadInput`."""
    found = dict[str, str]()
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not NAME.fullmatch(name.strip()):
            raise BadInput(f"--var {text} does not name a variable and its value", hint="write --var NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


TYPED = "--var "
"""How a variable's value is given on the command line."""


def filled(
    recipe: Mapping[str, Any], given: Mapping[str, str], about: Mapping[str, str], option: str = TYPED
) -> dict[str, Any]:
    """Return the settings of a recipe with the values of its variables in its texts. A recipe without variables stays as it is.

    `about` has the comments of variables, for hints; `option` stands before the name of one in errors. Raise `BadInput` for a variable
    without a value, for one that the recipe does not declare, and for a brace that belongs to none.
    """
    if VARIABLES not in recipe:
        if given:
            raise BadInput(
                f"{option}{next(iter(given))}: the recipe has no variables",
                hint="declare them in its table [variables]",
            )
        return dict(recipe)
    declared = _declared(recipe[VARIABLES])
    unknown = [name for name in given if name not in declared]
    if unknown:
        raise BadInput(
            f"{option}{unknown[0]}: the recipe has no such variable", hint=f"it has {listed(list(declared)) or 'none'}"
        )
    values = declared | dict(given)
    missing = [name for name, value in values.items() if not value]
    if missing:
        said = f": {about[missing[0]]}" if missing[0] in about else ""
        how = f"--var {missing[0]}=VALUE" if option == TYPED else f'write {missing[0]} = "VALUE" in [variables]'
        raise BadInput(f"the recipe needs a value of its variable {missing[0]}", hint=f"{how}{said}")
    return {name: _with_values(value, values, name) for name, value in recipe.items() if name != VARIABLES}


def comments_of(text: str) -> dict[str, str]:
    """Return the comment behind each variable of a recipe, given its TOML."""
    lines = iter(text.splitlines())
    found = dict[str, str]()
    for line in lines:
        if line.strip().partition("#")[0].strip() == f"[{VARIABLES}]":
            break
    for line in lines:
        if line.lstrip().startswith("["):
            break
        if comment := COMMENT.fullmatch(line):
            found[comment[1]] = comment[2].strip()
    return found


def _declared(table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise BadInput(
            "[variables] of the recipe is not a table", hint='write [variables], and below it name = "default"'
        )
    for name, value in table.items():
        if not NAME.fullmatch(name):
            raise BadInput(f"variables.{name}: a variable has a name of letters, digits and _")
        if not isinstance(value, str):
            raise BadInput(f"variables.{name} must be a text, not {value!r}", hint=f'write {name} = "{value}"')
    return dict(table)


def _with_values(value: Any, values: Mapping[str, str], place: str) -> Any:
    if isinstance(value, str):
        return PART.sub(lambda part: _replacement(part, values, place), value)
    if isinstance(value, list):
        return [_with_values(each, values, f"{place}.{number}") for number, each in enumerate(value)]
    if isinstance(value, dict):
        return {name: _with_values(each, values, f"{place}.{name}") for name, each in value.items()}
    return value


def _replacement(part: re.Match[str], values: Mapping[str, str], place: str) -> str:
    if part[0] in ("{{", "}}"):
        return part[0][0]
    if part[1] is None:
        raise BadInput(f"{place}: it has a single {part[0]}, which begins or ends no variable", hint=BRACES)
    if part[1].strip() not in values:
        raise BadInput(
            f"{place}: {part[0]} is no variable of the recipe", hint=f"declare it in [variables], or {BRACES}"
        )
    return values[part[1].strip()]
