"""Parse JSON and TOML values as dataclasses, and report all their problems at once, in the same words wherever they come from."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Annotated, Any

from gangline.core.errors import BadInput

OBJECT, TABLE = "an object", "a table"
"""The word for a mapping in JSON, and in TOML."""
PROBLEMS_MAX = 50
"""An answer reports this many problems at most: a spec with 100,000 unknown fields would make one of megabytes."""

WHOLE = "spec"
"""The field of a problem that `parse_as` finds with a value as a whole."""
GIVEN_MAX = 60
_WHOLE, _NUMBER, _TRUTH = "must be a whole number", "must be a number", "must be true or false"
SAID = {
    "missing": "is missing",
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_type": _WHOLE,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "number_type": _NUMBER,
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "string_type": "must be a text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be {named_values}",
    "text_or_dict_type": "must be a text or {named_values}",
    "dataclass_type": "must be {named_values}",
    "unexpected_keyword_argument": "is not a known field",
    "string_unicode": "is not valid Unicode",
    "json_invalid": "is not JSON: {error}",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "string_too_long": "has more than {max_length} characters",
    "too_long": "has more than {max_length} parts",
    "string_too_short": "has fewer than {min_length} characters",
    "too_short": "has fewer than {min_length} parts",
}
"""Messages by pydantic's type of error. Pydantic's messages are for programmers: `input should be a valid integer, unable to parse
string as an integer`."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An annotation for a type whose values are checked when they are parsed: `why_not` returns why a value is refused, or ''."""

    why_not: Callable[[Any], str]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        because = self.why_not(value)
        if because:
            raise ValueError(because)
        return value


@dataclass(frozen=True, slots=True)
class CheckedFirst:
    """An annotation as `Checked` for values that are checked before they are parsed: a union reports a problem for each of its types."""

    why_not: Callable[[Any], str]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def _check(self, given: Any, read: Callable[[Any], Any]) -> Any:
        because = self.why_not(given)
        if because:
            raise ValueError(because)
        return read(given)


@dataclass(frozen=True, slots=True)
class ExactNumbers:
    """An annotation for a type that is parsed from JSON, where only numbers may be numbers: pydantic takes `false` for 0, "5" for 5."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def _check(self, given: Any, read: Callable[[Any], Any]) -> Any:
        from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

        value = read(given)
        wrong = PydanticCustomError("number_type", "Input should be a number")
        found = [InitErrorDetails(type=wrong, loc=loc, input=each) for loc, each in _made_numbers(given, value, ())]
        if found:
            raise ValidationError.from_exception_data("numbers", found)
        return value


def _made_numbers(given: Any, value: Any, loc: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield each place where `value` has a number and `given`, from which it was parsed, a boolean or a string.

    Parts that were not converted, such as a spec that is parsed later, are skipped: one megabyte took half a second of the event loop.
    """
    if type(value) in (int, float):
        if isinstance(given, bool | str):
            yield loc, given
        return
    if is_dataclass(value) and isinstance(given, dict):
        parts = [(name, getattr(value, name, None)) for name in given]
    elif isinstance(value, dict) and isinstance(given, dict):
        parts = list(value.items())
    elif isinstance(value, tuple | list) and isinstance(given, tuple | list):
        parts = list(enumerate(value))
    else:
        return
    for name, part in parts:
        if (not isinstance(given, dict) or name in given) and part is not given[name]:
            yield from _made_numbers(given[name], part, (*loc, name))


EXACT_NUMBERS = ExactNumbers()
UNACCEPTABLE = "is not acceptable here (control characters, empty, or a path that leaves its folder)"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of a spec: the field, and what is wrong with it."""

    field: str
    message: str


class InvalidSpec(BadInput):
    """An error with every problem of a spec."""

    code = "invalid-spec"

    def __init__(self, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in problems), hint=hint)
        self.problems = problems


def parse_as(kind: Any, value: object, *, options: bool = False) -> Any:
    """Parse JSON values as a value of this type.

    `options` says that they come from a command line or a recipe: numbers may then be strings, and a mapping is called a table. Raises
    `InvalidSpec` with every field that is invalid.
    """
    from pydantic import ValidationError

    known, left_out = _without_a_flood(kind, value)
    try:
        return adapter(kind if options else Annotated[kind, EXACT_NUMBERS]).validate_python(known)
    except ValidationError as error:
        worded = partial(as_problem, whole=WHOLE, named_values=TABLE if options else OBJECT)
        raise InvalidSpec(problems(error.errors(), worded, more=left_out)) from None


def _without_a_flood(kind: Any, value: object) -> tuple[object, int]:
    """Return the value with at most `PROBLEMS_MAX` of its unknown fields, and how many were left out.

    Pydantic makes an error for each unknown field, and holds the interpreter as long as that takes.
    """
    if not is_dataclass(kind) or not isinstance(value, dict):
        return value, 0
    fields = kind.__dataclass_fields__
    unknown = [name for name in value if name not in fields]
    flood = set(unknown[PROBLEMS_MAX:])
    return ({name: part for name, part in value.items() if name not in flood} if flood else value), len(flood)


def problems(found: list[Any], worded: Callable[[dict[str, Any]], Problem], *, more: int = 0) -> tuple[Problem, ...]:
    """Return pydantic's errors as problems, which `worded` makes: the first `PROBLEMS_MAX`, and one that counts the rest and `more`."""
    causes = _causes(found)
    named = [worded(dict(cause)) for cause in causes[:PROBLEMS_MAX]]
    more += len(causes) - len(named)
    return (*named, *([Problem("…", f"and {more} more problems")] if more else ()))


def to_json(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON values: the inverse of `parse_as`."""
    return adapter(type(value)).dump_python(value)


@cache
def adapter(of: Any) -> Any:
    from pydantic import TypeAdapter  # 0.2 s that `--help` need not pay

    return TypeAdapter(of)


def in_words(found: list[Any], whole: str, options: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return pydantic's errors as one sentence for people. `whole` names the parsed value; `options` maps the fields that were given
    on the command line to their options."""
    causes = _causes(found)
    named = dict.fromkeys(_sentence(cause, whole, options) for cause in causes[:PROBLEMS_MAX])
    more = len(causes) - PROBLEMS_MAX
    return "; ".join([*named, *([f"and {more} more problems"] if more > 0 else ())])


def _causes(found: list[Any]) -> list[Any]:
    """Return the errors without those that only follow from another: a list counts as missing if its content is invalid."""
    above = {place[:length] for place in (problem["loc"] for problem in found) for length in range(len(place))}
    return [problem for problem in found if problem["loc"] not in above]


def _sentence(found: Any, whole: str, options: Mapping[str, str]) -> str:
    named = next((options[part] for part in found["loc"] if part in options), "")
    place, given = named or _place(found["loc"]) or whole, found["input"]
    match found["type"]:
        case "unexpected_keyword_argument":
            *above, last = found["loc"]
            return f"{_place(above) or whole} has no field {last}"
        case "missing":
            return f"{place} is missing"
        case _ if given == "" or found["type"] == "too_short":
            return f"{place} is empty"
        case "dataclass_type":
            return f"{place} is a table"
        case "tuple_type":
            return f"{place} is a list" + f": each of its tables is headed [[{place}]]" * isinstance(given, dict)
        case "predicate_failed":
            return f"{place} cannot be a file's name"
        case "assertion_error":
            return f"{place} contradicts this rule: {found['ctx']['error']}"
    return f"{place} {_said(found, TABLE)}"


def _place(loc: Iterable[str | int]) -> str:
    """Return a location as text, such as `phases[0].gpus[1]`. Numbers start at 0."""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return words.removeprefix(".").removesuffix(".[key]")


def as_problem(found: Mapping[str, Any], whole: str, named_values: str = OBJECT) -> Problem:
    """Return one of pydantic's errors in words for users. `whole` is the field's name if the value as a whole is wrong."""
    field_name = ".".join(str(part) for part in found["loc"]) or whole
    return Problem(field_name, UNACCEPTABLE if found["type"] == "predicate_failed" else _said(found, named_values))


def _said(found: Mapping[str, Any], named_values: str) -> str:
    """Return what is wrong with a value in words for users instead of pydantic's, to follow its name; a short value is quoted."""
    given, kind = found["input"], found["type"]
    if kind == "assertion_error":
        return str(found["ctx"]["error"])
    if kind in ("too_short", "string_too_short") and found["ctx"]["min_length"] == 1:
        return "is empty"
    said = str(found["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    limits = {
        name: f"{limit:,.0f}" if isinstance(limit, int | float) and float(limit).is_integer() else limit
        for name, limit in found.get("ctx", {}).items()
    }
    said = (
        SAID[kind].format_map(limits | {"named_values": named_values}) if kind in SAID else said[:1].lower() + said[1:]
    )
    # a text in place of all fields may be a secret's value, which was to be in one
    short = isinstance(given, int | float | str if found["loc"] else int | float) and len(str(given)) <= GIVEN_MAX
    return said + f", not {given}" * (short and said.startswith(("must be", "should be")))
